//! Faults of nodes: which count, what they count for, and who is cordoned for them.
use super::nodes::{lose, node, on, slot, step_two};
use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// So far apart two deaths are two faults.
const APART: Duration = Duration::from_secs(6);

const R2: InstanceId = InstanceId {
    role: Role::Rollout,
    index: 2,
};

/// Two rollouts on the leader's node `a`, the third alone on `b`, and these nodes beside them.
fn with(others: &[(&str, u32)]) -> World {
    silent_after(MINUTE * 60, others)
}

/// The same, where a node that is not heard for so long is lost.
fn silent_after(window: Duration, others: &[(&str, u32)]) -> World {
    cordoning_after(3, window, others)
}

/// The same, where so many faults cordon a node.
fn cordoning_after(cordon_after: u32, window: Duration, others: &[(&str, u32)]) -> World {
    let all = [("train", 2), ("rollout", 2), ("agent", 2)];
    let mut nodes = vec![node("a", "x", &all), node("b", "x", &[("rollout", 1)])];
    nodes.extend(
        others
            .iter()
            .map(|(name, slots)| node(name, "x", &[("rollout", *slots)])),
    );
    let config = CoreConfig {
        rollouts: 3,
        cordon_after,
        rules: quick_rules().with(|r| r.node_lost.window.set(window)),
        ..small(Mode::Async, 1000)
    };
    let mut w = on(nodes, config);
    step_two(&mut w);
    assert_eq!(node_of(&w, R2), "b");
    w
}

fn node_of(w: &World, who: InstanceId) -> String {
    let slot = slot(w, who).unwrap();
    w.core.node(slot.node).unwrap().name.clone()
}

fn seen(w: &World, name: &str) -> NodeView {
    let nodes = w.core.view(w.now).nodes;
    nodes
        .into_iter()
        .find(|n| n.node.spec.name == name)
        .unwrap()
}

/// Faults of a node, and whether it is cordoned for them.
fn faults(w: &World, name: &str) -> (u32, bool) {
    let seen = seen(w, name);
    assert_eq!(seen.node.cordoned, seen.node.faults.cordoned());
    (seen.faults, seen.node.cordoned)
}

/// It runs again, and a while went by.
fn settle(w: &mut World, who: InstanceId) {
    w.until("it serves again", MINUTE, |w| {
        let view = w.core.view(w.now);
        let there = view.instances.iter().find(|i| i.id == who);
        there.is_some_and(|i| i.state == InstanceState::Running && i.admitted)
    });
    w.run_for(APART);
}

fn die(w: &mut World, who: InstanceId, times: u32) {
    for _ in 0..times {
        w.kill(who);
        w.run_for(ms(500));
        settle(w, who);
    }
}

#[test]
fn a_node_on_which_a_place_dies_again_and_again_is_cordoned_and_left() {
    let mut w = with(&[("c", 2)]);
    die(&mut w, R2, 2);
    assert_eq!(faults(&w, "b"), (2, false));
    assert_eq!(node_of(&w, R2), "b", "until then it starts where it was");
    die(&mut w, R2, 1);
    assert_eq!(faults(&w, "b"), (3, true));
    assert_eq!(node_of(&w, R2), "c");
    let plan = w.incidents().last().unwrap().plan.clone();
    let tail = "rollout-2 moves to slot 0 of pool `rollout` on c";
    assert!(plan.ends_with(tail), "{plan}");
    assert_eq!(faults(&w, "a"), (0, false));
    assert_eq!(faults(&w, "c"), (0, false));
}

#[test]
fn what_an_operator_injects_counts_on_no_node() {
    let mut w = with(&[("c", 2)]);
    for _ in 0..4 {
        w.inject(Fault::Kill, Role::Rollout, 2);
        w.run_for(ms(500));
        settle(&mut w, R2);
    }
    assert_eq!(w.incidents().len(), 4);
    assert_eq!(faults(&w, "b"), (0, false));
}

#[test]
fn what_fails_on_a_node_that_an_operator_lost_is_not_its_own_until_a_while_after() {
    let mut w = with(&[("c", 2)]);
    let node = "b".to_owned();
    let fault = Fault::LoseNode { node };
    w.feed(Input::Operator(TICKET, Request::Afflict { fault }));
    die(&mut w, R2, 1);
    assert_eq!(w.incidents().len(), 1);
    assert_eq!(faults(&w, "b"), (0, false));
}

#[test]
fn a_device_that_fails_is_one_fault_of_its_node() {
    let mut w = with(&[("c", 2)]);
    w.device(R2, true);
    w.run_for(ms(500));
    settle(&mut w, R2);
    assert_eq!(faults(&w, "b"), (1, false));
    assert_eq!(node_of(&w, R2), "c");
}

#[test]
fn a_node_stays_in_use_where_somebody_there_has_no_other_place() {
    let mut w = with(&[]);
    die(&mut w, R2, 5);
    assert_eq!(faults(&w, "b"), (5, false));
    assert_eq!(node_of(&w, R2), "b");
}

#[test]
fn a_job_on_one_node_cordons_nothing() {
    let pools = [("train", 2), ("rollout", 4), ("agent", 2)];
    let mut w = on(vec![node("a", "x", &pools)], small(Mode::Async, 1000));
    step_two(&mut w);
    die(&mut w, R2, 5);
    assert_eq!(faults(&w, "a"), (5, false));
}

#[test]
fn zero_as_the_threshold_cordons_nothing() {
    let mut w = cordoning_after(0, MINUTE * 60, &[("c", 2)]);
    die(&mut w, R2, 5);
    assert_eq!(faults(&w, "b"), (5, false));
}

#[test]
fn a_node_cordoned_for_its_faults_is_used_again_before_anybody_waits_for_a_slot() {
    let mut w = with(&[("c", 1)]);
    die(&mut w, R2, 3);
    assert_eq!(
        (faults(&w, "b"), node_of(&w, R2)),
        ((3, true), "c".to_owned())
    );
    lose(&mut w, R2);
    settle(&mut w, R2);
    assert_eq!(
        (faults(&w, "b"), node_of(&w, R2)),
        ((3, false), "b".to_owned())
    );
}

#[test]
fn an_operator_lets_a_node_in_again_and_its_faults_are_forgotten() {
    let mut w = with(&[("c", 1)]);
    die(&mut w, R2, 3);
    let node = "b".to_owned();
    w.feed(Input::Operator(TICKET, Request::Uncordon { node }));
    assert_eq!(faults(&w, "b"), (0, false));
    assert!(seen(&w, "b").node.faults.is_empty());
}

#[test]
fn an_operator_makes_a_cordon_for_faults_his_own_and_it_stays_though_somebody_waits() {
    let mut w = with(&[("c", 1)]);
    die(&mut w, R2, 3);
    let request = || {
        let node = "b".to_owned();
        Input::Operator(TICKET, Request::Cordon { node })
    };
    w.feed(request());
    let b = seen(&w, "b");
    assert!(b.node.cordoned && !b.node.faults.cordoned());
    w.feed(request());
    assert_eq!(seen(&w, "b"), b, "the second time there is nothing to do");
    lose(&mut w, R2);
    w.run_for(APART);
    assert_eq!(slot(&w, R2), None);
}

#[test]
fn the_faults_of_a_node_survive_the_daemon() {
    let mut w = with(&[("c", 2)]);
    die(&mut w, R2, 2);
    let before = seen(&w, "b").node.faults;
    w.crash_daemon();
    w.run_for(APART);
    settle(&mut w, R2);
    assert_eq!(seen(&w, "b").node.faults, before);
    let stored = serde_json::to_string(&before).unwrap();
    assert_eq!(serde_json::from_str::<Faults>(&stored).unwrap(), before);
}

#[test]
fn a_node_without_faults_is_stored_as_it_was_before_there_were_any() {
    let w = with(&[]);
    let stored = serde_json::to_value(&seen(&w, "b").node).unwrap();
    assert!(stored.get("faults").is_none(), "{stored}");
    let read: Node = serde_json::from_value(stored).unwrap();
    assert_eq!(read, seen(&w, "b").node);
}

#[test]
fn a_node_that_is_lost_has_one_fault_whoever_was_there_and_one_that_said_so_has_none() {
    for leaves in [false, true] {
        let mut w = silent_after(Duration::from_secs(20), &[("c", 2)]);
        let (b, c) = (w.core.node_id("b").unwrap(), w.core.node_id("c").unwrap());
        if leaves {
            let reason = "its machine is taken away".to_owned();
            w.feed(Input::Node(b, NodeEvent::Leaving { reason }));
        }
        for _ in 0..25 {
            w.run_for(Duration::from_secs(1));
            w.feed(Input::Node(c, NodeEvent::Beat));
        }
        assert_eq!(seen(&w, "b").node.state, NodeState::Lost);
        assert_eq!(
            faults(&w, "b"),
            (u32::from(!leaves), false),
            "leaves: {leaves}"
        );
    }
}

#[test]
fn a_hang_counts_on_the_node_of_its_root() {
    let nodes = vec![
        node("a", "x", &[("train", 1), ("rollout", 2), ("agent", 2)]),
        node("b", "x", &[("train", 1)]),
    ];
    let config = CoreConfig {
        rollouts: 2,
        rules: quick_rules().with(|r| r.node_lost.window.set(MINUTE * 60)),
        ..small(Mode::Async, 1000)
    };
    let mut w = on(nodes, config);
    step_two(&mut w);
    let rank = id(Role::Trainer, 1);
    assert_eq!(node_of(&w, rank), "b");
    w.until("it computes", MINUTE, |w| {
        w.instance(rank).phase == robust_shared::phase::Phase::Update
    });
    w.stop(rank);
    w.until("it is found", MINUTE, |w| {
        w.incidents().iter().any(|i| i.root.is_some())
    });
    assert_eq!(w.incidents()[0].who, rank);
    assert_eq!((faults(&w, "a").0, faults(&w, "b").0), (0, 1));
}

/// One that still runs on a node that is cordoned for its faults, and has no free slot elsewhere any more, is started
/// anew where it is: nobody else would ever make room for it.
#[test]
fn a_restart_of_who_still_runs_on_a_cordoned_node_does_not_wait_for_ever() {
    let all = [("train", 2), ("rollout", 2), ("agent", 2)];
    let nodes = vec![
        node("a", "x", &all),
        node("b", "x", &[("rollout", 2)]),
        node("c", "x", &[("rollout", 2)]),
    ];
    let config = CoreConfig {
        rollouts: 4,
        cordon_after: 3,
        rules: quick_rules().with(|r| r.node_lost.window.set(MINUTE * 60)),
        ..small(Mode::Async, 1000)
    };
    let mut w = on(nodes, config);
    step_two(&mut w);
    let (stays, last) = (id(Role::Rollout, 3), id(Role::Rollout, 4));
    die(&mut w, R2, 3);
    assert_eq!(
        (node_of(&w, R2), node_of(&w, stays)),
        ("c".into(), "b".into())
    );
    assert!(faults(&w, "b").1);
    let scale = Request::Scale {
        role: Role::Rollout,
        count: 5,
        revision: 1,
    };
    w.feed(Input::Operator(TICKET, scale));
    settle(&mut w, last);
    assert_eq!(node_of(&w, last), "c");
    let life = |w: &World| w.instance(stays).incarnation;
    let before = life(&w);
    let target = RestartTarget::Role(Role::Rollout);
    w.feed(Input::Operator(TICKET, Request::Restart { target }));
    w.until("it is restarted", MINUTE, |w| life(w) > before);
    settle(&mut w, stays);
    assert_eq!((node_of(&w, stays), faults(&w, "b").1), ("b".into(), false));
}

#[test]
fn nodes_that_fall_silent_at_about_the_same_time_have_no_fault_of_their_own() {
    let mut w = silent_after(Duration::from_secs(20), &[("c", 2)]);
    let (b, c) = (w.core.node_id("b").unwrap(), w.core.node_id("c").unwrap());
    // Nobody is on the first, or the others would start there.
    w.feed(Input::Node(c, NodeEvent::Beat));
    w.run_for(ms(800));
    w.feed(Input::Node(b, NodeEvent::Beat));
    for _ in 0..25 {
        w.run_for(Duration::from_secs(1));
        w.feed(Input::Node(NodeId::LEADER, NodeEvent::Beat));
    }
    for name in ["b", "c"] {
        assert_eq!(seen(&w, name).node.state, NodeState::Lost, "{name}");
        assert_eq!(faults(&w, name), (0, false), "{name}");
    }
}
