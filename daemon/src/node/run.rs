//! Beginning and end of a node.
use super::NodeConfig;
use super::actor::{Actor, ActorParts, Event, StartTelemetry};
use super::credentials::{Credentials, CredentialsError};
use super::exchange::Exchange;
use super::held::Held;
use super::link;
use super::memory::MemoryError;
use super::proxy::RoleProxy;
use super::renewal;
use super::shards::Shards;
use super::starting::Start;
use crate::grouping::groups_of;
use crate::grpc::{ListenError, bind_unix, serve_roles};
use crate::launcher::{Evidence, Launcher};
use crate::nodes::{JoinToken, OutsideFiles};
use crate::state::{StateDir, StateDirError};
use crate::store::StoreError;
use crate::store::lock::StateLock;
use crate::telemetry::{Sources, Telemetry};
use crate::worker::WorkerProgram;
use robust_shared::job::SeenDevices;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The leader watches for these.
const BEAT: Duration = Duration::from_secs(1);
/// How long a node that leaves waits for its roles and for the leader.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(5);

/// How a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeEnd {
    /// The job it was a node of is over.
    JobOver,
    /// SIGINT.
    Interrupted,
    /// SIGTERM.
    Terminated,
}

/// Why a node does not run.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The leader will not have it, or is none.
    #[error("the leader and this node do not agree: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// It has nothing to prove to the leader.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// What runs here cannot be known.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateDirError),
    /// The state directory is in use.
    #[error(transparent)]
    Lock(#[from] StoreError),
    /// The role socket cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A thread or a signal handler could not be had.
    #[error("cannot start {what}: {source}")]
    Start {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// What a node runs with.
pub struct NodeParts {
    /// How it joins.
    pub config: NodeConfig,
    /// With what it is enrolled where it has no certificate.
    pub token: Option<JoinToken>,
    /// Instead of a certificate by the leader: one from outside.
    pub outside: Option<OutsideFiles>,
    /// Its state directory.
    pub state: StateDir,
    /// The worker program.
    pub worker: WorkerProgram,
    /// What is sampled besides the processes.
    pub sources: Sources,
    /// The devices that its roles may use.
    pub seen_devices: SeenDevices,
}

/// Runs a node until its job is over or a signal asks for its end.
pub async fn run(parts: NodeParts) -> Result<NodeEnd, NodeError> {
    let start = |what| move |source| NodeError::Start { what, source };
    let NodeParts {
        config,
        token,
        outside,
        state,
        worker,
        sources,
        seen_devices,
    } = parts;
    let _held = StateLock::take(state.root())?;
    let name = config.name.clone();
    let credentials = Arc::new(match outside {
        Some(files) => Credentials::from_outside(state.clone(), name, files),
        None => Credentials::new(state.clone(), name, token)?,
    });
    state.remove_sockets()?;
    let socket = bind_unix(&state.roles_socket())?;
    let (exits, launches) = unbounded_channel();
    let (sampled, samples) = unbounded_channel();
    let (evidence, collected) = unbounded_channel();
    let (starts, begun) = unbounded_channel();
    let (events, link_events) = unbounded_channel();
    let (upstream, watched) = watch::channel(None);
    let groups = groups_of(&state);
    let launcher = Launcher::with_groups(exits, groups.clone());
    let launcher = launcher.map_err(start("the launcher"))?;
    let config = Arc::new(config);
    let start_telemetry: StartTelemetry =
        Box::new(move |interval| Telemetry::start(interval, sources, sampled));
    let held = Held::new(state.snapshots());
    let exchange = Exchange::new(config.name.clone(), held.clone());
    let mut actor = Actor::new(ActorParts {
        state: state.clone(),
        config: Arc::clone(&config),
        program: worker,
        launcher: launcher.clone(),
        groups: groups.clone(),
        start_telemetry,
        seen_devices,
        upstream,
        held,
        exchange: exchange.clone(),
        starts,
        evidence,
    })?;
    let proxy = RoleProxy {
        launcher,
        upstream: watched,
        shards: Shards::new(state.snapshots(), exchange.clone()),
    };
    tokio::spawn(async move {
        if let Err(error) = serve_roles(socket, proxy).await {
            tracing::error!("the role socket is not served any more: {error}");
        }
    });
    let renewing = renewal::run(Arc::clone(&config), Arc::clone(&credentials));
    let renewing = tokio::spawn(renewing);
    let linking = tokio::spawn(link::run(
        (config, state.clone()),
        credentials,
        exchange,
        events,
    ));
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut world = World {
        launches,
        begun,
        samples,
        collected,
        link_events,
        ticks,
        interrupt: signal(SignalKind::interrupt()).map_err(start("signal handling"))?,
        terminate: signal(SignalKind::terminate()).map_err(start("signal handling"))?,
    };
    let end = loop {
        let event = world.next().await;
        if let Some(end) = actor.on_event(event) {
            break end;
        }
    };
    linking.abort();
    renewing.abort();
    if end.is_ok() {
        actor.clean_up();
        // Killed a moment ago.
        let forgetting = actor.launcher.clone();
        let _ = tokio::task::spawn_blocking(move || forgetting.forget_groups()).await;
    }
    state.remove_sockets()?;
    end
}

/// The outside world as one stream of events. It only waits and hands over.
struct World {
    launches: UnboundedReceiver<crate::launcher::LaunchEvent>,
    begun: UnboundedReceiver<Start>,
    samples: UnboundedReceiver<crate::telemetry::Samples>,
    collected: UnboundedReceiver<(robust_shared::ids::Incarnation, Evidence)>,
    link_events: UnboundedReceiver<super::LinkEvent>,
    ticks: Interval,
    interrupt: Signal,
    terminate: Signal,
}

impl World {
    async fn next(&mut self) -> Event {
        tokio::select! {
            biased;
            Some(start) = self.begun.recv() => Event::Start(start),
            Some(event) = self.launches.recv() => Event::Launch(event),
            Some(()) = self.interrupt.recv() => Event::Stop(NodeEnd::Interrupted),
            Some(()) = self.terminate.recv() => Event::Stop(NodeEnd::Terminated),
            _ = self.ticks.tick() => Event::Tick,
            Some(event) = self.link_events.recv() => Event::Link(event),
            Some((incarnation, found)) = self.collected.recv() => Event::Evidence(incarnation, found),
            Some(samples) = self.samples.recv() => Event::Samples(samples),
        }
    }
}
