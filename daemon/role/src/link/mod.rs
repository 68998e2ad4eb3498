//! The link to the node's daemon.
//!
//! ```text
//!            connect                 Hello ► ◄ Welcome
//!   ┌──► away ───────► connected ─────────────────────► linked ──┐
//!   │                      │ FAILED_PRECONDITION          │ │    │ broken
//!   │                      ▼                     Shutdown │ └────┴──► away
//!   └─ 100 ms ── …       fenced                           ▼
//!        └─ no daemon for `daemon_grace` ─► alone        ended
//! ```
//!
//! A daemon that takes the connection and does not welcome the process in time is asked again over another one
//! ([`WELCOME_WITHIN`]). It is there, so that no grace passes meanwhile.
//!
//! The daemon may be killed and come back; the role goes on meanwhile. Every new link begins with
//! a Hello of the state at that moment. Then what may have been lost follows once more: answers,
//! ended pulls and returned trajectories that were not sent, or sent shortly before the break.
//! Answers to calls of another daemon process are not: the new one numbers its calls itself and
//! repeats what it still needs.

mod activity;
mod client;
mod faults;
mod session;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use robust_proto::v1::role_message::Body;
use robust_proto::v1::{CallReply, Hello, HostMessage, PhaseChange, PullDone, TrajectoryReturned};
use robust_shared::fault::At;
use robust_shared::ids::Role;
use robust_shared::phase::Phase;
use robust_transport::{Share, Transport};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::exit::{self, code};
use faults::Faults;

pub use activity::{Busy, Refused};
pub use client::channel;
pub use faults::{Deed, Hands, Injected};

/// How long a daemon that took the connection may take to welcome this process, before it is asked again over another
/// one: one that reads its records first takes seconds, and a question that was lost is never answered.
pub const WELCOME_WITHIN: Duration = Duration::from_secs(30);

/// Who attaches, and how.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// What this process is.
    pub role: Role,
    /// Rank or replica number.
    pub index: u32,
    /// Its fencing number.
    pub incarnation: u64,
    /// The gang's fencing number (trainers).
    pub generation: u64,
    /// How often activity is reported.
    pub sample_interval: Duration,
    /// What is reported as the processor time used.
    pub busy: Busy,
    /// How long to go on without any daemon.
    pub daemon_grace: Duration,
    /// How long one that listens may take to welcome this process: [`WELCOME_WITHIN`].
    pub welcome_within: Duration,
    /// Ends the process so long after the link, if it has not ended by itself.
    pub end_within: Option<Duration>,
}

/// Figures that the samples report; the role adds to them.
#[derive(Debug, Default)]
pub struct Counters {
    /// Tokens generated so far; never goes back.
    pub tokens_total: AtomicU64,
    /// Requests or conversations under way.
    pub running: AtomicU32,
    /// Tool calls that failed so far, and not by what they asked for; never goes back.
    pub tool_failures: AtomicU64,
    /// How many callers the weights' transport has turned away, once there is one.
    pub refused: Refused,
}

/// Why there will be no further link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEnd {
    /// The daemon said so.
    Shutdown,
    /// The daemon knows a newer incarnation.
    Fenced(String),
    /// Nobody listened for the whole grace period.
    NoDaemon(Duration),
}

impl LinkEnd {
    /// The process's exit code for this end.
    pub fn exit_code(&self) -> u8 {
        match self {
            LinkEnd::Shutdown => code::ENDED,
            LinkEnd::Fenced(_) => code::FENCED,
            LinkEnd::NoDaemon(_) => code::NO_DAEMON,
        }
    }
}

/// What comes down the link.
#[derive(Debug)]
pub enum FromHost {
    /// A command, with the daemon process it is from.
    Message(DaemonEpoch, Box<HostMessage>),
    /// The last event.
    Ended(LinkEnd),
}

/// Counts the daemon processes that this role was linked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DaemonEpoch(u64);

/// The sending side; clones share it.
#[derive(Clone)]
pub struct Link {
    queue: UnboundedSender<Outgoing>,
    shared: Arc<Shared>,
}

/// A message on its way up.
#[derive(Debug, Clone)]
struct Outgoing {
    body: Body,
    /// Set on answers: worth nothing to another daemon process.
    epoch: Option<DaemonEpoch>,
}

struct Shared {
    phase: Mutex<Option<PhaseChange>>,
    linked: watch::Sender<bool>,
    counters: Arc<Counters>,
    faults: Faults,
    /// What gives way to generation, and to what part of a core.
    gives_way: OnceLock<(Share, f64)>,
}

/// Keeps the process linked until the end. `hello` says what the role is at the moment of asking;
/// names and numbers are filled in here. `hands` do what faults on request are particular to the
/// role. Runs on `runtime`.
pub fn start(
    runtime: &tokio::runtime::Handle,
    config: LinkConfig,
    hello: impl Fn() -> Hello + Send + Sync + 'static,
    hands: impl Fn(Deed, Option<At>) -> Result<(), String> + Send + Sync + 'static,
) -> (Link, UnboundedReceiver<FromHost>) {
    let (queue, outgoing) = unbounded_channel();
    let (events, inbox) = unbounded_channel();
    let shared = Arc::new(Shared {
        phase: Mutex::default(),
        linked: watch::Sender::default(),
        counters: Arc::default(),
        faults: Faults::new(config.role, Box::new(hands), queue.clone()),
        gives_way: OnceLock::new(),
    });
    let end_within = config.end_within;
    let client = client::Client::new(config, Box::new(hello), Arc::clone(&shared), outgoing);
    runtime.spawn(async move {
        let end = client.run(&events).await;
        tracing::info!(?end, "link ended");
        if let Some(grace) = end_within {
            exit::at_latest_in(grace, end.exit_code());
        }
        // Nobody listens any more only if the role is ending by itself.
        let _ = events.send(FromHost::Ended(end));
    });
    (Link { queue, shared }, inbox)
}

/// Why a built-in rollout does nothing to an engine.
const NO_ENGINE: &str = "this rollout has no engine of its own: the job has no [rollout.command]";

/// Hands of a role whose only part in faults on request is its transport.
pub fn network(
    transport: Transport,
) -> impl Fn(Deed, Option<At>) -> Result<(), String> + Send + Sync + 'static {
    move |deed, _| match deed {
        Deed::Network {
            peer,
            trouble,
            lasts,
        } => {
            transport.impair(peer, trouble, lasts);
            Ok(())
        }
        Deed::KillEngineChild | Deed::KillEngineLeader | Deed::HangEngine => {
            Err(NO_ENGINE.to_owned())
        }
        other => Err(format!("{other:?} is nothing that this role can do")),
    }
}

impl Link {
    /// Enters a phase.
    pub fn phase(&self, phase: Phase, step: u64) {
        let change = PhaseChange {
            phase: phase.name().to_owned(),
            step,
        };
        *self
            .shared
            .phase
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(change.clone());
        if let Some((share, part)) = self.shared.gives_way.get() {
            share.set(if phase == Phase::Generating {
                *part
            } else {
                1.0
            });
        }
        self.send(Body::Phase(change), None);
        self.shared.faults.enter(phase);
    }

    /// From now on moving weights takes at most this part of a core while the phase is `generating`. Said once.
    pub fn give_way(&self, share: &Share, part: f64) {
        if self.shared.gives_way.set((share.clone(), part)).is_err() {
            tracing::warn!("it was said already what gives way to generation");
        }
    }

    /// A pull of weights has so many bytes of so many; none goes on any more.
    pub fn pulled(&self, pull: Option<(u64, u64)>) {
        self.shared.faults.pulled(pull);
    }

    /// A fault on request that the role's own code brings about, where it comes to it.
    pub fn take_fault(&self, here: Phase, which: impl Fn(Deed) -> bool) -> Option<Deed> {
        self.shared.faults.take(here, which)
    }

    /// Fails if an exception is asked for here.
    pub fn raise(&self, phase: Phase) -> Result<(), Injected> {
        let asked = self.take_fault(phase, |deed| deed == Deed::Exception);
        asked.map_or(Ok(()), |_| Err(Injected { phase }))
    }

    /// Answers a call that came from this daemon process.
    pub fn reply(&self, epoch: DaemonEpoch, reply: CallReply) {
        self.send(Body::Reply(reply), Some(epoch));
    }

    /// Reports the end of a pull.
    pub fn pull_done(&self, done: PullDone) {
        self.send(Body::PullDone(done), None);
    }

    /// Gives a trajectory back. `anew`: what is stored of it cannot be gone on from.
    pub fn returned(&self, trajectory: u64, reason: String, anew: bool) {
        let returned = TrajectoryReturned {
            trajectory,
            reason,
            anew,
        };
        self.send(Body::Returned(returned), None);
    }

    /// Sends a message that may be lost with the link, such as progress.
    pub fn report(&self, body: Body) {
        self.send(body, None);
    }

    /// Returns when the daemon has had this process's hello. A daemon that was restarted knows what
    /// a role holds only from then on.
    pub async fn linked(&self) {
        let mut linked = self.shared.linked.subscribe();
        // The sender lives as long as this link.
        let _ = linked.wait_for(|linked| *linked).await;
    }

    /// The figures that samples report.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }

    /// Adds generated tokens to the samples' count.
    pub fn add_tokens(&self, tokens: u64) {
        self.shared
            .counters
            .tokens_total
            .fetch_add(tokens, Ordering::Relaxed);
    }

    /// Counts a tool call that failed, and not by what it asked for.
    pub fn add_tool_failure(&self) {
        let failures = &self.shared.counters.tool_failures;
        failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the number of requests under way.
    pub fn set_running(&self, running: usize) {
        let running = u32::try_from(running).unwrap_or(u32::MAX);
        self.shared
            .counters
            .running
            .store(running, Ordering::Relaxed);
    }

    fn send(&self, body: Body, epoch: Option<DaemonEpoch>) {
        // Fails only after the end, and then nobody needs it.
        let _ = self.queue.send(Outgoing { body, epoch });
    }
}
