//! The thread that owns the model and the sampler.
//!
//! One loop: take the commands that have come, then compute one step. Everything that changes the
//! engine goes through the commands, so a weight swap always falls between two steps; see
//! [`swap`] for when.

mod swap;

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use robust_shared::job::Swap;
use robust_shared::phase::Phase;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

use crate::model::flat::FlatParams;
use crate::model::qwen3::Qwen3;
use crate::model::sampler::{Engine, FinishReason, SamplerError, SeqRequest, StepOut};

use swap::Swapping;
pub use swap::{NotSwapped, SwapRequest};

/// How long nothing must run before the replica calls itself idle: between two turns of one
/// conversation it is not.
const IDLE_AFTER: Duration = Duration::from_millis(20);

/// Why a request ended that somebody asked to end.
const ABORTED: &str = "aborted on request";

/// Hears what the engine does.
pub trait Observer: Send {
    /// It changed its phase.
    fn phase(&self, phase: Phase, version: u64);
    /// Tokens since the last time, and requests under way.
    fn figures(&self, new_tokens: u64, running: usize);
}

/// A request for tokens.
#[derive(Debug)]
pub struct Generate {
    /// The caller's name for it; another running one of the same name is refused.
    pub rid: String,
    /// What to continue; its key is set by the engine.
    pub sequence: SeqRequest,
    /// Whether it only asks if the engine lives: such a one does not wait for a swap.
    pub probe: bool,
    /// Where the tokens go. Dropping the other end ends the request.
    pub pieces: UnboundedSender<Piece>,
    /// Whether it was taken.
    pub accepted: oneshot::Sender<Result<(), Refused>>,
}

/// What can be asked of the engine.
#[derive(Debug)]
pub enum Command {
    /// Generate tokens.
    Generate(Box<Generate>),
    /// End one request early, or all of them.
    Abort(Option<String>),
    /// Stop computing, then answer.
    Pause(Pause, oneshot::Sender<()>),
    /// Go on computing.
    Continue,
    /// Go over to these weights when the job's rule allows it, then answer.
    Swap(SwapRequest),
    /// Weights older than this version are wanted no more: who waits to bring them is told so.
    Supersede(u64),
    /// Say which version is served.
    Version(oneshot::Sender<Option<u64>>),
    /// Say what it is doing.
    Standing(oneshot::Sender<Standing>),
}

/// What an engine is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The weight version that is served; none before the first.
    pub version: Option<u64>,
    /// Whether generation is paused.
    pub paused: bool,
    /// Requests that were taken and have not ended.
    pub running: usize,
    /// Requests that are held until weights were changed.
    pub held: usize,
}

/// What a pause does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Those under way stay, new ones wait with them.
    Keep,
    /// Those under way end, new ones are refused until generation goes on: a request that waited
    /// here would wait for as long as somebody else uses the processor.
    Abort,
}

/// What a request gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// One token.
    Token {
        /// The token.
        id: i64,
        /// Its logprob.
        logprob: f32,
        /// The weights that made it.
        version: u64,
        /// Set on the last one.
        finish: Option<Finish>,
    },
    /// The request ended without a further token.
    Aborted(String),
}

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// A stop token.
    Stop,
    /// A bound on length.
    Length,
}

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There are no weights yet.
    #[error("no weight version is served yet")]
    NoVersion,
    /// Generation was paused and requests were sent away.
    #[error("generation is paused here; ask another engine")]
    Paused,
    /// The name is in use.
    #[error("request {0:?} is already running")]
    Duplicate(String),
    /// The sampler refused it.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
}

/// A running engine; it ends when the last sender of commands is gone.
pub struct EngineThread {
    commands: Sender<Command>,
}

impl EngineThread {
    /// Starts it; what the model has in its memory is no version yet.
    pub fn start(
        model: Qwen3,
        engine: Engine,
        swap: Swap,
        observer: Box<dyn Observer>,
    ) -> std::io::Result<Self> {
        let (commands, queue) = channel();
        std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || {
                let (live, version) = Default::default();
                let (paused, next_key) = (None, 0);
                let (phase, swapping) = (Phase::Init, Swapping::at(swap));
                let mut state = State {
                    model,
                    engine,
                    observer,
                    live,
                    version,
                    paused,
                    next_key,
                    phase,
                    swapping,
                };
                state.warm_up();
                state.run(&queue);
            })?;
        Ok(Self { commands })
    }

    /// Where commands go.
    pub fn commands(&self) -> Sender<Command> {
        self.commands.clone()
    }
}

struct Live {
    rid: String,
    pieces: UnboundedSender<Piece>,
}

struct State {
    model: Qwen3,
    engine: Engine,
    observer: Box<dyn Observer>,
    live: HashMap<u64, Live>,
    version: Option<u64>,
    paused: Option<Pause>,
    next_key: u64,
    phase: Phase,
    swapping: Swapping,
}

impl State {
    fn run(&mut self, queue: &Receiver<Command>) {
        loop {
            while let Ok(command) = queue.try_recv() {
                self.obey(command);
            }
            self.drop_abandoned();
            self.settle_swap();
            if self.paused.is_none() && self.engine.running() > 0 {
                self.report(Phase::Generating);
                self.step();
                continue;
            }
            match queue.recv_timeout(IDLE_AFTER) {
                Ok(command) => self.obey(command),
                Err(RecvTimeoutError::Timeout) => {
                    self.report(if self.paused.is_some() {
                        Phase::Paused
                    } else {
                        Phase::Idle
                    });
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Lets libtorch set up its kernels before the first request.
    fn warm_up(&mut self) {
        let sequence = SeqRequest {
            key: u64::MAX,
            ids: vec![0],
            seed: 0,
            trajectory: 0,
            position0: 0,
            max_new_tokens: 2,
            temperature: 0.0,
            stop_tokens: Vec::new(),
        };
        if self.engine.add(sequence).is_ok() {
            for _ in 0..2 {
                if let Err(error) = self.engine.step(&self.model) {
                    tracing::debug!(%error, "warming up");
                }
            }
            self.engine.abort(u64::MAX);
        }
        self.engine.refresh();
    }

    /// Before the first version the phase is the pull's affair.
    fn report(&mut self, phase: Phase) {
        if self.version.is_some() && self.phase != phase {
            self.phase = phase;
            self.observer.phase(phase, self.version.unwrap_or(0));
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Generate(request) => self.on_generate(*request),
            Command::Abort(rid) => self.abort(rid.as_deref()),
            Command::Pause(how, done) => {
                self.pause(how);
                // The caller may have left meanwhile.
                let _ = done.send(());
            }
            Command::Continue => self.paused = None,
            Command::Swap(request) => self.on_swap(request),
            Command::Supersede(version) => self.supersede(version),
            Command::Version(reply) => {
                // The client may have left meanwhile.
                let _ = reply.send(self.version);
            }
            Command::Standing(reply) => {
                // As above.
                let _ = reply.send(self.standing());
            }
        }
    }

    fn standing(&self) -> Standing {
        Standing {
            version: self.version,
            paused: self.paused.is_some(),
            running: self.live.len(),
            held: self.swapping.held(),
        }
    }

    /// Said at once: whoever waits for the processor waits for this.
    fn pause(&mut self, how: Pause) {
        self.paused = Some(how);
        if how == Pause::Abort {
            self.abort(None);
        }
        self.report(Phase::Paused);
    }

    fn take(&mut self, request: Generate) {
        let Generate {
            rid,
            mut sequence,
            pieces,
            accepted,
            probe: _,
        } = request;
        sequence.key = self.next_key;
        let result = self
            .check(&rid)
            .and_then(|()| Ok(self.engine.add(sequence)?));
        if result.is_ok() {
            self.live.insert(self.next_key, Live { rid, pieces });
            self.next_key += 1;
            self.observer.figures(0, self.live.len());
        }
        // A client that left is noticed by its closed pieces.
        let _ = accepted.send(result);
    }

    fn check(&self, rid: &str) -> Result<(), Refused> {
        if self.version.is_none() {
            return Err(Refused::NoVersion);
        }
        if self.paused == Some(Pause::Abort) {
            return Err(Refused::Paused);
        }
        if self.live.values().any(|live| live.rid == rid) || self.swapping.holds(rid) {
            return Err(Refused::Duplicate(rid.to_owned()));
        }
        Ok(())
    }

    fn abort(&mut self, rid: Option<&str>) {
        let named = |live: &Live| rid.is_none_or(|rid| live.rid == rid);
        let keys: Vec<u64> = self
            .live
            .iter()
            .filter(|(_, live)| named(live))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            self.end(key, Some(ABORTED.into()));
        }
        self.swapping.abort_held(rid);
    }

    fn end(&mut self, key: u64, reason: Option<String>) {
        self.engine.abort(key);
        if let (Some(live), Some(reason)) = (self.live.remove(&key), reason) {
            // The client may have left meanwhile.
            let _ = live.pieces.send(Piece::Aborted(reason));
        }
        self.observer.figures(0, self.live.len());
    }

    fn drop_abandoned(&mut self) {
        let left = |live: &Live| live.pieces.is_closed();
        let keys: Vec<u64> = self
            .live
            .iter()
            .filter(|(_, live)| left(live))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            self.end(key, None);
        }
    }

    fn step(&mut self) {
        match self.engine.step(&self.model) {
            Ok(outputs) => {
                let tokens = outputs.len() as u64;
                outputs.into_iter().for_each(|output| self.deliver(output));
                self.observer.figures(tokens, self.live.len());
            }
            Err(error) => {
                tracing::error!(%error, "the sampler failed");
                let bad = match error {
                    SamplerError::NonFinite { key } => Some(key),
                    _ => self.live.keys().next().copied(),
                };
                if let Some(key) = bad {
                    self.end(key, Some(error.to_string()));
                }
                // The step's other rows were computed but not sampled.
                self.engine.refresh();
            }
        }
    }

    fn deliver(&mut self, output: StepOut) {
        let finish = output.finished.map(|reason| match reason {
            FinishReason::Stop => Finish::Stop,
            FinishReason::Length => Finish::Length,
        });
        let version = self.version.unwrap_or(0);
        let Some(live) = self.live.get(&output.key) else {
            return;
        };
        let piece = Piece::Token {
            id: output.token,
            logprob: output.logprob,
            version,
            finish,
        };
        // A client that left is dropped before the next step.
        let _ = live.pieces.send(piece);
        if finish.is_some() {
            self.live.remove(&output.key);
        }
    }
}
