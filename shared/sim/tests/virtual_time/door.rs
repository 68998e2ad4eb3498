//! What comes in too late, or from nobody, is dropped where it comes in (I-1).
use super::*;
use robust_shared::phase::Phase;

const LONG: Duration = Duration::from_secs(60);
const R0: InstanceId = InstanceId {
    role: Role::Rollout,
    index: 0,
};
const A0: InstanceId = InstanceId {
    role: Role::Agent,
    index: 0,
};

fn started() -> World {
    let mut w = World::new(small(Mode::Async, 8), 1);
    w.until("training", LONG, |w| {
        w.committed() > 1 && w.instance(T0).phase == Phase::Update
    });
    w
}

/// All that an incarnation may say, but that a trajectory is finished: that counts from whoever.
fn of_life(step: Step) -> Vec<RoleEvent> {
    let (version, trajectory) = (WeightVersion(9), TrajectoryId::from_key(0));
    let leases = vec![trajectory];
    let failed = PullFailure::Corrupt {
        source: Incarnation(1),
    };
    vec![
        RoleEvent::Exited {
            at: None,
            exit: Exit::Gone,
            detail: String::new(),
        },
        RoleEvent::Detached,
        RoleEvent::Attached {
            hello: Hello {
                leases,
                ..Hello::default()
            },
        },
        RoleEvent::PhaseChanged {
            phase: Phase::Idle,
            step,
        },
        RoleEvent::Sampled {
            sample: Sample::default(),
        },
        RoleEvent::Spawned { pid: 7 },
        RoleEvent::SpawnFailed {
            reason: String::new(),
        },
        RoleEvent::Probed { ok: false },
        RoleEvent::Evidence {
            text: "late".to_owned(),
            seen: Seen::default(),
        },
        RoleEvent::Switched {
            paused: true,
            ok: false,
        },
        RoleEvent::PullStarted { version, order: 1 },
        RoleEvent::PullProgress {
            version,
            bytes: 1,
            total: 1,
        },
        RoleEvent::Damaged {
            version,
            chunks: 1,
            total: 1,
        },
        RoleEvent::Pulled {
            version,
            order: 1,
            result: Ok(()),
        },
        RoleEvent::Pulled {
            version,
            order: 1,
            result: Err(failed),
        },
        RoleEvent::TrajectoryReturned {
            trajectory,
            reason: String::new(),
            by: ReturnedBy::Worker,
            lease: 0,
        },
        RoleEvent::RouteRequested {
            ticket: 1 << 40,
            trajectory,
        },
        RoleEvent::FaultStruck {
            number: 1,
            refused: None,
        },
    ]
}

fn of_gang(step: Step) -> Vec<GangEvent> {
    let (metrics, version) = (StepMetrics::default(), WeightVersion(step.0));
    vec![
        GangEvent::StepDone { step, metrics },
        GangEvent::Restored { step },
        GangEvent::Prepared { step },
        GangEvent::TrainerOver,
        GangEvent::Published {
            version,
            bytes: 1,
            digest: String::new(),
        },
        GangEvent::StepFailed {
            step,
            rank: None,
            fault: CallFault::Exception,
            reason: String::new(),
        },
    ]
}

/// Gives the core each and sees that nothing follows.
fn nothing_follows(w: &World, inputs: impl IntoIterator<Item = Input>) {
    for input in inputs {
        let mut core = w.core.clone();
        core.handle(w.now, input.clone());
        assert_eq!(core.poll_output(), None, "{input:?}");
        assert_eq!(core.state(), w.core.state(), "{input:?}");
    }
}

#[test]
fn what_a_replaced_incarnation_of_any_role_still_says_changes_nothing() {
    for who in [T0, R0, A0] {
        let mut w = started();
        let old = w.life(who);
        w.kill(who);
        w.until("its next life is back", LONG, |w| {
            let incidents = w.incidents();
            !incidents.is_empty() && incidents.iter().all(|i| i.resumed.is_some())
        });
        assert!(w.life(who) > old);
        let step = w.core.state().committed().next();
        let each = of_life(step).into_iter();
        nothing_follows(&w, each.map(|event| Input::Role(old, event)));
    }
}

#[test]
fn what_an_older_gang_or_the_answer_to_an_older_call_says_changes_nothing() {
    let mut w = started();
    let old = w.core.inspect().generation();
    w.kill(T0);
    w.until("the next generation trains", LONG, |w| {
        let gang = w.core.inspect();
        gang.generation() > old && gang.training().is_some()
    });
    let (new, step) = (
        w.core.inspect().generation(),
        w.core.state().committed().next(),
    );
    let each = of_gang(step).into_iter();
    nothing_follows(&w, each.map(|event| Input::Gang(old, event)));
    let repeated = GangEvent::StepDone {
        step: Step(1),
        metrics: StepMetrics::default(),
    };
    nothing_follows(&w, [Input::Gang(new, repeated)]);
}

#[test]
fn a_node_that_nobody_knows_is_not_heard() {
    let w = started();
    let reason = "it goes".to_owned();
    let finding = robust_shared::hardware::Finding {
        kind: robust_shared::hardware::FindingKind::DeviceLost,
        text: String::new(),
    };
    let events = [
        NodeEvent::Beat,
        NodeEvent::Leaving {
            reason: reason.clone(),
        },
        NodeEvent::Left { reason },
        NodeEvent::Hardware {
            device: 0,
            finding,
            users: vec![w.life(T0)],
        },
    ];
    nothing_follows(&w, events.map(|event| Input::Node(NodeId(7), event)));
}
