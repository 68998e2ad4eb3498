//! Incidents and recoveries alone: there is no controller, and nobody runs.
use super::*;
use crate::core::detect::Verdict;
use crate::core::detect::exit::RULE;
use crate::core::effects::{Cx, Effects};
use crate::core::recover::restart::{Action, Plan};
use crate::ids::{Incarnation, InstanceId, Role, Step};
use crate::time::Time;
use std::time::Duration;

/// What failed, and what was done about it.
#[derive(Default)]
struct Alone {
    recover: Recover,
    config: CoreConfig,
    out: Effects,
}

fn rollout(index: u32) -> InstanceId {
    let role = Role::Rollout;
    InstanceId { role, index }
}

impl Alone {
    fn fails(&mut self, who: InstanceId, action: Action) -> IncidentId {
        let verdict = Verdict::new(who, &RULE, "killed by SIGKILL");
        let plan = Plan {
            action,
            who,
            committed: Step(1),
            is_silent: false,
            wait: Duration::ZERO,
            why: String::new(),
            moves: Vec::new(),
        };
        let opened = Opened {
            verdict: &verdict,
            plan: &plan,
            cause: None,
            innocent: false,
            incarnation: Incarnation(3),
            struck: Time(1),
            committed: Step(1),
        };
        let mut cx = Cx {
            now: Time(5),
            config: &self.config,
            out: &mut self.out,
        };
        self.recover.open(&mut cx, opened)
    }

    fn marks(&self, id: IncidentId) -> Vec<(&str, u64)> {
        let incident = self.recover.incidents().get(id);
        let marks = incident.into_iter().flat_map(|i| &i.marks);
        marks.map(|(name, at)| (name.as_str(), at.0)).collect()
    }
}

#[test]
fn a_stage_is_marked_once_in_every_recovery_that_covers_the_place() {
    let mut alone = Alone::default();
    let ours = alone.fails(rollout(0), Action::RestartInstance);
    let other = alone.fails(rollout(1), Action::RestartInstance);
    alone.recover.mark(Time(6), rollout(0), "attached");
    alone.recover.mark(Time(9), rollout(0), "attached");
    assert_eq!(alone.marks(ours), [("seen", 5), ("attached", 6)]);
    assert_eq!(alone.marks(other), [("seen", 5)]);
}

#[test]
fn a_task_restart_takes_every_recovery_under_way_with_it() {
    let mut alone = Alone::default();
    let first = alone.fails(rollout(0), Action::RestartInstance);
    let task = alone.fails(rollout(1), Action::RestartTask);
    alone.recover.mark(Time(8), rollout(2), "attached");
    for id in [first, task] {
        assert_eq!(alone.marks(id), [("seen", 5), ("attached", 8)], "{id}");
    }
}

#[test]
fn a_place_that_is_given_up_is_waited_for_by_nobody_and_the_journal_says_so() {
    let mut alone = Alone::default();
    let id = alone.fails(rollout(0), Action::RestartInstance);
    while alone.out.pop().is_some() {}
    let mut cx = Cx {
        now: Time(9),
        config: &alone.config,
        out: &mut alone.out,
    };
    alone.recover.give_up(&mut cx, rollout(0));
    assert!(alone.recover.recoveries().is_empty());
    assert_eq!(alone.out.len(), 1, "its record");
    let resumed = alone.recover.incidents().get(id).and_then(|i| i.resumed);
    assert_eq!(resumed, Some(Time(9)));
}

#[test]
fn a_fault_that_ends_the_job_is_recovered_by_nobody() {
    let mut alone = Alone::default();
    let id = alone.fails(rollout(0), Action::FailJob);
    assert!(alone.recover.recoveries().get(id).is_none());
    assert!(alone.recover.incidents().get(id).is_some());
}

#[test]
fn task_restarts_are_counted_until_the_gang_does_useful_work() {
    let mut alone = Alone::default();
    alone.recover.count_task_restart(&alone.config);
    alone.recover.count_task_restart(&alone.config);
    assert_eq!(alone.recover.task_restarts(), 2);
    alone.recover.gang_succeeded();
    assert_eq!(alone.recover.task_restarts(), 0);
}
