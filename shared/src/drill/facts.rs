//! What a run left to be judged, as expectations see it.
use std::collections::BTreeMap;
use std::time::Duration;

/// All that was measured of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// By name: `ettr_role`, `time_task`, `weights_identical`.
    pub figures: BTreeMap<String, f64>,
    /// Each run, in order.
    pub runs: Vec<(String, Facts)>,
}

/// What one run left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Whether faults were planned for it.
    pub struck: bool,
    /// Its incidents, in order.
    pub incidents: Vec<Recovery>,
    /// Kind and text of its events, in order.
    pub events: Vec<(String, String)>,
    /// Mean ETTR.
    pub ettr: f64,
    /// Mean goodput.
    pub goodput: f64,
    /// How it ended.
    pub end: End,
    /// Steps committed after the last fault struck, or in all where none did.
    pub steps_after: u64,
    /// What is not there that should be, or is there twice: a sentence each.
    pub lost: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum End {
    /// Every step was done.
    Completed,
    /// It goes on, under its own daemon.
    #[default]
    GoesOn,
    /// The job failed, for this reason.
    Failed(String),
}

/// One incident.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovery {
    /// The rule that found it.
    pub rule: String,
    /// What was decided, a sentence.
    pub plan: String,
    /// Fault to verdict.
    pub detect: Duration,
    /// Fault to useful work.
    pub total: Duration,
    /// Whether useful work goes on.
    pub recovered: bool,
}

impl Recovery {
    /// Whether it took the whole task with it.
    pub fn restarted_task(&self) -> bool {
        self.plan.starts_with(TASK_RESTART)
    }

    /// Whether it restarted less than the whole task.
    pub fn restarted_role(&self) -> bool {
        self.plan.starts_with(ROLE_RESTART) && !self.restarted_task()
    }
}

/// How the plan of every restart begins.
const ROLE_RESTART: &str = "restart ";
/// How that of a task restart begins.
const TASK_RESTART: &str = "restart the whole task";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Action, Plan};
    use crate::ids::{InstanceId, Role, Step};

    #[test]
    fn a_plans_sentence_tells_a_role_restart_from_a_task_restart() {
        let of = |action, role| {
            let plan = Plan {
                action,
                who: InstanceId { role, index: 0 },
                committed: Step(3),
                is_silent: false,
                wait: Duration::ZERO,
                why: "the policy is `task`".to_owned(),
                moves: Vec::new(),
            };
            let recovery = Recovery {
                rule: "exit".to_owned(),
                plan: plan.to_string(),
                detect: Duration::ZERO,
                total: Duration::ZERO,
                recovered: true,
            };
            (recovery.restarted_role(), recovery.restarted_task())
        };
        for role in [Role::Rollout, Role::Agent] {
            assert_eq!(of(Action::RestartInstance, role), (true, false));
        }
        assert_eq!(of(Action::RestartGang, Role::Trainer), (true, false));
        assert_eq!(of(Action::RestartTask, Role::Trainer), (false, true));
        assert_eq!(of(Action::FailJob, Role::Trainer), (false, false));
    }
}
