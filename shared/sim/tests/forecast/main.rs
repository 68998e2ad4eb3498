//! What is forecast is what then happens, in worlds that the forecast has no part in.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_ahead::cluster::{Cluster, LongTail, Plan, Timing};
use robust_ahead::forecast::{Act, Figure, Forecast, Measured, of};
use robust_shared::core::{Core, CoreConfig, Fault, Input, Labels, Mode, NodeSpec, Request};
use robust_shared::ids::{Incarnation, InstanceId, Role};
use robust_shared::time::Time;
use robust_sim::world::{World, id, ms};
use std::collections::BTreeSet;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A job at its third step, in the world of the fault search.
fn world() -> World {
    world_in(Mode::Async)
}

fn world_in(mode: Mode) -> World {
    let sync = mode == Mode::Sync;
    let config = CoreConfig {
        mode,
        ahead: u64::from(!sync),
        switch_at: if sync { 1.0 } else { 0.5 },
        steps: 60,
        prompts: 2,
        responses: 4,
        agent_concurrency: 8,
        ..CoreConfig::default()
    };
    let mut w = World::new(config, 1);
    assert!(w.run_until(MINUTE, |w| w.committed() == 3));
    w
}

fn kill(role: Role, index: u32) -> Request {
    Request::Inject {
        fault: Fault::Kill,
        role,
        index: Some(index),
        incarnation: None,
        at: None,
    }
}

fn scale(role: Role, count: u32) -> Request {
    Request::Scale {
        role,
        count,
        revision: 0,
    }
}

fn forecast(w: &World, request: Request) -> Forecast {
    of(&w.core, &request.into(), &Measured::of(&w.core), w.now)
}

fn lives(core: &Core, now: Time) -> BTreeSet<(InstanceId, Incarnation)> {
    let all = core.view(now).instances.into_iter();
    all.map(|i| (i.id, i.incarnation)).collect()
}

/// Whose processes are others than before.
fn replaced(
    before: &BTreeSet<(InstanceId, Incarnation)>,
    core: &Core,
    now: Time,
) -> BTreeSet<InstanceId> {
    let now = lives(core, now);
    now.difference(before).map(|(id, _)| *id).collect()
}

fn set(ids: &[InstanceId]) -> BTreeSet<InstanceId> {
    ids.iter().copied().collect()
}

/// Strikes for real, and compares.
fn kills_as_forecast(role: Role, index: u32) -> Forecast {
    let mut w = world();
    let said = forecast(&w, kill(role, index));
    let before = lives(&w.core, w.now);
    w.inject(Fault::Kill, role, index);
    let recovered = |w: &World| {
        let mut incidents = w.core.incidents();
        incidents.next().is_some_and(|i| i.resumed.is_some()) && w.core.is_whole()
    };
    assert!(w.run_until(MINUTE, recovered), "{:?}", w.violation());
    let incidents: Vec<_> = w.core.incidents().cloned().collect();
    assert_eq!(incidents.len(), 1);
    assert_eq!(incidents[0].who, id(role, index));
    let plan = format!("{}: {}", incidents[0].who, incidents[0].plan);
    assert_eq!(said.plan, [plan]);
    assert_eq!(set(&said.restarts), replaced(&before, &w.core, w.now));
    assert!(said.whole.is_some(), "{said:?}");
    said
}

#[test]
fn a_killed_rank_takes_its_gang_along_as_forecast() {
    let said = kills_as_forecast(Role::Trainer, 1);
    assert_eq!(said.restarts.len(), 2, "both ranks");
    assert!(said.detect.is_some() && said.restart.is_some() && said.reconnect.is_some());
}

#[test]
fn a_killed_engine_is_restarted_alone_as_forecast() {
    let said = kills_as_forecast(Role::Rollout, 1);
    assert_eq!(said.restarts, [id(Role::Rollout, 1)]);
    assert_eq!(said.steps_again, 0);
}

#[test]
fn an_engine_that_is_scaled_away_breaks_nothing_off_as_forecast() {
    let mut w = world();
    let said = forecast(&w, scale(Role::Rollout, 2));
    let before = lives(&w.core, w.now);
    w.feed(Input::Operator(77, scale(Role::Rollout, 2)));
    let is_gone = |w: &World| {
        w.core
            .view(w.now)
            .instances
            .iter()
            .all(|i| i.id != id(Role::Rollout, 2))
    };
    assert!(w.run_until(MINUTE, is_gone), "{:?}", w.violation());
    assert_eq!(replaced(&before, &w.core, w.now), BTreeSet::new());
    assert_eq!(
        said.plan,
        ["rollout goes from 3 to 2, when they have finished what they hold"]
    );
    assert_eq!((said.restarts.len(), said.again), (0, 0));
    assert!(said.whole.is_some() && said.detect.is_none(), "{said:?}");
}

#[test]
fn in_the_middle_of_a_recovery_it_is_looked_ahead_from_there() {
    let mut w = world();
    w.kill(id(Role::Trainer, 0));
    for _ in 0..20 {
        w.run_for(ms(50));
        let said = forecast(&w, kill(Role::Rollout, 1));
        let restarts = set(&said.restarts);
        assert!(restarts.contains(&id(Role::Rollout, 1)), "{said:?}");
        let gang = restarts.iter().filter(|id| id.role == Role::Trainer);
        assert_eq!(gang.count(), 0, "it is started anyway: {said:?}");
        assert!(said.whole.is_some(), "{said:?}");
    }
    assert_eq!(
        w.core.incidents().count(),
        1,
        "what was foreseen is not done"
    );
}

#[test]
fn what_the_controller_refuses_is_refused_in_its_words() {
    let w = world();
    for (request, why) in [
        (
            scale(Role::Rollout, 0),
            "rollout cannot be 0: its minimum is 1",
        ),
        (kill(Role::Rollout, 9), "there is no rollout 9"),
    ] {
        let said = forecast(&w, request);
        assert!(said.refused.as_ref().unwrap().contains(why), "{said:?}");
        assert_eq!(said.lines().len(), 1);
        assert!(said.lines()[0].starts_with("it would be refused: "));
    }
}

#[test]
fn what_a_role_would_do_to_itself_is_not_guessed() {
    let w = world();
    let slow = Request::Inject {
        fault: Fault::Slow {
            percent: 50,
            lasts: seconds(10),
        },
        role: Role::Rollout,
        index: None,
        incarnation: None,
        at: None,
    };
    let said = forecast(&w, slow);
    assert!(said.unknown.is_some() && said.plan.is_empty(), "{said:?}");
}

#[test]
fn the_same_controller_gives_the_same_forecast_and_is_left_as_it_is() {
    let w = world();
    let before = w.core.state().clone();
    for request in [
        kill(Role::Trainer, 0),
        Request::Restart {
            target: robust_shared::core::RestartTarget::Role(Role::Rollout),
        },
    ] {
        let said = forecast(&w, request.clone());
        assert_eq!(said, forecast(&w, request));
    }
    assert_eq!(*w.core.state(), before);
}

#[test]
fn a_gang_that_has_no_slot_any_more_is_looked_at_no_longer_than_the_bound() {
    // In the other modes it takes the slot of a rollout.
    let w = world_in(Mode::Sync);
    let lose = Request::Inject {
        fault: Fault::LoseSlot,
        role: Role::Trainer,
        index: Some(1),
        incarnation: None,
        at: None,
    };
    let said = forecast(&w, lose);
    assert_eq!(said.whole, None);
    assert_eq!(said.waiting, [id(Role::Trainer, 1)]);
    let lines = said.lines().join("\n");
    assert!(lines.contains("without a slot: trainer-1"), "{lines}");
    assert!(lines.contains("not all at work within 60 min"), "{lines}");
}

// ---- on several machines ----

const TIMING: Timing = Timing {
    machine: seconds(30),
    container: seconds(30),
    trainer_start: seconds(20),
    engine_start: seconds(10),
    agent_start: seconds(2),
    restore: seconds(5),
    publish: seconds(1),
    pull: seconds(3),
    switch: seconds(1),
    old_logprob: seconds(4),
    update: seconds(20),
    snapshot: seconds(1),
    concurrency: 8,
    conversation: LongTail {
        median: seconds(12),
        sigma: 0.3,
        max: seconds(30),
    },
    turns: 3,
    tool: seconds(1),
    exit_seen: Duration::from_millis(100),
    node_seen: seconds(5),
    anew: Duration::ZERO,
};

fn node(name: &str, pools: &[(&str, u32)]) -> NodeSpec {
    let pools = pools
        .iter()
        .map(|(pool, slots)| ((*pool).to_owned(), *slots));
    NodeSpec {
        name: name.to_owned(),
        labels: Labels::default(),
        pools: pools.collect(),
    }
}

/// A job in the middle of its fourth step, with a slot to spare for a rank and for an engine.
fn cluster() -> Cluster {
    let config = CoreConfig {
        steps: 1000,
        prompts: 4,
        responses: 2,
        agent_concurrency: 8,
        nodes: vec![
            node("head", &[("agent", 2)]),
            node("one", &[("train", 1), ("rollout", 2)]),
            node("two", &[("train", 1), ("rollout", 1)]),
            node("spare", &[("train", 1), ("rollout", 1)]),
        ],
        ..CoreConfig::default()
    };
    let mut cluster = Cluster::new(Plan {
        config,
        timing: TIMING,
        seed: 1,
        samples: seconds(1),
        beats: seconds(1),
        journal: false,
        records: false,
        guard: true,
    });
    cluster.run_to_step(3);
    cluster.run_until(cluster.elapsed() + seconds(15));
    cluster
}

fn measured() -> Measured {
    Measured {
        timing: TIMING,
        assumed: Vec::new(),
    }
}

#[test]
fn whoever_is_on_a_node_that_is_drained_moves_as_forecast() {
    let mut real = cluster();
    let rank = id(Role::Trainer, 1);
    let node = real.core().node_of(rank).unwrap().unwrap();
    let name = real.core().node(node).unwrap().name.clone();
    let said = of(real.core(), &Act::Leave(name), &measured(), real.now());
    let before = lives(real.core(), real.now());
    real.machine_will_leave(node, "it is to be drained");
    real.run_until(real.elapsed() + 5 * MINUTE);
    assert_eq!(real.broken(), None);
    assert_eq!(real.incidents().count(), 0);
    let moved = replaced(&before, real.core(), real.now());
    assert!(moved.iter().any(|id| id.role == Role::Trainer), "{moved:?}");
    assert_eq!(set(&said.restarts), moved);
    assert_eq!((said.detect, said.steps_again), (None, 0));
    assert!(said.whole.is_some(), "{said:?}");
}

#[test]
fn a_killed_rank_costs_what_its_start_takes_and_the_step_it_was_in() {
    let mut real = cluster();
    let said = of(
        real.core(),
        &kill(Role::Trainer, 1).into(),
        &measured(),
        real.now(),
    );
    assert!(real.lose_process(id(Role::Trainer, 1)));
    real.run_until(real.elapsed() + 2 * MINUTE);
    let incident = real.incidents().next().unwrap();
    let plan = format!("{}: {}", incident.who, incident.plan);
    assert_eq!(said.plan, [plan]);
    assert_eq!(said.detect, Some(incident.detect()));
    assert_eq!(said.restart, incident.restart());
    assert_eq!(said.steps_again, 1);
    let stall = said.stall.unwrap();
    assert!((seconds(15)..=MINUTE).contains(&stall), "{said:?}");
    let lost = said.ettr_lost.unwrap();
    assert!(lost > 0.0 && lost < 0.3, "{said:?}");
    let lines = said.lines().join("\n");
    assert!(lines.contains("restart 20 s"), "{lines}");
    assert!(lines.contains("1 step is begun again"), "{lines}");
}

#[test]
fn a_cordon_alone_costs_nothing() {
    let real = cluster();
    let cordon = Request::Cordon {
        node: "two".to_owned(),
    };
    let said = of(real.core(), &cordon.into(), &measured(), real.now());
    assert_eq!(
        said.lines(),
        ["nothing new is started on two; what runs there goes on"]
    );
    assert_eq!(said.stall, Some(Duration::ZERO));
}

#[test]
fn what_nobody_measured_is_said_to_be_assumed_where_it_has_a_part() {
    let mut w = world();
    let fresh = Measured::of(&Core::new(w.config.clone()));
    assert!(fresh.assumed.iter().any(|(f, _)| *f == Figure::Restore));
    let request = kill(Role::Rollout, 0);
    let said = of(&w.core, &request.into(), &fresh, w.now);
    let figures: Vec<Figure> = said.assumed.iter().map(|(f, _)| *f).collect();
    assert!(figures.contains(&Figure::Start(Role::Rollout)));
    assert!(!figures.contains(&Figure::Restore), "no gang is restored");
    let lines = said.lines().join("\n");
    assert!(lines.contains("not measured yet, so assumed: start of a rollout 60 s"));
    // Once an engine was restarted, that is what is known of it.
    w.kill(id(Role::Rollout, 0));
    let is_back = |w: &World| w.core.incidents().any(|i| i.attached.is_some());
    assert!(w.run_until(MINUTE, is_back));
    let known = Measured::of(&w.core);
    assert!(known.timing.engine_start < seconds(2), "{known:?}");
}
