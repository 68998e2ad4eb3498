//! Faults that were found on nodes before: what they count for where a slot is chosen, and beside those of others.
use super::script::Script;
use super::*;
use crate::core::recover::cause::Fingerprint;

/// So far apart two deaths are two faults.
const APART: Duration = Duration::from_secs(6);

const R2: InstanceId = InstanceId {
    role: Role::Rollout,
    index: 2,
};

fn node(name: &str, pools: &[(&str, u32)]) -> NodeSpec {
    let pools = pools.iter().map(|(pool, n)| ((*pool).to_owned(), *n));
    NodeSpec {
        name: name.to_owned(),
        labels: Labels::default(),
        pools: pools.collect(),
    }
}

/// Two rollouts on the leader's node `a`, the third alone on `b`, and these nodes beside them. Nothing is done between
/// two deaths, so budgets are wide.
fn with(others: &[(&str, u32)]) -> Script {
    let all = [("train", 2), ("rollout", 2), ("agent", 2)];
    let mut nodes = vec![node("a", &all), node("b", &[("rollout", 1)])];
    let others = others.iter();
    nodes.extend(others.map(|(name, slots)| node(name, &[("rollout", *slots)])));
    let joining = nodes[1..].to_vec();
    let general = Budget {
        max: 9,
        ..Budget::default()
    };
    let mut s = Script::new(CoreConfig {
        nodes,
        cordon_after: 3,
        same_cause: 0,
        budgets: Budgets {
            general,
            ..Budgets::default()
        },
        rules: quick_rules().with(|r| r.node_lost.window.set(Duration::from_secs(3600))),
        ..small(Mode::Async, 1000)
    });
    for node in joining {
        let running = Vec::new();
        s.feed(Input::NodeJoined { node, running });
    }
    assert_eq!(node_of(&s, R2), "b");
    s
}

fn node_of(s: &Script, who: InstanceId) -> String {
    let all = s.core.view(s.now).instances;
    let slot = all.into_iter().find(|i| i.id == who).unwrap().slot;
    s.core.node(slot.unwrap().node).unwrap().name.clone()
}

/// Faults of a node, and whether it is cordoned for them.
fn faults(s: &Script, name: &str) -> (u32, bool) {
    let mut nodes = s.core.view(s.now).nodes.into_iter();
    let seen = nodes.find(|n| n.node.spec.name == name).unwrap();
    assert_eq!(seen.node.cordoned, seen.node.faults.cordoned());
    (seen.faults, seen.node.faults.cordoned())
}

fn die(s: &mut Script, who: InstanceId, times: u32) {
    for _ in 0..times {
        let before = s.life(who);
        s.exits(who, Exit::Signal(9), "");
        s.now = s.now + APART;
        s.feed(Input::Timeout);
        assert!(s.life(who) > before, "it runs again");
    }
}

/// A fault that was found on a node. Whether it counts.
fn found(s: &mut Script, name: &str, at: Time, cause: Option<u64>) -> bool {
    let id = s.core.node_id(name).unwrap();
    let fault = NodeFault {
        at,
        incident: IncidentId(0),
        cause: cause.map(Fingerprint),
        common: false,
    };
    s.core.s.roster.nodes_mut().count_fault(id, fault)
}

/// So many were found on a node before.
fn had(s: &mut Script, name: &str, count: u32) {
    for before in (1..=count).rev() {
        let at = s.now - APART * before;
        assert!(found(s, name, at, None));
    }
}

#[test]
fn of_the_free_slots_one_is_taken_of_a_node_with_fewer_faults() {
    for (faulty, goes_to) in [(0, "c"), (1, "d")] {
        let mut s = with(&[("c", 1), ("d", 1)]);
        had(&mut s, "c", faulty);
        let request = Request::Inject {
            fault: Fault::LoseSlot,
            role: R2.role,
            index: Some(R2.index),
            incarnation: None,
            at: None,
        };
        s.feed(Input::Operator(TICKET, request));
        s.exits(R2, Exit::Signal(9), "");
        assert_eq!(node_of(&s, R2), goes_to, "{faulty} faults of c");
    }
}

#[test]
fn a_node_that_is_no_worse_than_others_is_not_cordoned() {
    let mut s = with(&[("c", 2)]);
    had(&mut s, "c", 2);
    die(&mut s, R2, 3);
    assert_eq!(faults(&s, "b"), (3, false));
    die(&mut s, R2, 1);
    assert_eq!(faults(&s, "b"), (4, true), "it has twice as many now");
}

#[test]
fn what_is_met_on_two_nodes_is_the_program_s_and_counts_on_neither() {
    let mut s = with(&[("c", 2)]);
    let now = s.now;
    assert!(found(&mut s, "b", now + APART, Some(1)));
    assert!(found(&mut s, "b", now + APART * 2, Some(2)));
    assert!(!found(&mut s, "c", now + APART * 3, Some(1)));
    assert!(
        !found(&mut s, "b", now + APART * 4, Some(1)),
        "nor from then on"
    );
    assert_eq!((faults(&s, "b").0, faults(&s, "c").0), (1, 0));
}
