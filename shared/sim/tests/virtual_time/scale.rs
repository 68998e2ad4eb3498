//! Roles that grow and shrink, get new values, and leave slots before those fail.
use super::*;
use robust_shared::hardware::{Finding, FindingKind};
use std::collections::BTreeMap;

const MINUTE: Duration = Duration::from_secs(60);

/// A job on one node with room for more than it begins with.
fn roomy(mode: Mode, steps: u64) -> CoreConfig {
    let pools = [("train", 4), ("rollout", 6), ("agent", 4)];
    let pools = pools.map(|(pool, n)| (pool.to_owned(), n));
    CoreConfig {
        nodes: vec![NodeSpec {
            name: "a".to_owned(),
            labels: Labels::default(),
            pools: BTreeMap::from(pools),
        }],
        ..small(mode, steps)
    }
}

fn world(config: CoreConfig) -> World {
    let mut w = World::new(config, 3);
    w.check_core = true;
    w.until("step 2", MINUTE, |w| w.committed() == 2);
    w
}

/// Asks the core itself; the world does what it wants then.
pub(super) fn ask(w: &mut World, request: Request) -> Result<Reply, String> {
    let mut probe = w.core.clone();
    probe.handle(w.now, Input::Operator(TICKET, request.clone()));
    let reply = std::iter::from_fn(|| probe.poll_output()).find_map(|o| match o {
        Output::Reply { result, .. } => Some(result),
        _ => None,
    });
    w.feed(Input::Operator(TICKET, request));
    reply.unwrap().map_err(|refusal| refusal.to_string())
}

fn scale(w: &mut World, role: Role, count: u32) -> Result<Reply, String> {
    let revision = 0;
    ask(
        w,
        Request::Scale {
            role,
            count,
            revision,
        },
    )
}

fn update(w: &mut World, role: Role, config: CoreConfig) -> Result<Reply, String> {
    let changes = vec!["a.key=1".to_owned()];
    ask(
        w,
        Request::Update {
            role,
            config: Box::new(config),
            revision: 7,
            changes,
        },
    )
}

fn count(w: &World, role: Role) -> u32 {
    u32::try_from(w.core.inspect().lives(role).len()).unwrap()
}

fn lives(w: &World, role: Role) -> Vec<Incarnation> {
    w.core.inspect().lives(role)
}

/// Nothing happened that counts as a fault.
fn no_faults(w: &World) {
    assert_eq!(w.incidents(), Vec::new());
    assert_eq!(w.core.inspect().task_restarts(), 0);
}

#[test]
fn rollouts_and_agents_join_and_leave_while_the_job_runs() {
    for role in [Role::Rollout, Role::Agent] {
        let mut w = world(roomy(Mode::Async, 60));
        let before = lives(&w, role);
        assert!(scale(&mut w, role, 4).is_ok());
        assert_eq!(count(&w, role), 4);
        w.until("the new ones serve", MINUTE, |w| {
            let all = w.core.view(w.now).instances;
            let mut of_role = all.iter().filter(|i| i.id.role == role);
            of_role.all(|i| i.state == InstanceState::Running)
        });
        assert_eq!(
            lives(&w, role)[..before.len()],
            before,
            "nobody was restarted"
        );
        assert!(scale(&mut w, role, 1).is_ok());
        w.until("they are gone", MINUTE, |w| count(w, role) == 1);
        assert_eq!(lives(&w, role), before[..1]);
        w.run_to_end();
        no_faults(&w);
        assert_eq!(w.committed(), 60);
    }
}

#[test]
fn one_that_is_to_go_stays_when_it_is_wanted_again() {
    let mut w = world(roomy(Mode::Async, 30));
    let before = lives(&w, Role::Agent);
    w.until("the last agent works", MINUTE, |w| {
        let last = count(w, Role::Agent) - 1;
        w.instance(id(Role::Agent, last)).running > 0
    });
    scale(&mut w, Role::Agent, 1).unwrap();
    scale(&mut w, Role::Agent, 2).unwrap();
    w.run_to_end();
    assert_eq!(lives(&w, Role::Agent), before);
    no_faults(&w);
}

#[test]
fn the_gang_grows_and_shrinks_at_a_step_boundary_without_a_fault() {
    for mode in [Mode::Async, Mode::Sync] {
        let mut w = world(roomy(mode, 30));
        let rollouts = lives(&w, Role::Rollout);
        for ranks in [4, 1, 2] {
            let reply = scale(&mut w, Role::Trainer, ranks).unwrap();
            assert!(matches!(reply, Reply::Scaled { to, .. } if to == ranks));
            let step = w.committed();
            w.until("it trains with them", MINUTE, |w| {
                count(w, Role::Trainer) == ranks && w.committed() >= step + 2
            });
        }
        w.run_to_end();
        no_faults(&w);
        assert_eq!(w.committed(), 30);
        assert_eq!(lives(&w, Role::Rollout), rollouts, "rollouts go on");
    }
}

#[test]
fn hybrid_engines_come_and_go_with_their_ranks() {
    let config = CoreConfig {
        hybrids: 2,
        ..roomy(Mode::SemiSync, 30)
    };
    let mut w = world(config);
    for ranks in [4, 2] {
        scale(&mut w, Role::Trainer, ranks).unwrap();
        let step = w.committed();
        w.until("it trains with them", MINUTE, |w| {
            count(w, Role::Trainer) == ranks && w.committed() >= step + 2
        });
        assert_eq!(count(&w, Role::Hybrid), ranks);
    }
    let refusal = scale(&mut w, Role::Hybrid, 1).unwrap_err();
    assert!(refusal.contains("scale `trainer`"), "{refusal}");
    w.run_to_end();
    no_faults(&w);
}

#[test]
fn what_cannot_be_is_refused_with_what_could_and_changes_nothing() {
    let mut config = roomy(Mode::Async, 30);
    for (role, min, max) in [(Role::Rollout, 2, 5), (Role::Trainer, 1, 8)] {
        let spec = RoleSpec {
            min,
            max,
            ..RoleSpec::of(role)
        };
        config.roles.insert(role, spec);
    }
    let mut w = world(config);
    let rows = [
        (
            Role::Rollout,
            1,
            "rollout cannot be 1: its minimum is 2; ask for at least 2 or lower `rollout.min`",
        ),
        (
            Role::Rollout,
            9,
            "rollout cannot be 9: its maximum is 5; ask for at most 5 or raise `rollout.max`",
        ),
        (Role::Rollout, 3, "nothing to do: rollout has 3 already"),
        (
            Role::Trainer,
            3,
            "3 ranks do not divide the 8 samples of a step; ask for one of 2, 4 or 1",
        ),
        (
            Role::Trainer,
            8,
            "trainer needs 4 more free slots of pool `train` and no node has them (`a`: 2 free); \
             add a node, restore a slot or scale down a role of that pool",
        ),
        (
            Role::Agent,
            9,
            "agent needs 5 more free slots of pool `agent` and no node has them (`a`: 2 free); add \
             a node, restore a slot or scale down a role of that pool",
        ),
    ];
    for (role, asked, words) in rows {
        let before = Role::ALL.map(|role| lives(&w, role));
        assert_eq!(scale(&mut w, role, asked).unwrap_err(), words);
        assert_eq!(Role::ALL.map(|role| lives(&w, role)), before);
    }
    scale(&mut w, Role::Trainer, 4).unwrap();
    let refusal = scale(&mut w, Role::Trainer, 1).unwrap_err();
    assert!(
        refusal.contains("another change of the trainer"),
        "{refusal}"
    );
    w.run_to_end();
    no_faults(&w);
}

#[test]
fn nothing_is_generated_before_enough_engines_serve() {
    let mut config = roomy(Mode::Async, 3);
    let spec = RoleSpec {
        n_init: 3,
        ..RoleSpec::of(Role::Rollout)
    };
    config.roles.insert(Role::Rollout, spec);
    let mut w = World::new(config, 3);
    let late = id(Role::Rollout, 2);
    w.doom(late, vec![Start::Mute]);
    w.kill(late);
    w.run_for(Duration::from_secs(5));
    let serve = w.core.inspect().serving(Role::Rollout);
    assert_eq!(
        (serve, w.routed_at.len()),
        (2, 0),
        "two of three wait for the third"
    );
    w.run_to_end();
    assert_eq!(w.committed(), 3);
}

#[test]
fn the_trainer_gets_new_values_at_a_step_boundary_and_rollouts_go_on() {
    let mut w = world(roomy(Mode::Async, 20));
    let (ranks, rollouts) = (lives(&w, Role::Trainer), lives(&w, Role::Rollout));
    let config = CoreConfig {
        prompts: 3,
        ..roomy(Mode::Async, 20)
    };
    update(&mut w, Role::Trainer, config).unwrap();
    w.until("new ranks", MINUTE, |w| lives(w, Role::Trainer) != ranks);
    assert_eq!(w.core.inspect().revision_of(Role::Trainer), 7);
    assert_eq!(w.core.inspect().revision_of(Role::Rollout), 0);
    w.run_to_end();
    no_faults(&w);
    assert_eq!(lives(&w, Role::Rollout), rollouts);
    let sizes: Vec<_> = w.trained.iter().map(|(_, _, batch)| batch.len()).collect();
    assert_eq!((sizes[0], sizes[sizes.len() - 1]), (8, 12), "{sizes:?}");
    assert!(sizes.is_sorted(), "no batch changes its shape: {sizes:?}");
}

#[test]
fn rollouts_get_new_values_one_after_the_other() {
    let mut w = world(roomy(Mode::Async, 60));
    let before = lives(&w, Role::Rollout);
    update(&mut w, Role::Rollout, roomy(Mode::Async, 60)).unwrap();
    let refusal = update(&mut w, Role::Rollout, roomy(Mode::Async, 60)).unwrap_err();
    assert!(
        refusal.contains("an update of rollout is under way"),
        "{refusal}"
    );
    while w.core.inspect().is_rolling() {
        w.step();
        let serve = w.core.inspect().serving(Role::Rollout);
        assert!(serve >= 2, "only one is away at a time");
    }
    let after = lives(&w, Role::Rollout);
    assert!(after.iter().all(|life| !before.contains(life)), "{after:?}");
    w.run_to_end();
    no_faults(&w);
}

#[test]
fn hybrid_engines_get_the_new_values_of_rollouts_while_it_is_their_turn() {
    let config = super::modes::hybrid(Mode::SemiSync, 40);
    let mut w = World::journaled(config.clone(), super::modes::long_tail(), 3);
    w.check_core = true;
    w.until("step 2", MINUTE, |w| w.committed() == 2);
    let (ranks, old) = (lives(&w, Role::Trainer), lives(&w, Role::Hybrid));
    update(&mut w, Role::Rollout, config).unwrap();
    w.until("new engines", MINUTE, |w| {
        let new = lives(w, Role::Hybrid);
        new.iter().all(|life| !old.contains(life)) && !w.core.inspect().is_rolling()
    });
    assert_eq!(w.core.inspect().revision_of(Role::Hybrid), 7);
    w.run_to_end();
    assert_eq!(lives(&w, Role::Trainer), ranks);
    no_faults(&w);
}

#[test]
fn nobody_who_works_is_stopped_for_a_change_to_wait_for_a_slot() {
    let mut w = world(roomy(Mode::Async, 400));
    let before = Role::ALL.map(|role| lives(&w, role));
    let node = "a".to_owned();
    w.feed(Input::Operator(
        TICKET,
        Request::Cordon { node: node.clone() },
    ));
    update(&mut w, Role::Trainer, roomy(Mode::Async, 400)).unwrap();
    update(&mut w, Role::Rollout, roomy(Mode::Async, 400)).unwrap();
    let step = w.committed();
    w.run_for(Duration::from_secs(5));
    assert!(w.committed() > step, "it goes on");
    assert_eq!(Role::ALL.map(|role| lives(&w, role)), before);
    w.feed(Input::Operator(TICKET, Request::Uncordon { node }));
    w.until("new lives", MINUTE, |w| {
        let new = |role: Role, old: &[Incarnation]| lives(w, role).iter().all(|l| !old.contains(l));
        new(Role::Trainer, &before[0]) && !w.core.inspect().is_rolling()
    });
    no_faults(&w);
}

fn shows(w: &mut World, kind: FindingKind, who: InstanceId) -> SlotRef {
    let i = w.instance(who);
    let (users, slot) = (vec![i.incarnation], i.slot.unwrap());
    let text = "as the driver says".to_owned();
    w.feed(Input::Node(
        NodeId::LEADER,
        NodeEvent::Hardware {
            device: 1,
            finding: Finding { kind, text },
            users,
        },
    ));
    slot
}

fn slot(w: &World, who: InstanceId) -> Option<SlotRef> {
    w.instance(who).slot
}

const R1: InstanceId = InstanceId {
    role: Role::Rollout,
    index: 1,
};

#[test]
fn a_rollout_leaves_a_slot_that_is_about_to_fail_when_its_turns_are_done() {
    let mut w = world(roomy(Mode::Async, 40));
    w.until("it works", MINUTE, |w| {
        w.core.inspect().requests_at(w.life(R1)) > 0
    });
    let old = w.life(R1);
    let left = shows(&mut w, FindingKind::EccCorrectedRising, R1);
    assert_eq!(w.life(R1), old, "it finishes its turns");
    w.until("it moves", MINUTE, |w| w.life(R1) != old);
    assert_ne!(slot(&w, R1), Some(left.clone()));
    w.run_to_end();
    no_faults(&w);
    let all = w.core.view(w.now).instances;
    let taken = all.iter().any(|i| i.slot.as_ref() == Some(&left));
    assert!(!taken, "nobody comes to it");
}

#[test]
fn a_rank_leaves_a_slot_that_is_about_to_fail_at_the_next_step_boundary() {
    let mut w = world(roomy(Mode::Async, 20));
    w.until("it trains", MINUTE, |w| {
        w.instance(T0).phase == robust_shared::phase::Phase::Update
    });
    let (old, step) = (w.life(T0), w.committed());
    let left = shows(&mut w, FindingKind::RowRemapPending, T0);
    w.until("the step is done", MINUTE, |w| w.committed() == step + 1);
    w.until("it moves", MINUTE, |w| w.life(T0) != old);
    assert_ne!(slot(&w, T0), Some(left));
    w.run_to_end();
    no_faults(&w);
}

#[test]
fn who_has_nowhere_to_go_stays_until_a_slot_is_free() {
    let mut config = roomy(Mode::Async, 400);
    config.nodes[0].pools.insert("rollout".to_owned(), 3);
    let mut w = world(config);
    let old = w.life(R1);
    let left = shows(&mut w, FindingKind::EccCorrectedRising, R1);
    w.run_for(Duration::from_secs(5));
    assert_eq!((w.life(R1), slot(&w, R1)), (old, Some(left)), "it works on");
    let running = Vec::new();
    let node = NodeSpec {
        name: "b".to_owned(),
        labels: Labels::default(),
        pools: BTreeMap::from([("rollout".to_owned(), 1)]),
    };
    w.feed(Input::NodeJoined { node, running });
    w.until("it moves", Duration::from_secs(4), |w| w.life(R1) != old);
    assert_eq!(slot(&w, R1).unwrap().node, NodeId(1));
    no_faults(&w);
}

#[test]
fn a_device_that_failed_takes_its_slot_along() {
    let mut w = world(roomy(Mode::Async, 20));
    let before = w.life(R1);
    let left = shows(&mut w, FindingKind::DeviceLost, R1);
    assert_ne!(slot(&w, R1), Some(left));
    let incidents = w.incidents();
    assert_eq!(
        (incidents.len(), incidents[0].rule.as_str()),
        (1, "hardware")
    );
    assert!(
        incidents[0]
            .plan
            .contains("rollout-1 moves to slot 3 of pool `rollout`"),
        "{}",
        incidents[0].plan
    );
    assert!(w.life(R1) > before);
    let restarted = w.life(R1);
    w.run_to_end();
    assert_eq!((w.life(R1), w.incidents().len()), (restarted, 1));
}

#[test]
fn a_device_that_is_heard_of_after_its_process_ended_is_left_all_the_same() {
    let mut w = world(roomy(Mode::Async, 20));
    let (old, left) = (w.life(R1), slot(&w, R1));
    w.kill(R1);
    w.until("its next life", MINUTE, |w| w.life(R1) > old);
    assert_eq!(slot(&w, R1), left);
    w.feed(Input::Node(
        NodeId::LEADER,
        NodeEvent::Hardware {
            device: 1,
            finding: Finding {
                kind: FindingKind::Xid(79),
                text: "as the driver says".to_owned(),
            },
            users: vec![old],
        },
    ));
    assert_ne!(slot(&w, R1), left);
    w.run_to_end();
    let rules: Vec<_> = w.incidents().iter().map(|i| i.rule.clone()).collect();
    assert_eq!(rules, ["exit", "hardware"]);
}

#[test]
fn a_device_that_nobody_uses_is_only_an_event() {
    let mut w = world(roomy(Mode::Async, 6));
    let text = "as the driver says".to_owned();
    w.feed(Input::Node(
        NodeId::LEADER,
        NodeEvent::Hardware {
            device: 3,
            finding: Finding {
                kind: FindingKind::DeviceLost,
                text,
            },
            users: Vec::new(),
        },
    ));
    w.run_to_end();
    no_faults(&w);
}
