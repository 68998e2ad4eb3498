//! A gang that hangs: all of it is looked at, the rank it comes from is named, and what follows from
//! another fault is folded under it.
use super::*;
use robust_shared::hardware::{Finding, FindingKind};
use robust_shared::phase::Phase;

const LONG: Duration = Duration::from_secs(60);
const T1: InstanceId = InstanceId {
    role: Role::Trainer,
    index: 1,
};
const DEADLINE: Duration = Duration::from_secs(1);

fn seen(state: ProcessState) -> Seen {
    Seen {
        state,
        ..Seen::default()
    }
}

/// A world that stands in the update of its second step or a later one.
fn updating(ranks: u32) -> World {
    let config = CoreConfig {
        ranks,
        prompts: 4,
        ..small(Mode::Async, 5)
    };
    let mut w = World::new(config, 1);
    let computes = |w: &World| w.instance(T0).phase == Phase::Update;
    w.until("an update", LONG, |w| w.committed() > 0 && computes(w));
    w
}

/// The controller alone, its gang in a verdict: what it asks for, and nobody answers.
fn hung(ranks: u32) -> (World, Vec<Incarnation>) {
    let mut w = updating(ranks);
    w.stop(T1);
    w.until("the verdict", LONG, |w| !w.incidents().is_empty());
    let incident = w.incidents().remove(0);
    let asked = incident.testimony.iter().map(|t| t.incarnation);
    (w, asked.collect())
}

fn answer(core: &mut Core, now: Time, life: Incarnation, state: ProcessState) {
    let text = format!("stack of {life}");
    let seen = seen(state);
    core.handle(now, Input::Role(life, RoleEvent::Evidence { text, seen }));
}

fn kills(core: &mut Core) -> usize {
    let outputs = std::iter::from_fn(|| core.poll_output());
    outputs.filter(|o| matches!(o, Output::Kill { .. })).count()
}

#[test]
fn all_ranks_are_looked_at_and_killed_when_the_last_of_them_is() {
    let (mut w, asked) = hung(4);
    let lives: Vec<_> = (0..4).map(|n| w.life(id(Role::Trainer, n))).collect();
    assert_eq!(asked, lives);
    let (core, now) = (&mut w.core, w.now + ms(1));
    assert_eq!(kills(core), 0);
    for (n, life) in asked.iter().enumerate() {
        assert_eq!(kills(core), 0, "{n} of 4 are in");
        let state = match n {
            1 => ProcessState::Stopped,
            _ => ProcessState::Lives,
        };
        answer(core, now, *life, state);
        // It comes twice.
        answer(core, now, *life, ProcessState::Dead);
    }
    assert_eq!(kills(core), 4);
    let incident = core.view(now).incidents.pop().unwrap();
    for life in &asked {
        let stack = format!("stack of {life}");
        assert_eq!(
            incident.evidence.matches(&stack).count(),
            1,
            "{incident:#?}"
        );
    }
    let first = incident.evidence.lines().nth(2).unwrap();
    assert_eq!(first, "== trainer-1 is stopped: update of step 2");
    assert_eq!((incident.who, incident.judged), (T1, None));
    let states = incident.testimony.iter().map(Testimony::state);
    assert!(!states.clone().any(|s| s == Some(ProcessState::Dead)));
    // One that comes when its process was replaced is nobody's.
    answer(core, now + ms(1), asked[0], ProcessState::Dead);
    assert_eq!(core.view(now).incidents.pop().unwrap(), incident);
}

#[test]
fn a_rank_of_which_nothing_comes_holds_the_kill_up_no_longer_than_one_alone_would() {
    let (mut w, asked) = hung(4);
    let verdict = w.incidents()[0].verdict;
    let (core, now) = (&mut w.core, w.now + ms(1));
    for life in [asked[0], asked[2], asked[3]] {
        answer(core, now, life, ProcessState::Lives);
    }
    assert_eq!(kills(core), 0);
    let mut ranks = (0..4).map(|n| id(Role::Trainer, n));
    let until = ranks.find_map(|rank| core.inspect().condemned_until(rank));
    assert_eq!(until, Some(verdict + DEADLINE));
    core.handle(verdict + DEADLINE, Input::Timeout);
    assert_eq!(kills(core), 4);
    let incident = core.view(now).incidents.pop().unwrap();
    let root = incident.root.unwrap();
    assert_eq!(root.one(), Some((T1, asked[1])));
    assert!(
        root.to_string()
            .starts_with("trainer-1 is without an answer"),
        "{root}"
    );
}

#[test]
fn a_peer_that_gives_up_ends_the_wait_and_nobody_is_accused_of_silence_for_that() {
    let (mut w, asked) = hung(4);
    let (core, now) = (&mut w.core, w.now + ms(1));
    answer(core, now, asked[0], ProcessState::Lives);
    let exit = RoleEvent::Exited {
        at: Some(now),
        exit: Exit::Code(1),
        detail: "error: timed out".to_owned(),
    };
    core.handle(now, Input::Role(asked[2], exit));
    assert_eq!(kills(core), 3, "those that are left");
    let view = core.view(now);
    assert_eq!(view.incidents.len(), 1, "one fault");
    let root = view.incidents[0].root.as_ref().unwrap();
    assert_eq!(root.one(), None, "{root}");
}

#[test]
fn the_stopped_rank_is_named_though_the_rule_saw_another_and_the_budget_is_the_gangs() {
    let mut w = updating(2);
    w.stop(T1);
    // Without its link the rule does not judge it, and finds the peer that waits for it.
    w.cut(w.life(T1), Duration::from_secs(30));
    w.until("the verdict", LONG, |w| !w.incidents().is_empty());
    let first = w.incidents().pop().unwrap();
    assert_eq!((first.rule.as_str(), first.who), ("trainer idle", T0));
    let life = w.life(T1);
    w.until("the kill", LONG, |w| w.incidents()[0].root.is_some());
    let incident = w.incidents().pop().unwrap();
    assert_eq!((incident.who, incident.incarnation), (T1, life));
    assert_eq!(incident.judged, Some(T0));
    assert_eq!(incident.plan, first.plan);
    assert_eq!(w.core.inspect().faults_in_step(), 1);
    w.run_to_end();
    let incident = &w.incidents()[0];
    assert_eq!(w.incidents().len(), 1);
    assert_eq!(incident.outcome, IncidentOutcome::Recovered);
    assert_eq!(incident.swept.len(), 1, "the other rank: {incident:#?}");
}

#[test]
fn what_a_daemon_that_is_gone_had_asked_for_accuses_nobody() {
    let (mut w, asked) = hung(2);
    let now = w.now + ms(1);
    answer(&mut w.core, now, asked[0], ProcessState::Lives);
    let mut core = Core::restore(w.core.config().clone(), w.core.state().clone());
    core.handle(now + DEADLINE, Input::Start);
    core.handle(now + DEADLINE * 2, Input::Timeout);
    assert_eq!(kills(&mut core), 2, "the verdict holds");
    let incident = core.view(now).incidents.pop().unwrap();
    assert_eq!(incident.testimony[1].answer, Answer::Unheard);
    assert!(incident.evidence.contains("stack of"), "what came is kept");
    assert_eq!(incident.root.unwrap().one(), None);
}

#[test]
fn stacks_take_no_more_room_however_many_ranks_there_are() {
    let (mut w, asked) = hung(4);
    let (core, now) = (&mut w.core, w.now + ms(1));
    for life in asked {
        let text = "frame\n".repeat(20_000);
        let seen = seen(ProcessState::Lives);
        core.handle(now, Input::Role(life, RoleEvent::Evidence { text, seen }));
    }
    let incident = core.view(now).incidents.pop().unwrap();
    let length = incident.evidence.len();
    assert!((80_000..110_000).contains(&length), "{length}");
    assert_eq!(incident.evidence.matches("(cut)").count(), 4);
    assert!(incident.testimony.iter().all(|t| t.text.is_empty()), "once");
}

#[test]
fn what_one_device_takes_along_is_one_fault_and_the_first_is_the_gangs() {
    let mut w = World::new(small(Mode::Async, 6), 1);
    w.until("two steps", LONG, |w| w.committed() == 2);
    let engine = id(Role::Rollout, 1);
    let agent = id(Role::Agent, 0);
    let users = vec![w.life(agent), w.life(engine), w.life(T1)];
    w.feed(Input::Node(
        NodeId::LEADER,
        NodeEvent::Hardware {
            device: 0,
            finding: Finding {
                kind: FindingKind::DeviceLost,
                text: "gone".to_owned(),
            },
            users,
        },
    ));
    let all: Vec<_> = w.core.view(w.now).incidents;
    let all: Vec<_> = all.iter().map(|i| (i.who, i.under)).collect();
    let first = Some(IncidentId(1));
    assert_eq!(all, [(T1, None), (agent, first), (engine, first)]);
    for who in [engine, agent] {
        assert_eq!(w.core.failures_in_a_row(who, FaultKind::Hardware), 0);
    }
}
