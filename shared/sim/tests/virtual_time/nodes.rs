//! Slots that are lost, nodes that come and go, ranks that take a rollout's slot.
use super::*;
use std::collections::BTreeMap;

const MINUTE: Duration = Duration::from_secs(60);

/// A node with slots by pool, in a data centre.
pub(super) fn node(name: &str, dc: &str, pools: &[(&str, u32)]) -> NodeSpec {
    let pools = pools.iter().map(|(pool, n)| ((*pool).to_owned(), *n));
    NodeSpec {
        name: name.to_owned(),
        labels: Labels {
            dc: dc.to_owned(),
            ..Labels::default()
        },
        pools: pools.collect::<BTreeMap<_, _>>(),
    }
}

/// A job on these nodes, all of which have joined.
pub(super) fn on(nodes: Vec<NodeSpec>, config: CoreConfig) -> World {
    let others = nodes[1..].to_vec();
    let mut w = World::new(CoreConfig { nodes, ..config }, 5);
    w.check_core = true;
    for node in others {
        let running = Vec::new();
        w.feed(Input::NodeJoined { node, running });
    }
    w
}

fn one_node(mode: Mode, ranks: u32, rollouts: u32) -> World {
    let pools = [("train", ranks), ("rollout", rollouts), ("agent", 2)];
    let config = CoreConfig {
        rollouts,
        ..small(mode, 6)
    };
    on(vec![node("a", "x", &pools)], config)
}

pub(super) fn slot(w: &World, who: InstanceId) -> Option<SlotRef> {
    w.instance(who).slot
}

pub(super) fn step_two(w: &mut World) {
    w.until("step 2", MINUTE, |w| w.committed() == 2);
}

pub(super) fn lose(w: &mut World, who: InstanceId) -> SlotRef {
    let lost = slot(w, who).unwrap();
    w.inject(Fault::LoseSlot, who.role, who.index);
    lost
}

fn restore(w: &mut World, slot: &SlotRef) {
    let node = w.core.node(slot.node).unwrap().name.clone();
    w.feed(Input::Operator(
        TICKET,
        Request::RestoreSlot {
            node,
            pool: slot.pool.clone(),
            index: slot.index,
        },
    ));
}

const T1: InstanceId = InstanceId {
    role: Role::Trainer,
    index: 1,
};
const R2: InstanceId = InstanceId {
    role: Role::Rollout,
    index: 2,
};

#[test]
fn a_rank_that_lost_its_slot_moves_to_a_free_one_of_its_pool() {
    let mut w = one_node(Mode::Sync, 3, 3);
    step_two(&mut w);
    let lost = lose(&mut w, T1);
    w.run_to_end();
    let incidents = w.incidents();
    assert_eq!(incidents.len(), 1);
    assert_eq!(
        incidents[0].plan,
        "restart the trainer gang from step 2 and train step 3 again; rollouts and \
         agents go on; trainer-1 moves to slot 2 of pool `train` on a"
    );
    assert_ne!(slot(&w, T1), Some(lost));
    assert_eq!(w.committed(), 6);
}

#[test]
fn a_rank_without_a_free_slot_takes_a_rollouts_and_the_rollout_comes_back_with_a_slot() {
    for mode in [Mode::Async, Mode::SemiSync] {
        let mut w = one_node(mode, 2, 3);
        step_two(&mut w);
        let lost = lose(&mut w, T1);
        w.until("the gang is back", MINUTE, |w| w.committed() == 4);
        let incident = w.incidents()[0].clone();
        assert_eq!(
            incident.plan,
            "restart the trainer gang from step 2 and train step 3 again; rollouts and \
             agents go on; trainer-1 takes rollout-2's slot 2 of pool `rollout` on a, \
             rollout-2's requests go on elsewhere and it starts again when a slot is free"
        );
        assert_eq!(incident.outcome, IncidentOutcome::Recovered);
        assert_eq!(slot(&w, R2), None);
        restore(&mut w, &lost);
        assert_eq!(slot(&w, R2), Some(lost), "it lives where the rank lived");
        w.run_to_end();
        assert_eq!((w.committed(), w.incidents().len()), (6, 1));
    }
}

#[test]
fn a_slot_that_no_rollout_has_is_taken_before_one_that_a_rollout_has() {
    let pools = [("train", 2), ("rollout", 4), ("agent", 2)];
    let mut w = on(vec![node("a", "x", &pools)], small(Mode::Async, 6));
    step_two(&mut w);
    let before = w.core.inspect().lives(Role::Rollout);
    lose(&mut w, T1);
    w.run_to_end();
    let plan = &w.incidents()[0].plan;
    let tail = "; trainer-1 moves to slot 3 of pool `rollout` on a";
    assert!(plan.ends_with(tail), "{plan}");
    assert_eq!(w.core.inspect().lives(Role::Rollout), before);
}

#[test]
fn a_node_that_is_heard_every_second_is_never_lost() {
    let nodes = vec![
        node("a", "x", &[("train", 2), ("rollout", 3), ("agent", 2)]),
        node("b", "x", &[("rollout", 1)]),
    ];
    let config = CoreConfig {
        rules: RuleSet::default(),
        ..small(Mode::Async, 1_000_000)
    };
    let mut w = on(nodes, config);
    let b = w.core.node_id("b").unwrap();
    for _ in 0..120 {
        w.run_for(Duration::from_secs(1));
        w.feed(Input::Node(b, NodeEvent::Beat));
    }
    assert!(w.incidents().is_empty());
    w.until("it is lost", Duration::from_secs(6), |w| {
        w.core.node_state(b) == Some(NodeState::Lost)
    });
}

#[test]
fn a_recovery_does_not_wait_for_who_has_no_slot() {
    let pools = [("train", 2), ("rollout", 3), ("agent", 2)];
    let mut w = on(vec![node("a", "x", &pools)], small(Mode::Async, 40));
    step_two(&mut w);
    lose(&mut w, T1);
    for rank in [T0, T1] {
        w.until("it trains", MINUTE, |w| {
            let rank = w.instance(rank);
            rank.phase == robust_shared::phase::Phase::Update && rank.restarts > 0
        });
        w.kill(rank);
        w.run_for(ms(50));
    }
    w.until("all of it is back", MINUTE, |w| {
        let back = |i: &Incident| i.outcome == IncidentOutcome::Recovered;
        let incidents = w.incidents();
        incidents.len() >= 3 && incidents.iter().all(back)
    });
    let plans: Vec<_> = w.incidents().iter().map(|i| i.plan.clone()).collect();
    assert!(
        plans
            .iter()
            .any(|p| p.starts_with("restart the whole task")),
        "{plans:?}"
    );
    assert_eq!(slot(&w, R2), None, "it still waits");
}

#[test]
fn a_leader_that_stood_still_hears_its_nodes_before_it_gives_them_up() {
    let nodes = vec![
        node("a", "x", &[("train", 2), ("rollout", 3), ("agent", 2)]),
        node("b", "x", &[("rollout", 1)]),
    ];
    let mut w = on(nodes, small(Mode::Async, 40));
    let b = w.core.node_id("b").unwrap();
    let state = |w: &World| w.core.node_state(b).unwrap();
    w.run_for(Duration::from_secs(1));
    let later = w.now + Duration::from_secs(10);
    w.core.handle(later, Input::Timeout);
    assert_eq!(state(&w), NodeState::Here);
    while state(&w) == NodeState::Here {
        let due = w.core.next_timeout().unwrap();
        assert!(due <= later + Duration::from_secs(6), "it is watched again");
        w.core.handle(due, Input::Timeout);
    }
}

#[test]
fn warm_standby_is_refused_with_its_reason_and_the_gang_waits_for_a_slot() {
    let far = |nodes: &mut Vec<NodeSpec>| {
        nodes[0].pools.insert("rollout".to_owned(), 0);
        nodes.push(node("b", "elsewhere", &[("rollout", 3)]));
    };
    type Change = fn(&mut Vec<NodeSpec>);
    let rows: [(Mode, u32, Change, &str); 3] = [
        (
            Mode::Sync,
            3,
            |_| {},
            "no rollout gives up its slot in sync mode",
        ),
        (
            Mode::Async,
            1,
            |_| {},
            "the last rollout does not give up its slot",
        ),
        (
            Mode::Async,
            3,
            far,
            "no rollout has a slot of the same accelerator in the same data centre",
        ),
    ];
    for (mode, rollouts, change, why) in rows {
        let pools = [("train", 2), ("rollout", rollouts), ("agent", 2)];
        let mut nodes = vec![node("a", "x", &pools)];
        change(&mut nodes);
        let mut w = on(
            nodes,
            CoreConfig {
                rollouts,
                rules: quick_rules().with(|r| r.node_lost.window.set(ms(1_000_000_000))),
                ..small(mode, 6)
            },
        );
        step_two(&mut w);
        let lost = lose(&mut w, T1);
        w.run_for(MINUTE);
        let plan = &w.incidents()[0].plan;
        let tail = format!("; trainer-1 waits for a slot: {why}");
        assert!(plan.ends_with(&tail), "{plan}");
        assert_eq!((w.committed(), w.incidents().len()), (2, 1), "it waits");
        restore(&mut w, &lost);
        w.run_to_end();
        assert_eq!((w.committed(), w.incidents().len()), (6, 1));
    }
}

#[test]
fn a_lost_node_is_one_incident_for_the_gang_and_one_for_every_other_instance() {
    let nodes = vec![
        node("a", "x", &[("train", 2), ("rollout", 2), ("agent", 1)]),
        node("b", "x", &[("train", 1), ("rollout", 2), ("agent", 2)]),
    ];
    let config = CoreConfig {
        ranks: 3,
        prompts: 3,
        rollouts: 4,
        // The windows of a real job: the node's heartbeat stops before its roles seem silent.
        rules: RuleSet::default(),
        ..small(Mode::Async, 6)
    };
    let mut w = on(nodes, config);
    let b = w.core.node_id("b").unwrap();
    let beat = |w: &mut World| w.feed(Input::Node(b, NodeEvent::Beat));
    while w.committed() < 2 {
        w.run_for(Duration::from_secs(1));
        beat(&mut w);
    }
    let on_b: Vec<_> = w.core.view(w.now).instances;
    let on_b = on_b.iter().filter(|i| i.slot.as_ref().unwrap().node == b);
    let on_b: Vec<_> = on_b.map(|i| (i.id, i.incarnation)).collect();
    assert_eq!(on_b.len(), 4, "a rank, two rollouts and an agent");
    for (_, life) in &on_b {
        w.procs.get_mut(life).unwrap().alive = false;
    }
    w.until("it is lost", MINUTE, |w| !w.incidents().is_empty());
    let incidents = w.incidents();
    let rules: Vec<_> = incidents.iter().map(|i| (i.who, i.rule.clone())).collect();
    assert!(
        rules.iter().all(|(_, rule)| rule == "node lost"),
        "{rules:?}"
    );
    assert_eq!(incidents.len(), on_b.len());
    // All come from the same loss: it counts for the gang, and for nobody a second time.
    let first = incidents[0].id;
    assert_eq!(
        (incidents[0].who.role, incidents[0].under),
        (Role::Trainer, None)
    );
    for folded in &incidents[1..] {
        assert_eq!(folded.under, Some(first));
        let counted = w.core.failures_in_a_row(folded.who, FaultKind::Node);
        assert_eq!(counted, 0, "{folded:?}");
    }
    let why = &incidents[0].reason;
    assert!(why.starts_with("its node b was not heard for 5."), "{why}");
    let rank = incidents.iter().find(|i| i.who.role == Role::Trainer);
    assert!(rank.unwrap().plan.contains("takes rollout-1's slot"));
    // It comes back, with what it still runs.
    let running: Vec<_> = on_b.iter().map(|(_, life)| *life).collect();
    let spec = w.core.node(b).unwrap().clone();
    w.core.handle(
        w.now,
        Input::NodeJoined {
            node: spec,
            running: running.clone(),
        },
    );
    let outputs: Vec<_> = std::iter::from_fn(|| w.core.poll_output()).collect();
    let fenced = outputs.iter().filter_map(|o| match o {
        Output::Fence { incarnation, node } if *node == b => Some(*incarnation),
        _ => None,
    });
    assert_eq!(fenced.collect::<Vec<_>>(), running, "I-1");
    let spawned = outputs
        .iter()
        .any(|o| matches!(o, Output::Spawn { node, .. } if *node == b));
    assert!(spawned, "the homeless live there again");
}

#[test]
fn an_engine_of_several_slots_does_not_lodge_in_the_slot_of_a_rank() {
    for (rollout_slots, lodges) in [(1, true), (2, false)] {
        let pools = [("train", 2), ("rollout", 3), ("agent", 2)];
        let config = CoreConfig {
            rollout_slots,
            ..small(Mode::Async, 1000)
        };
        let mut w = on(vec![node("a", "x", &pools)], config);
        step_two(&mut w);
        let lost = lose(&mut w, T1);
        w.until("the rank has a rollout's slot", MINUTE, |w| {
            slot(w, T1).is_some_and(|s| s.pool == "rollout")
        });
        restore(&mut w, &lost);
        w.run_for(MINUTE);
        assert_eq!(slot(&w, R2).is_some(), lodges, "{rollout_slots} slots");
    }
}

#[test]
fn places_of_a_node_that_has_not_joined_wait_for_it() {
    let nodes = vec![
        node("a", "x", &[("train", 2), ("rollout", 1), ("agent", 2)]),
        node("b", "x", &[("rollout", 2)]),
    ];
    let config = CoreConfig {
        nodes: nodes.clone(),
        ..small(Mode::Async, 3)
    };
    let mut w = World::new(config, 2);
    w.until("step 1", MINUTE, |w| w.committed() == 1);
    assert_eq!((slot(&w, R2), w.life(R2)), (None, Incarnation(0)));
    let (node, running) = (nodes[1].clone(), Vec::new());
    w.feed(Input::NodeJoined { node, running });
    assert_eq!(slot(&w, R2).unwrap().node, NodeId(1));
    assert!(w.incidents().is_empty());
}

#[test]
fn a_rank_waits_for_its_node_to_join_and_takes_no_rollouts_slot_meanwhile() {
    let nodes = vec![
        node("a", "x", &[("train", 1), ("rollout", 3), ("agent", 2)]),
        node("b", "x", &[("train", 1)]),
    ];
    let config = CoreConfig {
        nodes: nodes.clone(),
        ..small(Mode::Async, 3)
    };
    let mut w = World::new(config, 2);
    w.run_for(MINUTE);
    assert_eq!((w.committed(), slot(&w, T1)), (0, None));
    assert!(slot(&w, R2).is_some());
    let (node, running) = (nodes[1].clone(), Vec::new());
    w.feed(Input::NodeJoined { node, running });
    assert_eq!(slot(&w, T1).unwrap().node, NodeId(1));
    w.until("step 1", MINUTE, |w| w.committed() == 1);
    assert!(w.incidents().is_empty());
}

#[test]
fn nothing_new_is_started_on_a_cordoned_node_and_what_runs_there_goes_on() {
    let nodes = vec![
        node("a", "x", &[("train", 2), ("rollout", 2), ("agent", 2)]),
        node("b", "x", &[("rollout", 2)]),
    ];
    let config = CoreConfig {
        rules: quick_rules().with(|r| r.node_lost.window.set(ms(1_000_000_000))),
        ..small(Mode::Async, 200)
    };
    let mut w = on(nodes, config);
    step_two(&mut w);
    let b = "b".to_owned();
    let cordon = |node| Input::Operator(TICKET, Request::Cordon { node });
    w.feed(cordon(b.clone()));
    assert!(slot(&w, R2).is_some());
    w.kill(R2);
    w.run_for(Duration::from_secs(5));
    assert_eq!(slot(&w, R2), None, "it waits");
    assert!(
        w.incidents()[0]
            .plan
            .ends_with("waits for a slot: no slot is free")
    );
    w.feed(Input::Operator(TICKET, Request::Uncordon { node: b }));
    assert_eq!(slot(&w, R2).unwrap().node, NodeId(1));
    w.run_to_end();
}

#[test]
fn requests_about_nodes_and_slots_that_are_not_there_are_refused() {
    let mut w = one_node(Mode::Async, 2, 3);
    w.run_for(Duration::from_secs(2));
    let nodes = |w: &World| {
        let nodes = w.core.view(w.now).nodes.into_iter();
        nodes.map(|n| n.node).collect::<Vec<_>>()
    };
    let before = nodes(&w);
    let node = "a".to_owned();
    let slot = |node: &str, pool: &str, index| Request::RestoreSlot {
        node: node.to_owned(),
        pool: pool.to_owned(),
        index,
    };
    for (request, words) in [
        (
            Request::Cordon {
                node: "z".to_owned(),
            },
            "there is no node `z`; the job's nodes are `a`",
        ),
        (
            Request::Uncordon { node },
            "nothing to do: node `a` is not cordoned",
        ),
        (
            slot("a", "train", 7),
            "node `a` has no slot 7 of pool `train`; it has agent 2, rollout 3, train 2",
        ),
        (
            slot("a", "train", 1),
            "nothing to do: slot 1 of pool `train` on node `a` is not out of use",
        ),
    ] {
        w.core.handle(w.now, Input::Operator(TICKET, request));
        let reply = std::iter::from_fn(|| w.core.poll_output()).find_map(|o| match o {
            Output::Reply { result, .. } => Some(result),
            _ => None,
        });
        assert_eq!(reply.unwrap().unwrap_err().to_string(), words);
    }
    assert_eq!(nodes(&w), before);
}

#[test]
fn a_gang_that_lost_all_its_slots_moves_whole_to_where_there_is_room_for_it() {
    let nodes = vec![
        node("a", "x", &[("rollout", 3), ("agent", 2)]),
        node("b", "x", &[("train", 2)]),
        node("c", "y", &[("train", 2)]),
    ];
    let config = CoreConfig {
        rules: quick_rules().with(|r| r.node_lost.window.set(ms(1_000_000_000))),
        ..small(Mode::Sync, 4)
    };
    let mut w = on(nodes, config);
    step_two(&mut w);
    let home = slot(&w, T1).unwrap().node;
    let (node, reason) = (home, "maintenance".to_owned());
    for index in 0..2 {
        w.kill(id(Role::Trainer, index));
    }
    w.feed(Input::Node(node, NodeEvent::Left { reason }));
    w.run_to_end();
    let homes = [0, 1].map(|index| slot(&w, id(Role::Trainer, index)).unwrap().node);
    assert_ne!(homes[0], home);
    assert_eq!(homes[0], homes[1], "in one data centre");
    assert_eq!((w.committed(), w.incidents().len()), (4, 1));
}

#[test]
fn a_node_that_will_leave_is_left_in_good_order_and_may_be_used_again_when_it_is_back() {
    let full = [("train", 1), ("rollout", 1), ("agent", 1)];
    let nodes = || {
        let spare = [("train", 1), ("rollout", 2), ("agent", 1)];
        vec![
            node("a", "x", &full),
            node("b", "x", &full),
            node("c", "x", &spare),
        ]
    };
    let config = CoreConfig {
        rules: quick_rules().with(|r| r.node_lost.window.set(ms(1_000_000_000))),
        ..small(Mode::Async, 60)
    };
    let mut w = on(nodes(), config);
    step_two(&mut w);
    let there = |w: &World| {
        let all = w.core.view(w.now).instances.into_iter();
        let slots = all.filter_map(|i| i.slot);
        slots.filter(|slot| slot.node == NodeId(1)).count()
    };
    assert!(there(&w) > 0);
    let reason = "maintenance".to_owned();
    w.feed(Input::Node(NodeId(1), NodeEvent::Leaving { reason }));
    w.until("nobody is there", MINUTE, |w| there(w) == 0);
    let reason = "it is over".to_owned();
    w.feed(Input::Node(NodeId(1), NodeEvent::Left { reason }));
    assert_eq!(w.incidents().len(), 0, "nothing was lost with it");
    let its = SlotRef {
        node: NodeId(1),
        pool: "rollout".to_owned(),
        index: 0,
    };
    assert!(!w.core.inspect().is_usable(&its));
    w.feed(Input::NodeJoined {
        node: nodes().remove(1),
        running: Vec::new(),
    });
    assert!(w.core.inspect().is_usable(&its), "it is back");
    w.run_to_end();
    assert_eq!(w.incidents().len(), 0);
}

/// A leader that ends soon after the node has joined it anew may not have written that down; the next one found the
/// node about to leave and moved who was well there.
#[test]
fn a_node_that_said_it_would_leave_says_so_again_to_whoever_goes_on_with_the_job() {
    let full = [("train", 1), ("rollout", 1), ("agent", 1)];
    let nodes = vec![node("a", "x", &full), node("b", "x", &full)];
    let mut w = on(nodes, small(Mode::Async, 60));
    step_two(&mut w);
    let reason = "maintenance".to_owned();
    w.feed(Input::Node(NodeId(1), NodeEvent::Leaving { reason }));
    let leaves = |core: &Core| core.view(w.now).nodes[1].node.leaving;
    assert!(leaves(&w.core));
    let mut again = Core::restore(w.core.config().clone(), w.core.state().clone());
    again.handle(w.now + ms(1), Input::Start);
    assert!(!leaves(&again));
    let reason = "maintenance".to_owned();
    again.handle(
        w.now + ms(2),
        Input::Node(NodeId(1), NodeEvent::Leaving { reason }),
    );
    assert!(leaves(&again));
}
