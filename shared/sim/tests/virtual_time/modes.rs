//! Sync, semi-sync and async, hybrid engines, and the baseline policy.
use super::*;
use robust_shared::phase::Phase;

pub(super) fn hybrid(mode: Mode, steps: u64) -> CoreConfig {
    CoreConfig {
        hybrids: 2,
        prompts: 4,
        responses: 2,
        agent_concurrency: 2,
        ..small(mode, steps)
    }
}

const H0: InstanceId = InstanceId {
    role: Role::Hybrid,
    index: 0,
};

/// Responses take so differently long that a batch comes in bit by bit.
pub(super) fn long_tail() -> Timing {
    Timing {
        turn: Span {
            least: ms(50),
            spread: ms(1500),
            ..Timing::default().turn
        },
        ..Timing::default()
    }
}

fn world(mode: Mode, steps: u64, seed: u64) -> World {
    World::journaled(hybrid(mode, steps), long_tail(), seed)
}

fn context(w: &World) -> Context {
    w.core.inspect().context()
}

fn reach(w: &mut World, wanted: Context) {
    let what = format!("context {}", wanted.word());
    let after = w.committed();
    w.until(&what, Duration::from_secs(120), |w| {
        context(w) == wanted && w.committed() >= after.max(1)
    });
}

fn lines<'w>(w: &'w World, part: &str) -> Vec<&'w String> {
    match &w.journal {
        robust_sim::world::Journal::Lines(lines) => {
            lines.iter().filter(|l| l.contains(part)).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn semi_sync_switches_twice_a_step_and_prepares_while_the_rest_is_generated() {
    let mut w = world(Mode::SemiSync, 6, 1);
    w.run_to_end();
    assert_eq!(w.committed(), 6);
    assert!(w.incidents().is_empty());
    let to_training = lines(&w, "went over to training").len();
    let to_rolling = lines(&w, "went over to rolling").len();
    assert!((3..=6).contains(&to_training), "{to_training}");
    assert!(to_rolling.abs_diff(to_training) <= 1, "{to_rolling}");
    assert!(
        lines(&w, "> Prepare").len() >= 3,
        "old logprobs come ahead of the step"
    );
    let engines = w.routed_at.iter().filter(|(_, id)| id.role == Role::Hybrid);
    assert!(engines.count() > 10, "the trainer's slots generate too");
}

#[test]
fn sync_with_hybrids_switches_when_the_whole_batch_is_finished() {
    let mut w = world(Mode::Sync, 4, 2);
    while w.outcome.is_none() {
        w.step();
        assert_eq!(w.violation(), None);
        if context(&w) == Context::ToTraining {
            let next = Step(w.committed() + 1);
            let all = next.0 > 4 || w.core.inspect().is_generated(next);
            assert!(all, "the slots are taken while engines have work");
        }
    }
    assert_eq!(w.committed(), 4);
    assert!(lines(&w, "> Prepare").is_empty());
}

#[test]
fn async_and_semi_sync_without_hybrids_never_switch() {
    for mode in [Mode::Async, Mode::SemiSync] {
        let config = CoreConfig {
            hybrids: 0,
            ..hybrid(mode, 4)
        };
        let mut w = World::journaled(config, long_tail(), 3);
        w.run_to_end();
        assert!(lines(&w, "slots went over").is_empty());
        assert_eq!(lines(&w, "> Prepare").is_empty(), mode == Mode::Async);
        assert_eq!(w.core.view(w.now).context, None);
    }
}

#[test]
fn the_trainer_may_die_in_each_context_and_only_the_gang_restarts() {
    for wanted in [
        Context::Rolling,
        Context::ToTraining,
        Context::Training,
        Context::ToRolling,
    ] {
        let mut w = world(Mode::SemiSync, 6, 4);
        w.timing.switch = Span::always(ms(200));
        reach(&mut w, wanted);
        let engine = w.life(H0);
        w.kill(T0);
        w.run_to_end();
        assert_eq!(w.committed(), 6, "{wanted:?}");
        let incidents = w.incidents();
        assert_eq!(incidents.len(), 1, "{wanted:?}: {incidents:#?}");
        assert!(incidents[0].plan.contains("trainer gang"), "{wanted:?}");
        assert_eq!(w.life(H0), engine, "{wanted:?}: the engines live on");
    }
}

#[test]
fn an_engine_may_die_in_each_context_and_joins_again() {
    for wanted in [
        Context::Rolling,
        Context::ToTraining,
        Context::Training,
        Context::ToRolling,
    ] {
        let mut w = world(Mode::SemiSync, 8, 5);
        w.timing.switch = Span::always(ms(200));
        reach(&mut w, wanted);
        let (before, trainer) = (w.life(H0), w.life(T0));
        w.kill(H0);
        let again = |w: &World| {
            let i = w.instance(H0);
            let generates = w.core.inspect().rolls(H0) && i.phase == Phase::Generating;
            i.incarnation != before && generates
        };
        w.until(
            "the engine generates again",
            Duration::from_secs(120),
            again,
        );
        assert_eq!(w.life(T0), trainer, "{wanted:?}: the trainer lives on");
        w.run_to_end();
        let incidents = w.incidents();
        assert_eq!(incidents.len(), 1, "{wanted:?}: {incidents:#?}");
        assert!(
            incidents[0].plan.starts_with("restart hybrid-0 only"),
            "{}",
            incidents[0].plan
        );
    }
}

#[test]
fn a_daemon_may_die_in_each_context_and_the_engines_are_told_again() {
    for wanted in [
        Context::Rolling,
        Context::ToTraining,
        Context::Training,
        Context::ToRolling,
    ] {
        let mut w = world(Mode::SemiSync, 6, 6);
        w.timing.switch = Span::always(ms(200));
        reach(&mut w, wanted);
        w.crash_daemon();
        w.run_to_end();
        assert_eq!((w.committed(), w.incidents().len()), (6, 0), "{wanted:?}");
    }
}

#[test]
fn an_engine_that_never_answers_its_pause_is_killed_at_the_rules_deadline() {
    let mut w = world(Mode::SemiSync, 6, 7);
    w.timing.switch = Span::always(ms(200));
    reach(&mut w, Context::ToTraining);
    w.proc(H0).unwrap().wedged = true;
    w.until("a verdict", Duration::from_secs(120), |w| {
        !w.incidents().is_empty()
    });
    let first = w.incidents()[0].clone();
    assert_eq!(first.rule, "context switch");
    assert!(
        first.reason.contains("no answer for 10.0 s"),
        "{}",
        first.reason
    );
}

#[test]
fn late_and_repeated_answers_to_a_switch_change_nothing() {
    let mut w = world(Mode::SemiSync, 6, 8);
    reach(&mut w, Context::Training);
    let old = w.life(H0);
    let turn = |w: &World| {
        let seen = w.core.inspect();
        (seen.rolls(H0), seen.is_paused(H0))
    };
    let say = |w: &mut World, incarnation, paused| {
        let ok = true;
        w.feed(Input::Role(incarnation, RoleEvent::Switched { paused, ok }));
    };
    assert_eq!(turn(&w), (false, true));
    say(&mut w, old, false);
    say(&mut w, old, true);
    assert_eq!(turn(&w), (false, true), "nobody told it to go on");
    w.kill(H0);
    w.until("a new life", Duration::from_secs(30), |w| w.life(H0) != old);
    let before = turn(&w);
    say(&mut w, old, true);
    assert_eq!(turn(&w), before, "I-1: an older life has no word");
    w.run_to_end();
}

#[test]
fn without_a_living_rollout_the_engines_finish_the_batch_themselves() {
    let mut w = world(Mode::SemiSync, 6, 9);
    reach(&mut w, Context::Training);
    for index in 0..w.config.rollouts {
        w.doom(id(Role::Rollout, index), vec![Start::Mute; 3]);
        w.kill(id(Role::Rollout, index));
    }
    w.run_to_end();
    assert_eq!(w.committed(), 6);
}

#[test]
fn policy_task_throws_unfinished_batches_away_and_generates_them_again() {
    for mode in [Mode::Sync, Mode::SemiSync, Mode::Async] {
        let hybrids = if mode == Mode::Async { 0 } else { 2 };
        let config = CoreConfig {
            policy: Policy::Task,
            hybrids,
            ..hybrid(mode, 4)
        };
        let mut w = World::journaled(config, long_tail(), 10);
        w.until("finished work", Duration::from_secs(120), |w| {
            w.committed() >= 1 && w.stored.len() >= 3
        });
        let stored = w.stored.clone();
        w.kill(id(Role::Rollout, 0));
        w.until("the fault", Duration::from_secs(10), |w| {
            !w.incidents().is_empty()
        });
        assert!(w.incidents()[0].plan.starts_with("restart the whole task"));
        assert!(
            w.stored.is_disjoint(&stored),
            "{mode:?}: stored work survived"
        );
        let view = w.core.view(w.now);
        assert!(view.discarded >= stored.len() as u64, "{mode:?}");
        assert_eq!((view.in_flight, view.finished), (0, 0));
        w.run_to_end();
        assert_eq!(w.committed(), 4);
        let ettr = w.core.view(w.now).ettr;
        assert!(ettr.goodput < ettr.total, "{mode:?}: {ettr:?}");
    }
}

#[test]
fn the_same_fault_costs_policy_role_no_generated_work() {
    let mut w = world(Mode::SemiSync, 4, 10);
    w.until("finished work", Duration::from_secs(120), |w| {
        w.committed() >= 1 && w.stored.len() >= 3
    });
    w.kill(id(Role::Rollout, 0));
    w.run_to_end();
    assert_eq!(w.core.view(w.now).discarded, 0);
    assert!(lines(&w, "Discarded").is_empty());
}
