//! The controller in virtual time: whole jobs, played in the world of the fault search, and what a test does to them.
//! What only the controller itself is told is in its own tests (`shared/src/core/tests`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod armed;
mod control;
mod detection;
mod door;
mod faults;
mod hangs;
mod health;
mod lemons;
mod modes;
mod nodes;
mod own_loop;
mod poison;
mod quality;
mod random;
mod routes;
mod scale;
mod silence;
mod staleness;
mod start_up;

use robust_shared::core::inspect::{quick_rules, small};
use robust_shared::core::*;
use robust_shared::ids::*;
use robust_shared::time::Time;
use robust_shared::wire::{InstanceState, JobState};
use robust_sim::world::{Span, Start, Timing, World, id, ms};
use std::time::Duration;

/// Of every request of an operator.
const TICKET: Ticket = 3;

/// What a test demands of the world.
trait Demands {
    /// Runs until the condition holds, within so much virtual time.
    fn until(&mut self, what: &str, limit: Duration, cond: impl Fn(&World) -> bool);
    fn run_to_end(&mut self);
    fn incidents(&self) -> Vec<Incident>;
    /// A place as it is now.
    fn instance(&self, who: InstanceId) -> InstanceView;
}

impl Demands for World {
    fn until(&mut self, what: &str, limit: Duration, cond: impl Fn(&World) -> bool) {
        let held = self.run_until(limit, cond);
        assert_eq!(self.violation(), None);
        let view = self.core.view(self.now);
        assert!(held, "{what}: not within {limit:?}; {view:#?}");
    }

    fn run_to_end(&mut self) {
        let limit = Duration::from_secs(1200);
        self.until("the job ends", limit, |w| w.outcome.is_some());
    }

    fn incidents(&self) -> Vec<Incident> {
        self.core.view(self.now).incidents
    }

    fn instance(&self, who: InstanceId) -> InstanceView {
        let mut all = self.core.view(self.now).instances.into_iter();
        all.find(|i| i.id == who).unwrap()
    }
}

const T0: InstanceId = InstanceId {
    role: Role::Trainer,
    index: 0,
};

#[test]
fn a_job_without_faults_commits_every_step_once() {
    for mode in [Mode::Async, Mode::Sync] {
        let mut w = World::new(small(mode, 6), 1);
        w.run_to_end();
        assert_eq!(w.outcome, Some(Outcome::Completed));
        assert_eq!(w.committed(), 6);
        assert!(w.incidents().is_empty());
        let view = w.core.view(w.now);
        assert_eq!((view.state, view.step), (JobState::Completed, Step(6)));
        assert!(view.ettr.total > 0.3 && view.ettr.goodput <= view.ettr.total);
    }
}

#[test]
fn a_stopped_job_goes_on_after_its_last_committed_step_when_it_is_restored() {
    let config = small(Mode::Async, 6);
    let mut w = World::new(config.clone(), 3);
    w.until("step 2", Duration::from_secs(60), |w| w.committed() == 2);
    w.feed(Input::Stop);
    assert_eq!(w.core.state().outcome(), Some(&Outcome::Stopped));

    let issued = w.core.inspect().next_incarnation();
    let mut core = Core::restore(config, w.core.state().clone());
    core.handle(w.now + ms(1), Input::Start);
    let outputs: Vec<Output> = std::iter::from_fn(|| core.poll_output()).collect();
    let spawned: Vec<Incarnation> = outputs
        .iter()
        .filter_map(|o| match o {
            Output::Spawn { incarnation, .. } => Some(*incarnation),
            _ => None,
        })
        .collect();
    assert_eq!(spawned.len(), core.state().instances());
    assert!(
        spawned.iter().all(|i| *i >= issued),
        "numbers are never used again"
    );
    assert!(core.state().committed() >= Step(2));
    assert_eq!(core.leases(), [], "nobody holds anything");
}

#[test]
fn the_same_seed_gives_the_same_journal() {
    let run = || {
        let mut w = World::journaled(small(Mode::Async, 4), Timing::default(), 7);
        w.timing.duplicate_per_mille = 200;
        w.until("step 1", Duration::from_secs(60), |w| w.committed() > 0);
        w.kill(T0);
        w.run_to_end();
        w.journal.lines().to_vec()
    };
    assert_eq!(run(), run());
}

#[test]
fn in_async_mode_the_next_batch_is_generated_while_this_one_is_trained_on() {
    let mut w = World::new(small(Mode::Async, 6), 1);
    w.until(
        "a finished trajectory of the batch after",
        Duration::from_secs(60),
        |w| {
            let next = w.committed() + 2;
            w.committed() >= 2 && w.stored.iter().any(|t| t.batch == next)
        },
    );
}

#[test]
fn in_sync_mode_no_trajectory_is_handed_out_before_its_weights_are_published() {
    let mut w = World::new(small(Mode::Sync, 3), 1);
    while w.outcome.is_none() {
        w.step();
        let newest = w.core.view(w.now).step.0 + 1;
        assert!(w.stored.iter().all(|t| t.batch <= newest));
    }
}

#[test]
fn the_first_engine_to_verify_a_version_does_not_get_every_request_that_waits() {
    let config = CoreConfig {
        engine_requests: 3,
        ..small(Mode::Sync, 2)
    };
    let mut w = World::new(config, 3);
    let most = std::cell::Cell::new(0);
    let all_serve = |w: &World| {
        let engines = w.core.inspect().lives(Role::Rollout).into_iter();
        let loads: Vec<u32> = engines
            .map(|life| w.core.inspect().requests_at(life))
            .collect();
        most.set(most.get().max(loads.iter().copied().max().unwrap_or(0)));
        loads.iter().all(|n| *n > 0)
    };
    w.until("all serve", Duration::from_secs(60), all_serve);
    assert_eq!(most.get(), 3, "one was full while others were not admitted");
    w.run_to_end();
    assert_eq!(w.committed(), 2);
}

#[test]
fn what_failed_before_a_stop_counts_no_more_when_the_job_goes_on() {
    let config = CoreConfig {
        policy: Policy::Task,
        max_task_restarts: 1,
        ..small(Mode::Async, 6)
    };
    let mut w = World::new(config, 1);
    w.run_for(ms(500));
    w.kill(T0);
    w.until("the task restarts", Duration::from_secs(10), |w| {
        w.incidents().len() == 1
    });
    w.stop_and_resume(ms(500));
    w.run_for(ms(1000));
    assert_eq!(w.committed(), 0, "nothing was proved in between");
    w.kill(T0);
    w.run_to_end();
    assert_eq!(w.outcome, Some(Outcome::Completed), "{:?}", w.incidents());
}

#[test]
fn an_operator_can_end_the_job_and_nothing_is_injected_after() {
    let mut w = World::new(small(Mode::Async, 6), 1);
    w.run_for(ms(500));
    w.feed(Input::Stop);
    assert_eq!(w.outcome, Some(Outcome::Stopped));
    w.core.handle(
        w.now,
        Input::Operator(
            TICKET,
            Request::Inject {
                fault: Fault::Kill,
                role: Role::Agent,
                index: None,
                incarnation: None,
                at: None,
            },
        ),
    );
    let refusal = Refusal::JobOver {
        state: "stopped".to_owned(),
    };
    let reply = Output::Reply {
        ticket: TICKET,
        result: Err(refusal),
    };
    assert_eq!(w.core.poll_output(), Some(reply));
}
