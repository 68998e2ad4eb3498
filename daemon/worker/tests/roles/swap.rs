//! When an engine goes over to new weights.

use std::sync::mpsc::{Receiver, Sender, channel};

use robust_shared::job::Swap;
use robust_shared::phase::Phase;
use robust_worker::model::sampler::{Engine, EngineConfig, MAX_ROWS, SeqRequest};
use robust_worker::rollout::{
    Command, EngineThread, Generate, NotSwapped, Observer, Pause, Piece, SwapRequest,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use super::fixture::{Deaf, lying, model};

const TOKENS: usize = 12;

struct Rig {
    commands: Sender<Command>,
}

type Swapped = Receiver<Result<(), NotSwapped>>;

impl Rig {
    /// An engine that serves version 1.
    fn serving(swap: Swap) -> Self {
        Self::observed_by(Box::new(Deaf), swap)
    }

    fn observed_by(observer: Box<dyn Observer>, swap: Swap) -> Self {
        let model = model(3);
        let sizes = EngineConfig {
            max_seqs: 8,
            max_rows: MAX_ROWS,
            max_len: 64,
        };
        let engine = Engine::new(model.config(), sizes).unwrap();
        let thread = EngineThread::start(model, engine, swap, observer).unwrap();
        let rig = Self {
            commands: thread.commands(),
        };
        rig.swap(1).recv().unwrap().unwrap();
        rig
    }

    fn send(&self, command: Command) {
        self.commands.send(command).unwrap();
    }

    fn swap(&self, version: u64) -> Swapped {
        let (done, answer) = channel();
        let weights = lying(&model(version));
        let request = SwapRequest {
            version,
            weights,
            done,
        };
        self.send(Command::Swap(request));
        answer
    }

    fn generate(&self, rid: &str, probe: bool) -> Reply {
        let (pieces, received) = unbounded_channel();
        let (accepted, answer) = oneshot::channel();
        let sequence = SeqRequest {
            key: 0,
            ids: vec![1, 2, 3],
            seed: 5,
            trajectory: 7,
            position0: 0,
            max_new_tokens: if probe { 1 } else { TOKENS },
            temperature: 1.0,
            stop_tokens: Vec::new(),
        };
        self.send(Command::Generate(Box::new(Generate {
            rid: rid.to_owned(),
            sequence,
            probe,
            pieces,
            accepted,
        })));
        Reply(received, answer)
    }

    /// Nothing is computed until `go_on`, so that what comes meanwhile comes while requests run.
    fn hold_still(&self) {
        let (done, paused) = oneshot::channel();
        self.send(Command::Pause(Pause::Keep, done));
        paused.blocking_recv().unwrap();
    }

    fn go_on(&self) {
        self.send(Command::Continue);
    }

    /// All commands sent before have been obeyed.
    fn version(&self) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Version(reply));
        answer.blocking_recv().unwrap()
    }
}

/// Keeps the engine from its second step until the other end is dropped.
struct OneStep(Receiver<()>);

impl Observer for OneStep {
    fn phase(&self, _: Phase, _: u64) {}

    fn figures(&self, new_tokens: u64, _: usize) {
        if new_tokens > 0 {
            // Nothing is ever sent.
            let _ = self.0.recv();
        }
    }
}

struct Reply(
    UnboundedReceiver<Piece>,
    oneshot::Receiver<Result<(), robust_worker::rollout::Refused>>,
);

impl Reply {
    /// The version of each token, to the last one.
    fn versions(mut self) -> Vec<u64> {
        self.1.blocking_recv().unwrap().unwrap();
        let mut versions = Vec::new();
        while let Some(piece) = self.0.blocking_recv() {
            match piece {
                Piece::Token {
                    version, finish, ..
                } => {
                    versions.push(version);
                    if finish.is_some() {
                        break;
                    }
                }
                Piece::Aborted(reason) => panic!("aborted: {reason}"),
            }
        }
        versions
    }
}

#[test]
fn between_steps_a_running_request_goes_on_with_the_new_weights() {
    let (go_on, gate) = channel();
    let rig = Rig::observed_by(Box::new(OneStep(gate)), Swap::Step);
    let mut running = rig.generate("a", false);
    let first = running.0.blocking_recv().unwrap();
    assert!(
        matches!(first, Piece::Token { version: 1, .. }),
        "{first:?}"
    );
    let swapped = rig.swap(2);
    drop(go_on);
    swapped.recv().unwrap().unwrap();
    assert_eq!(running.versions(), [2; TOKENS - 1]);
}

#[test]
fn at_turns_running_requests_end_with_their_weights_and_new_ones_wait_for_the_next() {
    let rig = Rig::serving(Swap::Turn);
    rig.hold_still();
    let running = rig.generate("a", false);
    let swapped = rig.swap(2);
    let held = rig.generate("b", false);
    assert_eq!(rig.version(), Some(1));
    assert!(swapped.try_recv().is_err(), "a request runs");
    // Whoever asks for life signs gets one, whatever waits for what.
    let probe = rig.generate("health", true);
    rig.go_on();
    assert_eq!(probe.versions(), [1]);
    assert_eq!(running.versions(), [1; TOKENS]);
    assert_eq!(held.versions(), [2; TOKENS]);
    swapped.recv().unwrap().unwrap();
    // With nothing running there is nothing to wait for.
    rig.swap(3).recv().unwrap().unwrap();
    assert_eq!(rig.generate("c", false).versions(), [3; TOKENS]);
}

#[test]
fn a_newer_version_supersedes_the_one_that_waits_and_held_requests_starve_for_neither() {
    let rig = Rig::serving(Swap::Turn);
    rig.hold_still();
    let running = rig.generate("a", false);
    let older = rig.swap(2);
    let held = rig.generate("b", false);
    rig.send(Command::Supersede(3));
    assert_eq!(older.recv().unwrap(), Err(NotSwapped::Superseded { by: 3 }));
    let late = rig.swap(2);
    assert!(late.recv().unwrap().is_err(), "it is wanted no more");
    rig.go_on();
    assert_eq!(running.versions(), [1; TOKENS]);
    // Version 3 takes its time: the request that was held goes on with what there is.
    assert_eq!(held.versions(), [1; TOKENS]);
    rig.swap(3).recv().unwrap().unwrap();
    assert_eq!(rig.version(), Some(3));
}

#[test]
fn held_requests_can_be_aborted_and_their_names_are_taken() {
    let rig = Rig::serving(Swap::Turn);
    rig.hold_still();
    let running = rig.generate("a", false);
    let swapped = rig.swap(2);
    let mut held = rig.generate("b", false);
    let twice = rig.generate("b", false);
    assert!(twice.1.blocking_recv().unwrap().is_err());
    rig.send(Command::Abort(Some("b".to_owned())));
    let ended = held.0.blocking_recv();
    assert!(matches!(ended, Some(Piece::Aborted(_))), "{ended:?}");
    let left = rig.generate("c", false);
    drop(left);
    rig.go_on();
    assert_eq!(running.versions(), [1; TOKENS]);
    swapped.recv().unwrap().unwrap();
    assert_eq!(rig.generate("c", false).versions(), [2; TOKENS]);
}
