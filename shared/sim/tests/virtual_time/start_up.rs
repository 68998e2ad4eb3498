//! Faults that wait for the start-up of a later life.
use super::armed::{LONG, armed, ask, at, carried, inject, refusal, rollout, started};
use super::*;
use robust_shared::fault::Fault;

/// Lets so many kills wait for the start-ups of a place.
fn arm(w: &mut World, who: InstanceId, phase: &str, times: usize) {
    for _ in 0..times {
        w.inject_at(Fault::Kill, who.role, who.index, at(phase));
    }
    assert_eq!(armed(w), times);
}

/// Who was struck in which life, oldest first.
fn ends(w: &World) -> Vec<(InstanceId, Incarnation)> {
    let incidents = w.incidents();
    incidents.iter().map(|i| (i.who, i.incarnation)).collect()
}

fn completed(w: &mut World) {
    w.run_to_end();
    assert_eq!(w.outcome, Some(Outcome::Completed));
}

#[test]
fn a_life_that_runs_is_not_struck_and_the_next_one_is_once() {
    for (who, phase) in [(T0, "load_checkpoint"), (T0, "init"), (rollout(1), "init")] {
        let mut w = started(Mode::Async, 9);
        let first = w.life(who);
        arm(&mut w, who, phase, 1);
        let waits = w.core.view(w.now).armed;
        assert_eq!(waits[0].life, None, "{who}: it waits for a later life");
        w.until("step 3", LONG, |w| w.committed() >= 3);
        assert_eq!((armed(&w), w.incidents().len()), (1, 0), "{who} {phase}");
        w.kill(who);
        w.until("struck", LONG, |w| w.incidents().len() == 2);
        let struck = ends(&w);
        assert_eq!(struck[0], (who, first));
        assert!(struck[1].0 == who && struck[1].1 > first, "{struck:?}");
        assert_eq!(armed(&w), 0);
        completed(&mut w);
        assert_eq!(w.incidents().len(), 2, "{who} {phase}");
    }
}

#[test]
fn several_strike_one_life_each_and_a_restart_that_fails_twice_is_one_of_everything() {
    let mut w = started(Mode::Sync, 6);
    arm(&mut w, T0, "load_checkpoint", 2);
    w.kill(T0);
    w.until("struck", LONG, |w| w.incidents().len() == 3);
    let lives: Vec<Incarnation> = ends(&w).into_iter().map(|(_, life)| life).collect();
    assert!(lives.is_sorted_by(|a, b| a < b), "{lives:?}");
    completed(&mut w);
    let plans: Vec<String> = w.incidents().into_iter().map(|i| i.plan).collect();
    assert_eq!(plans.len(), 3, "{plans:#?}");
    assert!(
        plans[2].contains("the restart of the trainer failed 2 times"),
        "{plans:#?}"
    );
}

#[test]
fn a_life_that_ends_before_it_comes_there_leaves_it_to_the_next() {
    let mut w = started(Mode::Async, 6);
    arm(&mut w, T0, "load_checkpoint", 1);
    w.doom(T0, vec![Start::Refused]);
    w.kill(T0);
    w.until("the start is refused", LONG, |w| w.incidents().len() == 2);
    assert_eq!(armed(&w), 1);
    w.until("struck", LONG, |w| armed(w) == 0);
    completed(&mut w);
    assert_eq!(w.incidents().len(), 3);
}

#[test]
fn it_survives_the_daemon_and_a_place_without_a_slot() {
    let mut w = started(Mode::Async, 9);
    arm(&mut w, rollout(1), "init", 2);
    w.until("it is on record", LONG, |w| w.committed() >= 2);
    w.crash_daemon();
    w.until("the daemon is back", LONG, |w| w.committed() >= 4);
    assert_eq!(armed(&w), 2);
    let slot = |w: &World| {
        let all = w.core.view(w.now).instances;
        all.into_iter().find(|i| i.id == rollout(1)).unwrap().slot
    };
    let lost = slot(&w).unwrap();
    w.inject(Fault::LoseSlot, Role::Rollout, 1);
    w.until("it has no slot", LONG, |w| slot(w).is_none());
    assert_eq!(armed(&w), 2, "nothing runs there, and it waits");
    w.restore_slot(0, &lost.pool, lost.index);
    w.until("struck", LONG, |w| armed(w) == 1);
    w.crash_daemon();
    w.until("struck again", LONG, |w| armed(w) == 0);
    completed(&mut w);
    let lives = ends(&w);
    assert_eq!(lives.len(), 3, "{lives:?}");
    assert!(lives.iter().all(|(who, _)| *who == rollout(1)), "{lives:?}");
    assert!(lives.is_sorted_by(|a, b| a.1 < b.1), "{lives:?}");
}

#[test]
fn it_can_be_armed_while_the_place_recovers_and_taken_back_before_a_life_comes() {
    let mut w = started(Mode::Async, 9);
    w.doom(T0, vec![Start::Mute]);
    w.kill(T0);
    w.until("it recovers", LONG, |w| !w.incidents().is_empty());
    assert!(refusal(&mut w, "kill", T0, at("update")).contains("trainer-0"));
    for _ in 0..2 {
        ask(&mut w, inject("kill", T0, at("load_checkpoint")))
            .0
            .unwrap();
    }
    let disarm = Request::Disarm { number: Some(1) };
    ask(&mut w, disarm).0.unwrap();
    let waits: Vec<u64> = w
        .core
        .view(w.now)
        .armed
        .iter()
        .map(|on| on.armed.number)
        .collect();
    assert_eq!(waits, [2]);
}

#[test]
fn with_its_place_or_the_job_it_is_gone() {
    let mut w = started(Mode::Async, 6);
    let last = rollout(w.core.config().count(Role::Rollout) - 1);
    arm(&mut w, last, "init", 1);
    w.scale(Role::Rollout, last.index);
    w.until("the place is gone", LONG, |w| {
        w.core.config().count(Role::Rollout) == last.index && armed(w) == 0
    });
    w.scale(Role::Rollout, last.index + 1);
    arm(&mut w, T0, "load_checkpoint", 1);
    w.stop_and_resume(ms(500));
    w.until("it goes on", LONG, |w| w.committed() >= 3);
    assert_eq!(armed(&w), 0);
    completed(&mut w);
    assert_eq!(w.incidents(), []);
}

#[test]
fn what_a_role_does_to_itself_is_that_of_the_first_life_that_links_after_it_was_armed() {
    let mut w = started(Mode::Async, 6);
    assert_eq!(
        refusal(&mut w, "exit 3", T0, at("init")),
        "`exit` cannot strike in `init`: the process carries it out itself, and cannot be told before \
         it has linked; choose a later phase"
    );
    for fault in ["exit 3", "exception"] {
        let (reply, outputs) = ask(&mut w, inject(fault, T0, at("load_checkpoint")));
        assert!(
            matches!(reply, Ok(Reply::Armed { life: None, .. })),
            "{reply:?}"
        );
        assert_eq!(carried(&outputs), [], "not this life's");
    }
    let first = w.life(T0);
    let attach = |w: &mut World, incarnation| {
        let hello = Hello::default();
        w.core.handle(
            w.now,
            Input::Role(incarnation, RoleEvent::Attached { hello }),
        );
        carried(&std::iter::from_fn(|| w.core.poll_output()).collect::<Vec<_>>())
    };
    assert_eq!(attach(&mut w, first), [], "nor when it links again");
    w.kill(T0);
    w.until("it is attached", LONG, |w| {
        w.life(T0) > first && w.core.view(w.now).armed.iter().any(|on| on.life.is_some())
    });
    let waits = w.core.view(w.now).armed;
    let lives: Vec<Option<Incarnation>> = waits.iter().map(|on| on.life).collect();
    assert_eq!(lives, [Some(w.life(T0)), None]);
    let second = w.life(T0);
    assert_eq!(
        attach(&mut w, second),
        [(1, "exit 3".to_owned())],
        "told again"
    );
    // Nobody heard whether it struck: no other life does it.
    w.kill(T0);
    w.until("the next life", LONG, |w| {
        w.life(T0) > second && armed(w) == 1
    });
    assert_eq!(w.core.view(w.now).armed[0].armed.number, 2);
}

#[test]
fn a_place_that_is_scaled_away_has_no_later_life_to_wait_for() {
    let mut w = started(Mode::Async, 9);
    let scale = Request::Scale {
        role: Role::Rollout,
        count: 1,
        revision: 0,
    };
    ask(&mut w, scale).0.unwrap();
    let text = refusal(&mut w, "kill", rollout(1), at("init"));
    // One that had nothing to do is gone at once.
    let known = ["rollout-1 is being scaled away", "there is no rollout 1"];
    assert!(known.iter().any(|why| text.contains(why)), "{text}");
    assert_eq!(armed(&w), 0);
}
