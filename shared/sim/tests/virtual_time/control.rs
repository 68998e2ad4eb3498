//! Pause, resume and restart on request.
use super::scale::ask;
use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Within this a request is on record and answered.
const ANSWERED: Duration = Duration::from_millis(50);

fn world(mode: Mode, steps: u64) -> World {
    let mut w = World::new(small(mode, steps), 3);
    w.check_core = true;
    w.until("step 2", MINUTE, |w| w.committed() == 2);
    w
}

fn pause(w: &mut World) -> Result<Reply, String> {
    ask(w, Request::Pause)
}

fn resume(w: &mut World) -> Result<Reply, String> {
    ask(w, Request::Resume)
}

fn restart(w: &mut World, target: RestartTarget) -> Result<Reply, String> {
    ask(w, Request::Restart { target })
}

fn is_paused(w: &World) -> bool {
    w.core.view(w.now).state == JobState::Paused
}

fn paused(mode: Mode, steps: u64) -> World {
    let mut w = world(mode, steps);
    pause(&mut w).unwrap();
    w.until("it is paused", MINUTE, is_paused);
    w
}

fn lives(w: &World) -> Vec<(InstanceId, Incarnation)> {
    let all = w.core.view(w.now).instances.into_iter();
    all.map(|i| (i.id, i.incarnation)).collect()
}

#[test]
fn a_job_that_lost_a_service_it_needs_fails_begun_or_not() {
    let reason = "service.judge.0 is given up".to_owned();
    let lost = || Input::ServiceLost {
        reason: reason.clone(),
    };
    let failed = Outcome::Failed {
        reason: reason.clone(),
    };
    let is_failed = |core: &mut Core| {
        let mut outputs = std::iter::from_fn(|| core.poll_output());
        outputs.any(|o| matches!(&o, Output::Finish { outcome } if *outcome == failed))
    };
    let mut held = Core::new(small(Mode::Async, 6));
    held.handle(Time(1), lost());
    assert!(is_failed(&mut held) && !held.is_running());
    let mut w = world(Mode::Async, 6);
    assert!(w.core.is_running());
    w.core.handle(w.now, lost());
    assert!(is_failed(&mut w.core));
    assert_eq!(w.core.view(w.now).state, JobState::Failed);
}

#[test]
fn a_paused_job_ends_the_step_under_way_begins_nothing_and_goes_on_when_resumed() {
    for mode in [Mode::Sync, Mode::Async, Mode::SemiSync] {
        let mut w = world(mode, 8);
        w.run_for(ms(100));
        let reply = pause(&mut w).unwrap();
        let Reply::Paused {
            pause: Some(PauseView { after, .. }),
            when,
        } = reply
        else {
            panic!("{reply:?}");
        };
        assert_eq!(
            when,
            format!("when step {after} is committed and published")
        );
        w.until("it is paused", MINUTE, is_paused);
        assert_eq!(w.core.view(w.now).step, after, "{mode:?}");
        // A turn under way ends; then nothing is generated any more.
        w.run_for(MINUTE);
        let tokens = |w: &World| w.stored.len();
        let before = (tokens(&w), lives(&w));
        w.run_for(HOUR);
        assert_eq!((tokens(&w), lives(&w)), before, "{mode:?}");
        assert_eq!((w.committed(), is_paused(&w)), (after.0, true), "{mode:?}");
        resume(&mut w).unwrap();
        w.run_to_end();
        assert_eq!((w.committed(), w.incidents()), (8, Vec::new()), "{mode:?}");
    }
}

#[test]
fn trajectories_that_are_frozen_keep_their_agent_and_go_on_there() {
    let slow = Timing {
        turn: Span::between(ms(1500), ms(1900)),
        ..Timing::default()
    };
    let mut frozen = 0;
    // Of two batches that overlap one is far from its end when the other is trained.
    for step in [Step(3), Step(4)] {
        let mut w = World::journaled(small(Mode::Async, 8), slow.clone(), 3);
        w.until("the step is trained", MINUTE, |w| {
            w.core.inspect().training() == Some(step)
        });
        pause(&mut w).unwrap();
        w.until("it is paused", MINUTE, is_paused);
        w.run_for(MINUTE);
        let held = w.core.leases();
        frozen += held.len();
        w.run_for(HOUR);
        assert_eq!(w.core.leases(), held);
        resume(&mut w).unwrap();
        w.run_to_end();
        assert_eq!(w.incidents(), Vec::new());
    }
    assert!(frozen > 0, "nothing was under way");
}

#[test]
fn a_pause_survives_the_daemon_and_is_over_once() {
    let mut w = world(Mode::Async, 8);
    pause(&mut w).unwrap();
    w.run_for(ANSWERED);
    w.crash_daemon();
    w.until("it is paused", MINUTE, is_paused);
    let at = w.committed();
    w.crash_daemon();
    w.until("it is paused again", MINUTE, is_paused);
    w.run_for(MINUTE);
    assert_eq!(w.committed(), at);
    resume(&mut w).unwrap();
    w.run_for(ANSWERED);
    w.crash_daemon();
    w.run_to_end();
    assert_eq!(w.committed(), 8);
}

#[test]
fn a_pause_that_comes_twice_and_a_resume_without_one_are_refused() {
    let mut w = world(Mode::Async, 8);
    assert_eq!(
        resume(&mut w).unwrap_err(),
        "nothing to do: the job is not paused"
    );
    pause(&mut w).unwrap();
    assert_eq!(
        pause(&mut w).unwrap_err(),
        "nothing to do: the job is pausing already"
    );
    w.until("it is paused", MINUTE, is_paused);
    assert_eq!(
        pause(&mut w).unwrap_err(),
        "nothing to do: the job is paused already"
    );
    resume(&mut w).unwrap();
    pause(&mut w).unwrap();
    resume(&mut w).unwrap();
    w.run_to_end();
    let over = "the job is completed; nothing can be asked of it; to read it, `robustd --inspect --state-dir DIR`";
    let mut core = w.core.clone();
    core.handle(w.now, Input::Operator(TICKET, Request::Pause));
    let Some(Output::Reply { result, .. }) = core.poll_output() else {
        panic!("no reply");
    };
    assert_eq!(result.unwrap_err().to_string(), over);
}

#[test]
fn what_fails_in_a_pause_is_recovered_and_waits_again() {
    for who in [T0, id(Role::Rollout, 1), id(Role::Agent, 0)] {
        let mut w = paused(Mode::Async, 8);
        w.run_for(MINUTE);
        let at = w.committed();
        w.kill(who);
        w.until("it is recovered", MINUTE, |w| {
            let incidents = w.incidents();
            let over = |i: &Incident| i.outcome == IncidentOutcome::Recovered;
            incidents.len() == 1 && incidents.iter().all(over)
        });
        assert!(is_paused(&w), "{who}");
        w.run_for(MINUTE);
        assert_eq!(w.committed(), at, "{who}");
        resume(&mut w).unwrap();
        w.run_to_end();
        assert_eq!((w.committed(), w.incidents().len()), (8, 1), "{who}");
    }
}

/// I-8: one that waits is not blamed, and what a pause took is not learned.
#[test]
fn no_rule_speaks_of_a_pause_and_none_learns_from_it() {
    let config = CoreConfig {
        rules: quick_rules().with(|r| r.phase_overrun.bound.set(ms(30_000))),
        ..small(Mode::Sync, 6)
    };
    let mut w = World::journaled(config, Timing::default(), 3);
    w.until("step 2", MINUTE, |w| w.committed() == 2);
    pause(&mut w).unwrap();
    w.until("it is paused", MINUTE, is_paused);
    w.run_for(HOUR);
    resume(&mut w).unwrap();
    w.run_to_end();
    let said = |what: &str| w.journal.lines().iter().any(|l| l.contains(what));
    assert!(
        said("the job is paused after step"),
        "the journal has events"
    );
    assert!(!said("longer than the bound"));
    assert_eq!(w.incidents(), Vec::new());
    let longest = w.core.inspect().longest_phase();
    assert!(longest.is_some_and(|d| d < MINUTE), "{longest:?}");
}

#[test]
fn a_fault_in_the_last_step_before_a_pause_costs_that_step_only() {
    let mut w = world(Mode::Async, 8);
    pause(&mut w).unwrap();
    w.kill(T0);
    w.until("it is paused", MINUTE, is_paused);
    assert_eq!(w.incidents().len(), 1);
    resume(&mut w).unwrap();
    w.run_to_end();
    assert_eq!(w.committed(), 8);
}

#[test]
fn one_instance_is_restarted_alone_without_a_fault() {
    for who in [id(Role::Rollout, 1), id(Role::Agent, 0)] {
        let mut w = world(Mode::Async, 8);
        let before = lives(&w);
        let reply = restart(&mut w, RestartTarget::One(who)).unwrap();
        let when = "now".to_owned();
        let target = RestartTarget::One(who);
        assert_eq!(reply, Reply::Restarting { target, when });
        let changed = |w: &World| {
            let after = lives(w);
            let differ = before.iter().zip(&after).filter(|(b, a)| b != a);
            differ.map(|(b, _)| b.0).collect::<Vec<_>>()
        };
        assert_eq!(changed(&w), [who]);
        w.run_to_end();
        let view = w.core.view(w.now);
        let i = view.instances.iter().find(|i| i.id == who).unwrap();
        assert_eq!((i.restarts, i.replaced), (0, 1));
        assert_eq!(i.restarted[0].why, "an operator asked for it");
        assert_eq!((changed(&w), w.incidents()), (vec![who], Vec::new()));
    }
}

#[test]
fn a_role_is_restarted_one_after_the_other_and_the_next_waits_for_the_last() {
    let mut w = world(Mode::Async, 40);
    let rollouts = |w: &World| -> Vec<(Incarnation, bool)> {
        let mut all = w.core.view(w.now).instances;
        all.retain(|i| i.id.role == Role::Rollout);
        all.iter().map(|i| (i.incarnation, i.admitted)).collect()
    };
    let before = rollouts(&w);
    restart(&mut w, RestartTarget::Role(Role::Rollout)).unwrap();
    let busy = restart(&mut w, RestartTarget::Role(Role::Rollout)).unwrap_err();
    assert_eq!(
        busy,
        "a restart of rollout is under way; try again when it is over"
    );
    while rollouts(&w).iter().zip(&before).any(|(a, b)| a.0 == b.0) {
        w.step();
        let away = rollouts(&w).iter().filter(|(_, serves)| !serves).count();
        assert!(away <= 1, "{away} do not serve");
    }
    w.run_to_end();
    assert_eq!(w.incidents(), Vec::new());
}

#[test]
fn the_trainer_is_restarted_between_two_steps_and_its_next_fault_is_a_first_one() {
    for target in [RestartTarget::One(T0), RestartTarget::Role(Role::Trainer)] {
        let mut w = world(Mode::Async, 8);
        let generation = w.core.inspect().generation();
        let others = |w: &World| {
            let mut all = lives(w);
            all.retain(|(who, _)| who.role != Role::Trainer);
            all
        };
        let before = others(&w);
        restart(&mut w, target).unwrap();
        w.until("a new gang", MINUTE, |w| {
            w.core.inspect().generation() > generation
        });
        assert_eq!(w.core.view(w.now).ettr.steps_repeated, 0);
        w.until("it trains", MINUTE, |w| {
            w.core.inspect().training().is_some()
        });
        w.kill(T0);
        w.run_to_end();
        let incidents = w.incidents();
        assert_eq!(incidents.len(), 1, "{target}");
        assert!(
            incidents[0].plan.starts_with("restart the trainer gang"),
            "{incidents:?}"
        );
        assert_eq!(others(&w), before);
        let view = w.core.view(w.now);
        let ranks = view.instances.iter().filter(|i| i.id.role == Role::Trainer);
        let counted: Vec<_> = ranks.map(|i| (i.restarts, i.replaced)).collect();
        assert!(counted.iter().all(|c| *c == (1, 1)), "{counted:?}");
    }
}

#[test]
fn the_task_is_restarted_between_two_steps_and_nothing_is_trained_or_generated_twice() {
    for mode in [Mode::Sync, Mode::Async, Mode::SemiSync] {
        let mut w = world(mode, 8);
        let before = lives(&w);
        restart(&mut w, RestartTarget::Task).unwrap();
        w.until("all are new", MINUTE, |w| {
            lives(w).iter().zip(&before).all(|(a, b)| a.1 > b.1)
        });
        w.run_to_end();
        assert_eq!((w.committed(), w.incidents()), (8, Vec::new()), "{mode:?}");
        assert_eq!(w.core.inspect().task_restarts(), 0);
        let view = w.core.view(w.now);
        assert_eq!(view.ettr.steps_repeated, 0);
        assert!(
            view.instances
                .iter()
                .all(|i| (i.restarts, i.replaced) == (0, 1))
        );
    }
}

#[test]
fn a_restart_that_was_accepted_comes_though_the_daemon_dies() {
    let mut w = world(Mode::Async, 8);
    let before = lives(&w);
    restart(&mut w, RestartTarget::Task).unwrap();
    w.run_for(ANSWERED);
    w.crash_daemon();
    w.until("all are new", MINUTE, |w| {
        lives(w).iter().zip(&before).all(|(a, b)| a.1 > b.1)
    });
    w.run_to_end();
    assert_eq!((w.committed(), w.incidents()), (8, Vec::new()));
}

#[test]
fn a_restart_in_a_pause_is_at_once_and_the_pause_goes_on() {
    let mut w = paused(Mode::Async, 8);
    let before = lives(&w);
    restart(&mut w, RestartTarget::Task).unwrap();
    w.until("all are new", MINUTE, |w| {
        lives(w).iter().zip(&before).all(|(a, b)| a.1 > b.1)
    });
    w.run_for(MINUTE);
    assert!(is_paused(&w));
    resume(&mut w).unwrap();
    w.run_to_end();
    assert_eq!((w.committed(), w.incidents()), (8, Vec::new()));
}

#[test]
fn a_restart_of_nobody_is_refused() {
    let mut w = world(Mode::Async, 8);
    let one = |role, index| RestartTarget::One(id(role, index));
    assert_eq!(
        restart(&mut w, one(Role::Rollout, 9)).unwrap_err(),
        "there is no rollout 9; the job has 3 (0 to 2)"
    );
    assert_eq!(
        restart(&mut w, RestartTarget::Role(Role::Hybrid)).unwrap_err(),
        "this job has no hybrid"
    );
    w.stop(id(Role::Rollout, 1));
    w.until("it is condemned", MINUTE, |w| {
        w.core
            .inspect()
            .condemned_until(id(Role::Rollout, 1))
            .is_some()
    });
    assert_eq!(
        restart(&mut w, one(Role::Rollout, 1)).unwrap_err(),
        "rollout-1 is not running (suspect); try again when it is"
    );
    w.run_to_end();
}

#[test]
fn why_a_process_was_replaced_is_told_of_its_place() {
    let mut w = world(Mode::Sync, 8);
    w.kill(id(Role::Rollout, 0));
    w.until("step 5", MINUTE, |w| w.committed() == 5);
    let view = w.core.view(w.now);
    let fallen = view.instances.iter().find(|i| i.id == id(Role::Rollout, 0));
    let restarted = &fallen.unwrap().restarted;
    assert_eq!((restarted.len(), restarted[0].why.as_str()), (1, "exit"));
}
