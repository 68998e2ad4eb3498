//! Which phases the instances of a job really come into: a fault that waits for another waits for ever.
//!
//! A trainer of the user's may enter any phase of trainers, as its program says. The built-in one has its
//! advantages from the controller, which computes them with the batch; it publishes in the layout in which
//! it computes, so it never reshards; and whose turn a slot is the controller decides while the rank waits.
use super::Job;
use crate::fault::{At, AtError};
use crate::ids::Role;
use crate::phase::Phase;
use std::collections::BTreeMap;

/// The phases that each role comes into; of a role of which nothing is said, those of the design.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moments(BTreeMap<Role, Vec<Phase>>);

impl Moments {
    /// Those of a job.
    pub fn of(job: &Job) -> Self {
        let comes = |role: Role| {
            let phases = At::phases(role).iter().copied();
            (role, phases.filter(|p| job.enters(role, *p)).collect())
        };
        Self(Role::ALL.into_iter().map(comes).collect())
    }

    /// Whether an instance of this role can come there in this job.
    pub fn check(&self, role: Role, at: At) -> Result<(), AtError> {
        at.check(role)?;
        let phase = at.phase;
        let there = self.0.get(&role).filter(|there| !there.contains(&phase));
        there.map_or(Ok(()), |there| {
            let because = match phase {
                Phase::RefLogprob => ", as `train.kl_coef` is 0",
                _ => "",
            };
            let names: Vec<&str> = there.iter().map(|p| p.name()).collect();
            Err(AtError::NotOfThisJob {
                role,
                phase,
                because,
                there: names.join(", "),
            })
        })
    }
}

impl Job {
    /// Whether instances of a role come into a phase of that role.
    fn enters(&self, role: Role, phase: Phase) -> bool {
        match (role, phase) {
            (Role::Trainer, _) if self.trainer.command.is_some() => true,
            (Role::Trainer, Phase::ContextSwitch | Phase::Reshard | Phase::Advantage) => false,
            (Role::Trainer, Phase::RefLogprob) => self.train.kl_coef != 0.0,
            // Between two turns an engine has no request of the conversation.
            (Role::Hybrid | Role::Rollout, Phase::AwaitingTool) => false,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::job::tests::minimal;

    fn check(job: &Job, role: Role, at: &str) -> Result<(), String> {
        let at = at.parse().unwrap();
        Moments::of(job)
            .check(role, at)
            .map_err(|why| why.to_string())
    }

    #[test]
    fn a_moment_that_does_not_come_in_this_job_is_refused_with_those_that_do() {
        let job = minimal();
        check(&job, Role::Trainer, "update").unwrap();
        check(&job, Role::Agent, "awaiting_tool").unwrap();
        for phase in ["advantage", "reshard", "context_switch"] {
            let why = format!(
                "no trainer of this job comes into phase `{phase}`; it comes into init, \
                 load_checkpoint, await_batch, old_logprob, update, snapshot, publish"
            );
            assert_eq!(check(&job, Role::Trainer, phase), Err(why));
        }
        let why = check(&job, Role::Rollout, "awaiting_tool").unwrap_err();
        assert!(
            why.ends_with("init, pull_weights, idle, generating, paused"),
            "{why}"
        );
    }

    #[test]
    fn the_reference_policy_is_asked_only_where_it_counts() {
        let mut job = minimal();
        let why = check(&job, Role::Trainer, "ref_logprob").unwrap_err();
        assert!(
            why.starts_with(
                "no trainer of this job comes into phase `ref_logprob`, as `train.kl_coef` is 0; "
            ),
            "{why}"
        );
        job.train.kl_coef = 0.1;
        check(&job, Role::Trainer, "ref_logprob").unwrap();
    }

    #[test]
    fn a_trainer_of_the_users_enters_what_its_program_says() {
        let text = "[data]\nprompts = \"p.jsonl\"\ntokenizer = \"t.json\"\n[trainer.command]\nargv = [\"x\"]\n";
        let job = Job::parse(text, std::path::Path::new("job.toml")).unwrap();
        check(&job, Role::Trainer, "advantage").unwrap();
        check(&job, Role::Trainer, "ref_logprob").unwrap();
    }
}
