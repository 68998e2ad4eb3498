//! What the processes of a job may use of their machines: whose table says it, and what it may say.
use super::error::Problem;
use super::validate::{bad, number, whole};
use super::{ControlGroups, Job, Limits};
use crate::ids::Role;
use std::collections::BTreeMap;
use std::fmt;

/// Below, no program of a role comes up, and every start of it would be another kill.
const LEAST_MEMORY: u64 = 16 << 20;
/// More than any machine has.
const MOST_MEMORY: u64 = 1 << 50;
/// The least that the kernel takes: a millisecond of each 100.
const LEAST_CPUS: f64 = 0.01;
const MOST_CPUS: f64 = 65_536.0;
/// A shim and a program have so many threads before they do anything.
const LEAST_PIDS: u64 = 16;
/// The most that a kernel can be told (`PID_MAX_LIMIT`).
const MOST_PIDS: u64 = 1 << 22;

/// What can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// `memory`.
    Memory,
    /// `cpus`.
    Cpus,
    /// `pids`.
    Pids,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Memory => "memory",
            Resource::Cpus => "cpus",
            Resource::Pids => "pids",
        })
    }
}

/// A key of the job file that limits something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The key, dotted.
    pub key: String,
    /// What it limits.
    pub resource: Resource,
}

impl Limits {
    /// What of it is limited.
    pub fn resources(&self) -> impl Iterator<Item = Resource> {
        let all = [
            (Resource::Memory, self.memory.is_some()),
            (Resource::Cpus, self.cpus.is_some()),
            (Resource::Pids, self.pids.is_some()),
        ];
        all.into_iter().filter(|(_, is)| *is).map(|(of, _)| of)
    }
}

impl Job {
    /// What a process of a role may use.
    pub fn limits_of(&self, role: Role) -> &Limits {
        match role {
            Role::Trainer => &self.trainer.limits,
            // An engine on a trainer's slot is started as any other engine is.
            Role::Rollout | Role::Hybrid => &self.rollout.limits,
            Role::Agent => &self.agent.limits,
        }
    }

    /// The table that says it.
    pub fn limits_key(role: Role) -> &'static str {
        match role {
            Role::Trainer => "trainer.limits",
            Role::Rollout | Role::Hybrid => "rollout.limits",
            Role::Agent => "agent.limits",
        }
    }

    /// The keys that limit something which may run on a node with these pools; services run on the leader's.
    pub fn limited(&self, pools: &BTreeMap<String, u32>, leads: bool) -> Vec<Limited> {
        let here = |role: &Role| {
            let slots = pools.get(self.pool(*role)).copied().unwrap_or(0);
            slots > 0 && self.count(*role) > 0
        };
        let roles = Role::ALL.into_iter().filter(here);
        let roles = roles.map(|role| (Self::limits_key(role).to_owned(), *self.limits_of(role)));
        let services = self.services.iter().filter(|_| leads);
        let services = services.map(|(name, s)| (format!("service.{name}.limits"), s.limits));
        let mut all: Vec<Limited> = Vec::new();
        for (table, limits) in roles.chain(services) {
            for resource in limits.resources() {
                let key = format!("{table}.{resource}");
                // Engines of both kinds have one table.
                if all.iter().all(|of| of.key != key) {
                    all.push(Limited { key, resource });
                }
            }
        }
        all
    }

    /// Refuses limits that nothing can run in, and those that nobody would hold to.
    pub(super) fn check_limits(&self) -> Result<(), Problem> {
        let roles = [Role::Trainer, Role::Rollout, Role::Agent];
        let roles = roles.map(|role| (Self::limits_key(role).to_owned(), self.limits_of(role)));
        let services = self.services.iter();
        let services = services.map(|(name, s)| (format!("service.{name}.limits"), &s.limits));
        for (table, limits) in roles.into_iter().chain(services) {
            limits.check(&table)?;
            if !limits.is_empty() && self.job.control_groups == ControlGroups::Off {
                let must = format!(
                    "`{table}` can only be held to in a control group; leave this out, or remove the limits"
                );
                return Err(bad("job.control_groups", "\"off\"", must));
            }
        }
        Ok(())
    }
}

impl Limits {
    fn check(&self, table: &str) -> Result<(), Problem> {
        if let Some(memory) = self.memory
            && !(LEAST_MEMORY..=MOST_MEMORY).contains(&memory.bytes())
        {
            let key = format!("{table}.memory");
            let value = format!("\"{memory}\"");
            return Err(bad(&key, value, "it must be \"16MiB\" to \"1024TiB\""));
        }
        if let Some(cpus) = self.cpus {
            number(&format!("{table}.cpus"), cpus, LEAST_CPUS, MOST_CPUS)?;
        }
        let pids = self.pids.unwrap_or(LEAST_PIDS);
        whole(&format!("{table}.pids"), pids, LEAST_PIDS, MOST_PIDS)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    fn parse(more: &str) -> Result<Job, String> {
        let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{more}");
        Job::parse(&text, Path::new("job.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn each_role_and_service_has_limits_of_its_own_and_engines_of_both_kinds_the_same() {
        let job = parse(
            "[trainer.limits]\nmemory='64GiB'\n[rollout.limits]\ncpus=8\npids=4096\n[agent]\n\
             limits={ memory='2GiB', cpus=0.5 }\n[service.judge]\nargv=['x']\nlimits={ pids=100 }\n",
        )
        .unwrap();
        assert_eq!(
            job.limits_of(Role::Trainer).memory.unwrap().bytes(),
            64 << 30
        );
        assert_eq!(job.limits_of(Role::Hybrid).cpus, Some(8.0));
        assert_eq!(job.limits_of(Role::Rollout).pids, Some(4096));
        let again: Job = serde_json::from_str(&serde_json::to_string(&job).unwrap()).unwrap();
        assert_eq!(again, job);
        let keys = |pools: &[&str], leads| {
            let pools = pools.iter().map(|pool| ((*pool).to_owned(), 1)).collect();
            let limited = job.limited(&pools, leads).into_iter();
            limited.map(|of| of.key).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            keys(&["train", "rollout", "agent"], true),
            "trainer.limits.memory rollout.limits.cpus rollout.limits.pids agent.limits.memory \
             agent.limits.cpus service.judge.limits.pids"
        );
        assert_eq!(keys(&["train"], false), "trainer.limits.memory");
        assert_eq!(keys(&[], true), "service.judge.limits.pids");
    }

    #[test]
    fn a_job_without_limits_is_written_as_before() {
        let text = serde_json::to_string(&parse("").unwrap()).unwrap();
        assert!(
            !text.contains("limits") && !text.contains("control_groups"),
            "{text}"
        );
    }

    #[test]
    fn limits_that_nothing_can_run_in_are_refused_where_they_stand() {
        for (more, words) in [
            (
                "[rollout.limits]\nmemory='64GB'\n",
                "job.toml:5:8: `rollout.limits.memory`: \"64GB\" is no size; write a whole number and \
                 its unit, such as \"512MiB\" or \"64GiB\"",
            ),
            (
                "[rollout.limits]\nmemory=64\n",
                "job.toml:5:8: `rollout.limits.memory` has the wrong type (integer `64`); write a size \
                 with its unit in quotes, such as \"64GiB\"",
            ),
            (
                "[agent.limits]\nmemory='1MiB'\n",
                "job.toml:5:1: `agent.limits.memory` is \"1MiB\"; it must be \"16MiB\" to \"1024TiB\"",
            ),
            (
                "[trainer.limits]\ncpus=0\n",
                "job.toml:5:1: `trainer.limits.cpus` is 0; it must be 0.01 to 65536",
            ),
            (
                "[service.judge]\nargv=['x']\n[service.judge.limits]\npids=1\n",
                "job.toml:7:1: `service.judge.limits.pids` is 1; it must be 16 to 4194304",
            ),
            (
                "[trainer.limits]\ncpu=1\n",
                "job.toml:5:1: unknown key `trainer.limits.cpu`; did you mean `cpus`?",
            ),
            (
                "[job]\ncontrol_groups='off'\n[rollout.limits]\npids=99\n",
                "job.toml:5:1: `job.control_groups` is \"off\"; `rollout.limits` can only be held to in \
                 a control group; leave this out, or remove the limits",
            ),
        ] {
            assert_eq!(parse(more).unwrap_err(), words);
        }
    }
}
