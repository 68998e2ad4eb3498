//! What a node makes of its leaders.
#![allow(clippy::unwrap_used)]
use super::actor::{Actor, ActorParts, Event};
use super::exchange::Exchange;
use super::held::Held;
use super::{LinkEvent, NodeConfig};
use crate::grouping::groups_of;
use crate::launcher::Launcher;
use crate::logging::LogFormat;
use crate::state::{StateDir, write_private};
use crate::worker::WorkerProgram;
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

/// Whether it answers a leader of this life of a job at once.
fn greets(actor: &mut Actor, run: &str) -> bool {
    let (answer, mut answered) = oneshot::channel();
    let greeted = LinkEvent::Greeted {
        run: run.to_owned(),
        epoch: 1,
        answer,
    };
    let goes_on = actor.on_event(Event::Link(greeted)).is_none();
    goes_on && matches!(answered.try_recv(), Ok(Ok(_)))
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
