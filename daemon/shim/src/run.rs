//! An incarnation of an engine's instance, from its start to its end.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::http::HeaderValue;
use robust_engine::EngineAddr;
use robust_http::{Door, Wire};
use robust_identity::EngineKey;
use robust_proto::v1::Hello;
use robust_proto::v1::host_message::Body;
use robust_proto::v1::{HostMessage, PullDone, PullError, PullWeights, pull_done};
use robust_role::pull::{Engine, Puller, Pulling};
use robust_role::{Busy, FromHost, Link, LinkConfig, LinkEnd, RoleArgs, Stages};
use robust_shared::ids::{InstanceId, Role};
use robust_shared::job::RolloutCommand;
use robust_shared::wire::PullFault;
use robust_transport::Transport;
use robust_tree::{Died, How, Policy, Signal};
use robust_weights::Slots;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::client::Client;
use crate::error::ShimError;
use crate::front::{self, Bounds, Front};
use crate::gate::Gate;
use crate::hands::hands;
use crate::home::Home;
use crate::hosted::{Hosted, LEDGER_EVERY, failure, says_why};
use crate::log;
use crate::process::{self, Command, OfReplica, own_folder};
use crate::ready::{self, NotReady};
use crate::sight::Sight;
use crate::slot::{self, Slot};
use crate::state::State;
use crate::weights::{Files, Loader, Readers, Settings};

/// Deaths within so short a time are told together.
const TOGETHER: Duration = Duration::from_millis(10);

/// What ends an incarnation.
enum End {
    Link(LinkEnd),
    Died(Vec<Died>),
    NotReady(NotReady),
    GivenUp(String),
}

/// An instance whose engine was started.
struct Shim {
    role: Role,
    args: RoleArgs,
    command: RolloutCommand,
    home: Home,
    transport: Transport,
    hosted: Hosted,
    weights: Weights,
}

/// What the hello says of weights; there are none before the first order.
#[derive(Clone, Default)]
struct Weights {
    pulling: Pulling,
    slots: Arc<OnceLock<Arc<Slots>>>,
}

/// What makes versions come into the engine.
struct Feeding {
    link: Link,
    loader: Arc<Loader>,
    /// Made with the first order.
    puller: Option<Puller>,
}

/// What tells of the end.
struct Ends {
    died: mpsc::UnboundedReceiver<Died>,
    given_up: mpsc::UnboundedReceiver<String>,
    inbox: mpsc::UnboundedReceiver<FromHost>,
}

impl Ends {
    /// The first death and those that came with it, the ones by a signal first: whichever of them was
    /// the cause, the others may have been seen before it.
    async fn deaths(&mut self, first: Died) -> Vec<Died> {
        tokio::time::sleep(TOGETHER).await;
        let mut deaths = vec![first];
        while let Ok(next) = self.died.try_recv() {
            deaths.push(next);
        }
        deaths.sort_by_key(|death| !matches!(death.how, How::Signal(_)));
        deaths
    }
}

/// Runs an incarnation until its link or its engine ends. `started` is when the process began.
pub fn run(
    role: Role,
    args: &RoleArgs,
    runtime: &Handle,
    started: Instant,
) -> Result<LinkEnd, ShimError> {
    let mut stages = Stages::since(started);
    let command = args
        .job
        .rollout
        .command
        .clone()
        .ok_or(ShimError::NoCommand)?;
    let key = key(&command)?;
    let door = door(args, &command, key.as_ref());
    let bounds = bounds(args)?;
    let id = InstanceId {
        role,
        index: args.index,
    };
    let home = Home::of(&args.snapshot_dir, &format!("engine-{id}"));
    home.take()?;
    stages.end("clearing");
    let (listener, http_addr) = listen(args, &command)?;
    let server = RoleArgs::engine_server()?;
    let asked_at = EngineAddr::said(http_addr, server.is_some());
    // Programs of the user's that were told the address may know no certificate of the job.
    let has_clients = command.open || command.fixed.is_some();
    let wire = match (server, has_clients) {
        (None, _) => Wire::Plain,
        (Some(server), false) => Wire::Sealed(server),
        (Some(server), true) => Wire::Either(server),
    };
    let transport = Transport::start(args.transport()?).map_err(robust_role::StartError::from)?;
    let (deaths, died) = mpsc::unbounded_channel();
    let folder = own_folder(&args.host_socket, id)?;
    let of = OfReplica {
        job: &args.job,
        folder: &folder,
        index: args.index,
        incarnation: args.incarnation,
        advertise: args.bind,
    };
    let command_line = Command::of(&of, &command, &home)?.with(&Sight::of(args, &home, &folder))?;
    let (hosted, address) = Hosted::start(command_line, &home, Policy::default(), deaths)?;
    // An engine's command always has one.
    let address = address.ok_or(ShimError::NoCommand)?;
    stages.end("transport and the engine's process");
    let mut shim = Shim {
        role,
        args: args.clone(),
        command,
        home,
        transport,
        hosted,
        weights: Weights::default(),
    };
    let (link, inbox) = shim.attach(role, runtime, asked_at);
    let _on_runtime = runtime.enter();
    let (gives_up, given_up) = mpsc::unbounded_channel();
    let (words, heard) = slot::words();
    let engine = Front {
        client: Client::new(address, key),
        gate: Arc::new(Gate::new(link.clone())),
        command: Arc::new(shim.command.clone()),
        dialect: Arc::default(),
        bounds,
        words,
    };
    let settings = Settings {
        command: shim.command.clone(),
        swap: args.job.rollout.swap,
    };
    let loader = Loader::new(&engine, settings, gives_up.clone(), runtime.clone());
    let loader = Arc::new(loader);
    let mode = shim.command.hybrid_mode();
    let slot = Slot::new(
        Arc::clone(&loader),
        Arc::clone(&engine.gate),
        mode,
        gives_up,
    );
    runtime.spawn(slot.obey(heard));
    let feeding = Feeding {
        link,
        loader,
        puller: None,
    };
    let serving = engine.clone();
    runtime.spawn(async move {
        if let Err(error) = front::serve(listener, wire, door, serving).await {
            tracing::error!(%error, "the HTTP server ended");
        }
    });
    tracing::info!(%http_addr, "start: {}", stages.line());
    let ends = Ends {
        died,
        given_up,
        inbox,
    };
    let end = runtime.block_on(shim.serve(&engine, feeding, ends));
    shim.finish(end)
}

impl Shim {
    fn attach(
        &self,
        role: Role,
        runtime: &Handle,
        asked_at: String,
    ) -> (Link, mpsc::UnboundedReceiver<FromHost>) {
        let (weights, addr) = (self.weights.clone(), self.transport.addr());
        let hello = move || {
            let known = weights.slots.get();
            let known = known.map(|slots| weights.pulling.hello(slots));
            Hello {
                transport_addr: addr.to_string(),
                http_addr: asked_at.clone(),
                ..known.unwrap_or_default()
            }
        };
        let (watched, struck) = (Arc::clone(&self.hosted.tree), Arc::clone(&self.hosted.tree));
        let slots = Arc::clone(&self.weights.slots);
        let hands = hands(struck, slots, self.transport.clone());
        let config = LinkConfig {
            busy: Busy::told_by(move || watched.cpu_time()),
            ..self.args.link(role)
        };
        let (link, inbox) = robust_role::start(runtime, config, hello, hands);
        link.counters().refused.told_by(self.transport.refused());
        let part = self.args.job.weights.beside_generation;
        link.give_way(self.transport.share(), part);
        (link, inbox)
    }

    /// Feeds the engine until there is an end; whether the engine was up by then.
    async fn serve(&mut self, engine: &Front, mut feeding: Feeding, mut ends: Ends) -> (End, bool) {
        let command = self.command.clone();
        let up = ready::wait(&engine.client, &command);
        tokio::pin!(up);
        let mut is_up = false;
        let mut due = tokio::time::interval(LEDGER_EVERY);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let end = loop {
            tokio::select! {
                biased;
                Some(death) = ends.died.recv() => break End::Died(ends.deaths(death).await),
                Some(reason) = ends.given_up.recv() => break End::GivenUp(reason),
                came = &mut up, if !is_up => match came {
                    Ok(dialect) => {
                        self.hosted.ready();
                        // Set before the gate says that the engine is up.
                        let _ = engine.dialect.set(dialect);
                        engine.gate.change(State::ready);
                        engine.words.up();
                        is_up = true;
                    }
                    Err(error) => break End::NotReady(error),
                },
                message = ends.inbox.recv() => match message {
                    Some(FromHost::Message(_, message)) => self.obey(&mut feeding, *message),
                    Some(FromHost::Ended(end)) => break End::Link(end),
                    None => break End::Link(LinkEnd::Shutdown),
                },
                _ = due.tick() => self.hosted.note(),
            }
        };
        // Before the puller is dropped, which waits for what it began.
        feeding.loader.end();
        (end, is_up)
    }

    fn obey(&self, feeding: &mut Feeding, message: HostMessage) {
        match message.body {
            Some(Body::Pull(pull)) => {
                if let Err(error) = self.pull(feeding, &pull) {
                    tracing::error!(%error, version = pull.version, "the order is not carried out");
                    let error = PullError {
                        kind: PullFault::Source.word().to_owned(),
                        source: 0,
                        reason: error.to_string(),
                    };
                    feeding.link.pull_done(PullDone {
                        version: pull.version,
                        order: pull.order,
                        result: Some(pull_done::Result::Error(error)),
                    });
                }
            }
            other => tracing::warn!(?other, "not for a rollout"),
        }
    }

    /// The first order says how large a version is: the memory for it is made then.
    fn pull(&self, feeding: &mut Feeding, pull: &PullWeights) -> Result<(), ShimError> {
        let canary = pull.canary.as_ref();
        let canary = canary.map(robust_proto::manifest::canary_from_proto);
        feeding.loader.expect(pull.version, canary);
        let puller = match feeding.puller.take() {
            Some(puller) => puller,
            None => self.puller(feeding, pull)?,
        };
        feeding.puller.insert(puller).assign(pull);
        Ok(())
    }

    fn puller(&self, feeding: &Feeding, first: &PullWeights) -> Result<Puller, ShimError> {
        let manifest = first.manifest.as_ref();
        let tensors = manifest
            .map(robust_proto::manifest::tensors)
            .unwrap_or_default();
        let model = self.args.model_folder()?;
        let readers = match &self.command.user {
            Some(_) => Readers::Engine,
            None => Readers::Owner,
        };
        let files = Files::new(&self.home.weights(), model, &tensors, readers)?;
        let slots = Slots::over(&self.transport, files.buffers());
        feeding.loader.lie_in(files);
        let engine: Arc<dyn Engine> = Arc::clone(&feeding.loader) as _;
        let puller = Puller::start(
            self.transport.clone(),
            Arc::clone(&slots),
            tensors,
            engine,
            feeding.link.clone(),
            self.weights.pulling.clone(),
        )?;
        // What lies here is what is passed on, and what the engine loads; its own memory it alone can read.
        let every = self.args.scrub_every(self.role);
        robust_role::scrub::start(&slots, every, feeding.link.clone())?;
        // Once: there is a puller from now on.
        let _ = self.weights.slots.set(slots);
        Ok(puller)
    }

    /// A broken engine is killed and not waited for: that it broke is to be known at once, and whoever
    /// starts the next one waits until the last of its processes is gone and sweeps after it (S-3).
    fn finish(self, (end, was_up): (End, bool)) -> Result<LinkEnd, ShimError> {
        match end {
            End::Link(end) => {
                self.hosted.end(&process::gently(&self.command.stop));
                Ok(end)
            }
            broken => {
                self.hosted.tree.signal(Signal::KILL);
                Err(broken.failure(was_up))
            }
        }
    }
}

impl End {
    fn failure(self, was_up: bool) -> ShimError {
        let (says_why, reason) = match self {
            End::Link(end) => (false, format!("{end:?}")),
            End::Died(deaths) => {
                let mut words: Vec<String> = deaths.iter().map(Died::to_string).collect();
                // An engine that fails at its start writes why, and kills its own children before it ends.
                let exception = (!was_up).then(log::last_exception).flatten();
                words.extend(exception.map(|line| format!("the last error in its log: {line}")));
                (deaths.iter().any(says_why), words.join("; "))
            }
            End::NotReady(error) => (!matches!(error, NotReady::Late { .. }), error.to_string()),
            End::GivenUp(reason) => return ShimError::WrongWeights(reason),
        };
        failure("engine", was_up, says_why, reason)
    }
}

fn listen(
    args: &RoleArgs,
    command: &RolloutCommand,
) -> Result<(std::net::TcpListener, SocketAddr), ShimError> {
    let port = command.fixed_port(args.index).unwrap_or(0);
    let addr = SocketAddr::new(args.bind, port);
    let listening = std::net::TcpListener::bind(addr).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    });
    listening.map_err(|source| ShimError::Listen { addr, source })
}

/// Who may ask at this address.
fn door(args: &RoleArgs, command: &RolloutCommand, key: Option<&HeaderValue>) -> Door {
    let own = key.and_then(|key| key.to_str().ok()?.strip_prefix("Bearer "));
    let keys = [args.engine_key(), args.engines.of_clients()];
    let keys = keys.into_iter().chain(own.map(EngineKey::known));
    let hint = "the content of the state directory's file `engines.key` \
                (`ROBUST_ENGINES_KEY_FILE` names it to your programs)";
    Door::new(keys, hint)
        .with_foreign_bodies()
        .open(command.open)
}

/// What the engine wants as a proof of who asks it.
pub(crate) fn key(command: &RolloutCommand) -> Result<Option<HeaderValue>, ShimError> {
    let Some(path) = &command.api_key_file else {
        return Ok(None);
    };
    let failed = |reason: String| ShimError::File {
        path: path.clone(),
        reason,
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let value = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
    let mut value = value.map_err(|_| failed("no key is in it".to_owned()))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// What the model's configuration says of its bounds.
fn bounds(args: &RoleArgs) -> Result<Bounds, ShimError> {
    let path = args.model_folder()?.join("config.json");
    let failed = |reason: String| ShimError::File {
        path: path.clone(),
        reason,
    };
    let text = std::fs::read(&path).map_err(|error| failed(error.to_string()))?;
    let config: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
    let number = |key: &str| {
        let number = config[key].as_u64();
        number.ok_or_else(|| failed(format!("it has no `{key}`")))
    };
    Ok(Bounds {
        vocabulary: u32::try_from(number("vocab_size")?).unwrap_or(u32::MAX),
        longest: usize::try_from(number("max_position_embeddings")?).unwrap_or(usize::MAX),
    })
}
