//! Whether control groups can be made here.
use super::super::facts::{Found, GroupFacts};
use robust_shared::job::{ControlGroups, Job, Resource};
use robust_tree::{Controller, Groups, Mounts};

/// Makes the folder that a robustd would have next to this program's own group, and removes it.
pub(super) fn look(job: &Job) -> GroupFacts {
    let first = job.nodes.first();
    let limited = first.map_or_else(Vec::new, |node| job.limited(&node.pools, true));
    let found = match job.job.control_groups {
        ControlGroups::Off => Err("it was not tried".to_owned()),
        ControlGroups::Auto | ControlGroups::Require => {
            permitted(limited.iter().map(|of| match of.resource {
                Resource::Memory => Controller::Memory,
                Resource::Cpus => Controller::Cpu,
                Resource::Pids => Controller::Pids,
            }))
        }
    };
    GroupFacts {
        asked: job.job.control_groups,
        limits: limited.into_iter().map(|of| of.key).collect(),
        found,
    }
}

fn permitted(limits: impl Iterator<Item = Controller>) -> Found<String> {
    let mounts = Mounts::here().map_err(|e| e.to_string())?;
    let name = format!("robust-doctor-{}", std::process::id());
    let permitted = Groups::of(&mounts, &name).permitted(limits);
    permitted.map_err(|e| e.to_string())
}
