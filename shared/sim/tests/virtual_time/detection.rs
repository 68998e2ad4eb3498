//! Both sides of every rule: found in time, and silent where it does not apply (I-8).
use super::*;
use robust_shared::phase::Phase;

const LONG: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn found(w: &mut World, rule: &str, within: Duration) -> Incident {
    let what = format!("{rule} is found");
    w.until(&what, within, |w| !w.incidents().is_empty());
    let incident = w.incidents().pop().unwrap();
    assert_eq!(incident.rule, rule);
    incident
}

fn rule(name: &str) -> &'static Rule {
    RULES.iter().find(|rule| rule.name == name).unwrap()
}

fn in_phase(w: &World, who: InstanceId, phase: Phase) -> bool {
    w.instance(who).phase == phase
}

#[test]
fn a_trainer_stopped_in_compute_is_found_within_its_window_and_a_second() {
    let mut w = World::new(small(Mode::Async, 5), 1);
    w.until("training", LONG, |w| in_phase(w, T0, Phase::Update));
    w.inject(Fault::Hang, Role::Trainer, 1);
    let struck = w.now;
    let incident = found(&mut w, "trainer idle", LONG);
    assert_eq!(incident.who, id(Role::Trainer, 1), "{}", incident.reason);
    assert_eq!(incident.struck, struck);
    assert!(
        incident.detect() <= Duration::from_secs(4),
        "{:?}",
        incident.detect()
    );
    assert!(
        incident.reason.contains("trainer-0 idle in update"),
        "{}",
        incident.reason
    );
    w.run_to_end();
    assert_eq!(w.committed(), 5);
    let incident = &w.incidents()[0];
    assert_eq!(incident.who, id(Role::Trainer, 1));
    for part in [
        "root: trainer-1 is stopped",
        "wchan do_signal_stop",
        "== trainer-0 lives: update of step",
        "wchan futex_wait",
    ] {
        assert!(incident.evidence.contains(part), "{}", incident.evidence);
    }
}

#[test]
fn a_rule_that_is_switched_off_finds_nothing_and_sets_no_timer() {
    let mut config = small(Mode::Async, 5);
    config.rules.switch_off(rule("trainer idle"));
    let mut w = World::new(config, 1);
    w.until("training", LONG, |w| in_phase(w, T0, Phase::Update));
    w.inject(Fault::Hang, Role::Trainer, 1);
    w.run_until(LONG, |_| false);
    assert!(w.incidents().is_empty(), "{:?}", w.incidents());
    let due = w.core.next_timeout();
    assert!(due.is_none_or(|at| at > w.now), "{due:?} at {}", w.now);
}

#[test]
fn a_trainer_stopped_before_it_took_up_its_call_is_found_too() {
    let mut w = World::new(small(Mode::Async, 5), 1);
    w.until("waiting", LONG, |w| in_phase(w, T0, Phase::AwaitBatch));
    w.inject(Fault::Hang, Role::Trainer, 0);
    w.inject(Fault::Hang, Role::Trainer, 1);
    found(&mut w, "trainer idle", LONG);
    w.run_to_end();
    assert_eq!(w.committed(), 5);
}

#[test]
fn a_missing_evidence_delays_the_kill_by_a_second_only() {
    let mut w = World::new(small(Mode::Async, 5), 1);
    w.until("training", LONG, |w| {
        w.committed() > 0 && in_phase(w, T0, Phase::Update)
    });
    w.inject(Fault::Hang, Role::Trainer, 0);
    // Stepping the core alone: nobody answers CollectEvidence.
    let verdict = found(&mut w, "trainer idle", LONG).verdict;
    let due = w.core.inspect().condemned_until(T0).unwrap();
    assert_eq!(due, verdict + Duration::from_secs(1));
    w.core.handle(due, Input::Timeout);
    let outputs: Vec<_> = std::iter::from_fn(|| w.core.poll_output()).collect();
    assert_eq!(
        outputs
            .iter()
            .filter(|o| matches!(o, Output::Kill { .. }))
            .count(),
        2
    );
}

#[test]
fn that_peers_give_up_on_a_hung_rank_is_no_second_fault() {
    let peer = id(Role::Trainer, 1);
    for ends in [false, true] {
        let mut w = World::new(small(Mode::Async, 5), 1);
        w.until("training", LONG, |w| {
            w.committed() > 0 && in_phase(w, T0, Phase::Update)
        });
        w.inject(Fault::Hang, Role::Trainer, 0);
        found(&mut w, "trainer idle", LONG);
        let (generation, step) = (
            w.core.inspect().generation(),
            w.core.state().committed().next(),
        );
        if ends {
            w.inject(Fault::Kill, Role::Trainer, 1);
        } else {
            let rank = Some(w.life(peer));
            w.feed(Input::Gang(
                generation,
                GangEvent::StepFailed {
                    step,
                    rank,
                    fault: CallFault::Exception,
                    reason: "its peer does not answer".to_owned(),
                },
            ));
        }
        w.run_to_end();
        assert_eq!(w.committed(), 5);
        let all = w.incidents();
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(
            all[0].plan.contains("restart the trainer gang"),
            "{}",
            all[0].plan
        );
    }
}

#[test]
fn a_stopped_rollout_is_probed_found_and_replaced_while_others_serve() {
    let mut w = World::new(small(Mode::Async, 40), 1);
    w.timing.turn = Span::always(ms(300));
    let who = id(Role::Rollout, 2);
    w.until("generating", LONG, |w| in_phase(w, who, Phase::Generating));
    w.inject(Fault::Hang, Role::Rollout, 2);
    let incident = found(&mut w, "rollout silent", LONG);
    assert_eq!(incident.who, who);
    // Window 2 s, probe 1 s, and the sample's interval.
    assert!(
        incident.detect() <= Duration::from_secs(4),
        "{:?}",
        incident.detect()
    );
    w.run_to_end();
    assert_eq!(w.committed(), 40);
    assert!(w.instance(who).admitted);
}

#[test]
fn a_stopped_agent_is_replaced_and_its_work_goes_on() {
    let mut w = World::new(small(Mode::Async, 6), 1);
    let who = id(Role::Agent, 0);
    w.until("leases", LONG, |w| w.instance(who).running > 0);
    w.inject(Fault::Hang, Role::Agent, 0);
    found(&mut w, "agent silent", LONG);
    w.run_to_end();
    assert_eq!(w.committed(), 6);
}

#[test]
fn forty_minutes_of_tool_calls_are_no_fault() {
    let mut w = World::new(small(Mode::Async, 2), 1);
    w.timing.tool = Span::always(Duration::from_secs(2400));
    w.until("the end", HOUR * 4, |w| w.outcome.is_some());
    assert!(w.incidents().is_empty());
}

#[test]
fn a_long_advantage_is_no_fault() {
    let mut w = World::new(small(Mode::Async, 2), 1);
    w.timing.advantage = Span::always(Duration::from_secs(2400));
    w.until("the end", HOUR * 2, |w| w.outcome.is_some());
    assert!(w.incidents().is_empty());
}

#[test]
fn one_long_request_at_the_tail_is_no_fault() {
    let mut w = World::new(small(Mode::Sync, 1), 1);
    w.timing.turn = Span::always(Duration::from_secs(2400));
    w.until("the end", HOUR * 4, |w| w.outcome.is_some());
    assert!(w.incidents().is_empty());
}

#[test]
fn a_process_that_never_links_is_replaced() {
    let mut w = World::new(small(Mode::Async, 2), 1);
    let who = id(Role::Trainer, 1);
    w.proc(who).unwrap().start = Start::Mute;
    let incident = found(&mut w, "attach overdue", LONG);
    assert_eq!(incident.who, who);
    w.run_to_end();
    assert_eq!(w.outcome, Some(Outcome::Completed));
}

#[test]
fn a_broken_link_is_a_verdict_only_when_it_stays_broken() {
    let mut w = World::new(small(Mode::Async, 400), 1);
    w.until("a step", LONG, |w| w.committed() > 0);
    let who = id(Role::Agent, 1);
    let incarnation = w.life(who);
    w.feed(Input::Role(incarnation, RoleEvent::Detached));
    w.run_for(Duration::from_secs(4));
    assert!(w.incidents().is_empty());
    let leases = w.proc(who).unwrap().held.keys().copied().collect();
    let hello = Hello {
        leases,
        ..Hello::default()
    };
    w.feed(Input::Role(incarnation, RoleEvent::Attached { hello }));
    w.run_for(Duration::from_secs(10));
    assert!(w.incidents().is_empty());
    w.proc(who).unwrap().linked = false;
    w.feed(Input::Role(incarnation, RoleEvent::Detached));
    let incident = found(&mut w, "link lost", Duration::from_secs(6));
    assert_eq!(incident.who, who);
}

#[test]
fn a_rank_that_finished_its_step_without_a_link_is_not_idle() {
    let mut w = World::new(small(Mode::Async, 6), 1);
    w.until("training", LONG, |w| in_phase(w, T0, Phase::Update));
    let life = w.life(T0);
    // Shorter than the grace of a link, longer than the idle rule's window.
    w.cut(life, ms(4500));
    w.run_to_end();
    assert!(w.incidents().is_empty(), "{:?}", w.incidents());
}
