//! The controller in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod armed;
mod causes;
mod control;
mod detection;
mod door;
mod exits;
mod faults;
mod given_back;
mod hangs;
mod health;
mod lemons;
mod modes;
mod nodes;
mod own_loop;
mod paused;
mod poison;
mod provenance;
mod pulls;
mod quality;
mod random;
mod routes;
mod scale;
mod script;
mod silence;
mod staleness;
mod start_up;
mod table;

use super::*;
use crate::ids::*;
use crate::sim::world::{Span, Start, Timing, World, id, ms};
use std::time::Duration;

/// Of every request of an operator.
const TICKET: Ticket = 3;

fn small(mode: Mode, steps: u64) -> CoreConfig {
    CoreConfig {
        mode,
        steps,
        ahead: if mode == Mode::Sync { 0 } else { 1 },
        switch_at: if mode == Mode::Sync { 1.0 } else { 0.5 },
        prompts: 2,
        responses: 4,
        agent_concurrency: 8,
        rules: quick_rules(),
        evidence_timeout: Duration::from_secs(1),
        ..CoreConfig::default()
    }
}

/// Windows short enough for tests, wide enough for the world's samples (every 250 ms).
fn quick_rules() -> RuleSet {
    RuleSet::default().with(|r| {
        r.trainer_idle.window.set(ms(3000));
        r.rollout_silent.window.set(ms(2000));
        r.rollout_silent.probe_timeout.set(ms(1000));
        r.agent_silent.window.set(ms(4000));
        r.attach_overdue.window.set(ms(10_000));
    })
}

impl Core {
    /// Requests the engine in a place is given.
    fn routes_of(&self, id: InstanceId) -> u32 {
        let engine = self.s.roster.instances().get(id).map(|i| i.incarnation());
        engine.map_or(0, |engine| self.s.work.rollouts.running(engine))
    }
}

/// What a test demands of the world.
trait Demands {
    /// Runs until the condition holds, within so much virtual time.
    fn until(&mut self, what: &str, limit: Duration, cond: impl Fn(&World) -> bool);
    fn run_to_end(&mut self);
    fn incidents(&self) -> Vec<Incident>;
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
        assert_eq!((view.state.as_str(), view.step), ("completed", Step(6)));
        assert!(view.ettr.total > 0.3 && view.ettr.goodput <= view.ettr.total);
    }
}

/// Design section 9: a database that is lost costs what came after the newest checkpoint, no more.
#[test]
fn a_job_of_which_a_checkpoint_is_left_goes_on_after_it_with_numbers_of_its_own() {
    const T: Time = Time(1_000);
    let config = small(Mode::Sync, 6);
    let state = State::at_checkpoint(&config, Step(4), Generation(3), Incarnation(9));
    let mut core = Core::restore(config.clone(), state);
    core.handle(T, Input::Start);
    let outputs: Vec<Output> = std::iter::from_fn(|| core.poll_output()).collect();
    let spawned = outputs.iter().filter_map(|o| match o {
        Output::Spawn {
            incarnation,
            generation,
            id,
            ..
        } => Some((*incarnation, *generation, id.role)),
        _ => None,
    });
    for (incarnation, generation, role) in spawned {
        assert!(incarnation > Incarnation(9), "{incarnation} may still run");
        let expected = if role == Role::Trainer { 4 } else { 0 };
        assert_eq!(
            generation,
            Generation(expected),
            "I-1: after the one that is gone"
        );
    }
    assert_eq!(core.view(T).step, Step(4));
    let version = core.view(T).version;
    assert_eq!(version, Some(WeightVersion(4)), "it does not go back (I-4)");
    assert_eq!(core.batch_prompts(4), None, "it is consumed (I-3)");
    assert_eq!(core.batch_prompts(5), Some(config.prompts));
}

#[test]
fn a_stopped_job_goes_on_after_its_last_committed_step_when_it_is_restored() {
    let config = small(Mode::Async, 6);
    let mut w = World::new(config.clone(), 3);
    w.until("step 2", Duration::from_secs(60), |w| w.committed() == 2);
    w.feed(Input::Stop);
    assert_eq!(w.core.state().outcome(), Some(&Outcome::Stopped));

    let issued = w.core.state().roster.next_incarnation();
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
    assert_eq!(
        spawned.len(),
        core.state().roster.instances().iter().count()
    );
    assert!(
        spawned.iter().all(|i| *i >= issued),
        "numbers are never used again"
    );
    assert!(core.state().committed() >= Step(2));
    assert_eq!(
        core.state().work.requests.table().counts().0,
        0,
        "nobody holds anything"
    );
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
        let loads = (0..3).map(|n| w.core.routes_of(id(Role::Rollout, n)));
        let loads: Vec<u32> = loads.collect();
        most.set(most.get().max(loads.iter().copied().max().unwrap_or(0)));
        loads.iter().all(|n| *n > 0)
    };
    w.until("all serve", Duration::from_secs(60), all_serve);
    assert_eq!(most.get(), 3, "one was full while others were not admitted");
    w.run_to_end();
    assert_eq!(w.committed(), 2);
}

/// No interval of the ledger ends with a job that is stopped in the instant of its last turn.
#[test]
fn the_end_of_a_job_is_on_record_before_anybody_acts_on_it() {
    let now = Time(1_000_000_000);
    let mut core = Core::new(small(Mode::Async, 6));
    core.handle(now, Input::Start);
    while core.poll_output().is_some() {}
    core.handle(now, Input::Stop);
    let outputs: Vec<Output> = std::iter::from_fn(|| core.poll_output()).collect();
    let at = |what: fn(&Output) -> bool| outputs.iter().position(what);
    let record = at(|o| matches!(o, Output::Record(_)));
    let end = at(|o| matches!(o, Output::Finish { .. }));
    assert!(record.is_some() && record < end, "{outputs:?}");
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

#[test]
fn requests_about_nobody_are_refused_with_a_reason() {
    let mut core = Core::new(small(Mode::Async, 1));
    let inject = |index| {
        let (fault, role) = (Fault::Kill, Role::Rollout);
        Input::Operator(
            TICKET,
            Request::Inject {
                fault,
                role,
                index: Some(index),
                incarnation: None,
                at: None,
            },
        )
    };
    let reply = |core: &mut Core| {
        let found = std::iter::from_fn(|| core.poll_output())
            .find_map(|o| match o {
                Output::Reply { result, .. } => Some(result),
                _ => None,
            })
            .unwrap();
        found.unwrap_err().to_string()
    };
    core.handle(Time(1), inject(0));
    assert_eq!(
        reply(&mut core),
        "the job is not started; nothing can be asked of it"
    );
    core.handle(Time(1), Input::Start);
    core.handle(Time(1), inject(9));
    assert_eq!(
        reply(&mut core),
        "there is no rollout 9; the job has 3 (0 to 2)"
    );
    core.handle(Time(1), inject(1));
    assert_eq!(
        reply(&mut core),
        "rollout-1 is not running (starting); try again when it is"
    );
}

#[test]
fn spawns_follow_the_record_of_their_numbers() {
    let mut core = Core::new(small(Mode::Async, 1));
    core.handle(Time(1), Input::Start);
    let mut issued = Vec::new();
    while let Some(output) = core.poll_output() {
        match output {
            Output::Record(Record::Issued { incarnation, .. }) => issued.push(incarnation),
            Output::Spawn { incarnation, .. } => assert!(issued.contains(&incarnation)),
            _ => {}
        }
    }
    assert_eq!(issued.len(), 7);
}
