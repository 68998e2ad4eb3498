//! What a node makes of its leaders.
#![allow(clippy::unwrap_used)]
use super::actor::{Actor, ActorParts, Event};
use super::exchange::Exchange;
use super::held::Held;
use super::starting::Start;
use super::{EarlierTerm, LinkEvent, NodeConfig, Standing};
use crate::grouping::groups_of;
use crate::launcher::{Launcher, Running};
use crate::logging::LogFormat;
use crate::state::{StateDir, write_private};
use crate::worker::WorkerProgram;
use robust_shared::ids::{Incarnation, InstanceId, Role};
use robust_shared::job::SeenDevices;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{oneshot, watch};

/// A node that nothing runs on.
fn idle(state: &StateDir) -> Actor {
    let config = NodeConfig {
        leaders: vec!["127.0.0.1:1".to_owned()],
        name: "n1".to_owned(),
        dc: String::new(),
        rack: String::new(),
        accel: String::new(),
        pools: BTreeMap::new(),
        advertise: None,
        drain: Duration::ZERO,
    };
    let held = Held::new(state.root().join("held"));
    let parts = ActorParts {
        state: state.clone(),
        config: Arc::new(config),
        program: WorkerProgram {
            path: "/nowhere/robust-worker".into(),
            logs: LogFormat::Human,
        },
        launcher: Launcher::new(unbounded_channel().0).unwrap(),
        groups: groups_of(state),
        start_telemetry: Box::new(|_| Err(io::ErrorKind::Unsupported.into())),
        seen_devices: SeenDevices::Unknown,
        upstream: watch::channel(None).0,
        exchange: Exchange::new("n1".to_owned(), held.clone()),
        held,
        starts: unbounded_channel().0,
        evidence: unbounded_channel().0,
    };
    Actor::new(parts).unwrap()
}

/// Where it answers a leader of this life of a job that greets it.
fn greeted(actor: &mut Actor, run: &str) -> oneshot::Receiver<Result<Standing, EarlierTerm>> {
    let (answer, answered) = oneshot::channel();
    let greeted = LinkEvent::Greeted {
        run: run.to_owned(),
        epoch: 1,
        answer,
    };
    assert!(actor.on_event(Event::Link(greeted)).is_none(), "it goes on");
    answered
}

/// Whether it answers such a leader at once.
fn greets(actor: &mut Actor, run: &str) -> bool {
    matches!(greeted(actor, run).try_recv(), Ok(Ok(_)))
}

/// What became of the start of this one.
fn start(incarnation: u64, running: Result<Running, String>) -> Event {
    Event::Start(Start {
        incarnation: Incarnation(incarnation),
        id: InstanceId {
            role: Role::Trainer,
            index: 0,
        },
        running,
    })
}

#[tokio::test]
async fn a_revision_of_another_life_of_the_job_is_none_of_this_one() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::make(dir.path()).unwrap();
    let mut actor = idle(&state);
    assert!(greets(&mut actor, "a"));
    let third = state.job_revision(3);
    write_private(&third, b"{}").unwrap();
    actor.revision = Some(3);
    assert!(greets(&mut actor, "a"), "the link broke");
    assert!(third.exists() && actor.revision == Some(3));
    assert!(greets(&mut actor, "b"));
    assert!(!third.exists() && actor.revision.is_none());
}

#[tokio::test]
async fn a_leader_that_greets_while_something_is_started_is_told_what_became_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::make(dir.path()).unwrap();
    let mut actor = idle(&state);
    assert!(greets(&mut actor, "a"));
    actor.starting.begin(Incarnation(7));
    actor.starting.begin(Incarnation(8));
    let mut answered = greeted(&mut actor, "a");
    assert!(answered.try_recv().is_err(), "two are being started");
    // Nobody is joined who could be told.
    let failed = start(7, Err("no such program".to_owned()));
    assert!(actor.on_event(failed).is_none());
    assert!(answered.try_recv().is_err(), "one is being started");
    let own = Running {
        pid: std::process::id(),
        start_time: 0,
    };
    assert!(actor.on_event(start(8, Ok(own))).is_none());
    let standing = answered.try_recv().unwrap().unwrap();
    assert_eq!(standing.running, [8]);
}
