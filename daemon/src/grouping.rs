//! Which control group each life is in, and what limits it there.
//!
//! ```text
//!  state directory ──► Groups, of this daemon ──┬─► launchers: what an earlier daemon left, the ends of lives
//!  job file ── limits, [job] control_groups ────┴─► Grouping::prepare ──► a LifeGroup for each life
//!                                                     └─► limits that nobody would hold to: refused
//! ```
use crate::launcher::LifeGroup;
use crate::state::{StateDir, own_name};
use robust_shared::ids::{Incarnation, InstanceId, Role};
use robust_shared::job::{ControlGroups, Job, Limited, Limits, Resource};
use robust_shared::service::ServiceId;
use robust_tree::{Controller, GroupLimits, Groups, GroupsError, HOW_TO_HAVE_GROUPS, Mounts};
use std::collections::BTreeMap;

/// Why the lives of a job cannot be in control groups as it asks for.
#[derive(Debug, thiserror::Error)]
pub enum GroupingError {
    /// A limit could not be held to.
    #[error("{key} cannot be held to: {source}; {HOW_TO_HAVE_GROUPS}, or leave the limit out")]
    Limit {
        /// The key of the job file.
        key: String,
        /// Why.
        source: GroupsError,
    },
    /// The job wants groups.
    #[error(
        "[job] control_groups is \"require\": {source}; {HOW_TO_HAVE_GROUPS}, or leave that out"
    )]
    Required {
        /// Why there are none.
        source: GroupsError,
    },
}

/// The control groups of this state directory's daemon. Nothing is made yet.
pub fn groups_of(state: &StateDir) -> Groups {
    let mounts = Mounts::here().unwrap_or_else(|error| {
        tracing::warn!("where control groups are mounted is not known: {error}");
        Mounts::default()
    });
    Groups::of(&mounts, &own_name(state.root()))
}

/// The control groups of a job's lives on this node.
#[derive(Clone, Debug)]
pub struct Grouping {
    groups: Groups,
    /// Whether lives have groups at all.
    made: bool,
    /// Whether each needs one, with limits or without.
    needed: bool,
    roles: [Limits; Role::ALL.len()],
    services: BTreeMap<String, Limits>,
}

impl Grouping {
    /// No life has one.
    pub fn none(groups: Groups) -> Self {
        Self {
            groups,
            made: false,
            needed: false,
            roles: [Limits::default(); Role::ALL.len()],
            services: BTreeMap::new(),
        }
    }

    /// As a job asks for it, if that can be had on this node: `limited` are the limits of what may run here.
    pub fn prepare(groups: Groups, job: &Job, limited: &[Limited]) -> Result<Self, GroupingError> {
        if job.job.control_groups == ControlGroups::Off {
            return Ok(Self::none(groups));
        }
        let needed = job.job.control_groups == ControlGroups::Require;
        let controllers = limited.iter().map(|of| controller(of.resource));
        match groups.prepare(controllers) {
            Ok(said) => tracing::info!("each life has a control group of its own, of {said}"),
            Err(source) => match limited.iter().find(|of| concerns(of, &source)) {
                Some(of) => {
                    let key = of.key.clone();
                    return Err(GroupingError::Limit { key, source });
                }
                None if needed => return Err(GroupingError::Required { source }),
                None => {
                    tracing::info!("{source}: lives end by their process groups");
                    return Ok(Self::none(groups));
                }
            },
        }
        let services = job.services.iter();
        Ok(Self {
            groups,
            made: true,
            needed,
            roles: Role::ALL.map(|role| *job.limits_of(role)),
            services: services.map(|(n, s)| (n.clone(), s.limits)).collect(),
        })
    }

    /// Those of this daemon.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The group that a role's life begins in.
    pub fn of_role(&self, id: InstanceId, life: Incarnation) -> Option<LifeGroup> {
        let at = Role::ALL.iter().position(|role| *role == id.role)?;
        self.limited(role_life(id, life), &self.roles[at])
    }

    /// The same for a service's.
    pub fn of_service(&self, id: &ServiceId, life: Incarnation) -> Option<LifeGroup> {
        let limits = self.services.get(&id.name).copied().unwrap_or_default();
        self.limited(service_life(id, life), &limits)
    }

    fn limited(&self, of: LifeGroup, limits: &Limits) -> Option<LifeGroup> {
        self.made.then(|| LifeGroup {
            needed: self.needed || !limits.is_empty(),
            limits: GroupLimits {
                memory_bytes: limits.memory.map(|memory| memory.bytes()),
                cpus: limits.cpus,
                pids: limits.pids,
            },
            ..of
        })
    }
}

/// The group of a role's life, as it is found again.
pub fn role_life(id: InstanceId, life: Incarnation) -> LifeGroup {
    LifeGroup {
        name: format!("{id}.{}", life.0),
        table: Job::limits_key(id.role).to_owned(),
        ..LifeGroup::default()
    }
}

/// The group of a service's life, as it is found again.
pub fn service_life(id: &ServiceId, life: Incarnation) -> LifeGroup {
    LifeGroup {
        name: format!("service-{}-{}.{}", id.name, id.index, life.0),
        table: format!("service.{}.limits", id.name),
        ..LifeGroup::default()
    }
}

fn controller(resource: Resource) -> Controller {
    match resource {
        Resource::Memory => Controller::Memory,
        Resource::Cpus => Controller::Cpu,
        Resource::Pids => Controller::Pids,
    }
}

/// Whether it is this limit that cannot be held to.
fn concerns(of: &Limited, error: &GroupsError) -> bool {
    match error {
        GroupsError::NoneHere { .. } => true,
        GroupsError::NoController {
            controller: missing,
            ..
        } => controller(of.resource) == *missing,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    fn prepared(more: &str) -> Result<Grouping, String> {
        let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{more}");
        let job = Job::parse(&text, Path::new("job.toml")).unwrap();
        // Where nothing is mounted.
        let groups = Groups::of(&Mounts::default(), "robust-x");
        let limited = job.limited(&job.nodes[0].pools, true);
        Grouping::prepare(groups, &job, &limited).map_err(|e| e.to_string())
    }

    #[test]
    fn without_control_groups_a_job_with_limits_is_refused_and_told_what_to_do() {
        let none = prepared("").unwrap();
        let id: InstanceId = "rollout-1".parse().unwrap();
        assert_eq!(none.of_role(id, Incarnation(3)), None);
        let refused = prepared("[rollout.limits]\nmemory='1GiB'\n").unwrap_err();
        assert_eq!(
            refused,
            "rollout.limits.memory cannot be held to: no control group can be made here (none are mounted, \
             or not those that robustd is in); start robustd as a service of systemd's with `Delegate=yes` \
             and `DelegateSubgroup=robustd`, or as root where /sys/fs/cgroup can be written to (in a container \
             it is often read-only), or leave the limit out"
        );
        let refused = prepared("[job]\ncontrol_groups='require'\n").unwrap_err();
        assert!(
            refused.starts_with("[job] control_groups is \"require\": no control"),
            "{refused}"
        );
        assert!(prepared("[job]\ncontrol_groups='off'\n").is_ok());
    }

    #[test]
    fn a_life_has_a_name_and_the_table_that_limits_it() {
        let of = role_life("hybrid-2".parse().unwrap(), Incarnation(17));
        assert_eq!(
            (of.name.as_str(), of.table.as_str()),
            ("hybrid-2.17", "rollout.limits")
        );
        let id = ServiceId {
            name: "judge".to_owned(),
            index: 1,
        };
        let of = service_life(&id, Incarnation(3));
        let (name, table) = (of.name.as_str(), of.table.as_str());
        assert_eq!((name, table), ("service-judge-1.3", "service.judge.limits"));
    }
}
