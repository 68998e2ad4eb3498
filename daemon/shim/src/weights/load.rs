//! Gives the engine a version, and does not believe it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use robust_engine::{Call, Dialect, Label, Load, PauseMode, Refused, Unsupported};
use robust_role::pull::Engine;
use robust_shared::ids::WeightVersion;
use robust_shared::job::{EngineWeights, Flush, RolloutCommand, Swap};
use robust_shared::weights::Canary;
use robust_transport::Buffer;
use robust_weights::SwapError;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::files::{Files, FilesError};
use super::plugin;
use super::verify::{NotVerified, Published};
use crate::client::{AskError, Client};
use crate::front::Front;
use crate::gate::Gate;
use crate::state::State;

/// How often a version is given to the engine before the engine is given up.
const ATTEMPTS: usize = 2;
/// How long a pause, and going on after it, may take: SGLang looks at its queue once a second.
const PAUSE: Duration = Duration::from_secs(30);
/// Pause between looks at the version that somebody else's trainer sends.
const LOOK: Duration = Duration::from_millis(100);
/// Loading may take so many times as long as it ever did, and at least this long: who stands still in it
/// is silent by no other rule.
const SLOWER: u32 = 5;
const LEAST: Duration = Duration::from_secs(10);
/// Canaries kept: of the version that is being loaded, and of those ordered after it.
const CANARIES: usize = 8;

/// What the job says of the engine's weights.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[rollout.command]`.
    pub command: RolloutCommand,
    /// Whether requests under way go on with new weights or end first.
    pub swap: Swap,
}

/// The engine did not take a version over.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The folder could not be named.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The engine could not be asked.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The engine refused an order.
    #[error("{order} was refused: {refused}")]
    Refused {
        /// The order.
        order: String,
        /// What the engine said.
        refused: Refused,
    },
    /// The engine has no means for what the job file says.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The engine serves something else than it was given.
    #[error(transparent)]
    NotVerified(#[from] NotVerified),
    /// It takes far longer than it ever did, or than the job file allows.
    #[error("loading and verifying version {version} took longer than {:.0} s", limit.as_secs_f64())]
    Stuck {
        /// The version.
        version: u64,
        /// What it may take.
        limit: Duration,
    },
    /// Somebody else's trainer did not send the version.
    #[error("nobody sent the engine version {version} within {:.0} s", limit.as_secs_f64())]
    NotSent {
        /// The version.
        version: u64,
        /// How long it was waited for.
        limit: Duration,
    },
}

/// What a version cost that the engine took over.
#[derive(Debug, Clone, Copy, Default)]
struct Took {
    /// The shim's own pause, and going on after it.
    pause: Duration,
    load: Duration,
    verify: Duration,
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Loads versions into the engine.
pub struct Loader {
    client: Client,
    gate: Arc<Gate>,
    settings: Settings,
    runtime: Handle,
    /// Known when the engine is up.
    dialect: Arc<OnceLock<Dialect>>,
    /// Made with the first order, which says how large a version is.
    files: OnceLock<Files>,
    canaries: Mutex<BTreeMap<u64, Canary>>,
    /// What loading and verifying took at most; none before the first time.
    longest: Mutex<Option<Duration>>,
    newest_wanted: watch::Sender<u64>,
    /// Whether the instance ends: nothing is waited for any more.
    ending: watch::Sender<bool>,
    /// Told why the engine is of no use any more.
    given_up: mpsc::UnboundedSender<String>,
    plugin: plugin::Plugin,
}

impl Loader {
    /// A loader of an engine that may still be starting. `given_up` is told why the engine must be
    /// started anew.
    pub fn new(
        engine: &Front,
        settings: Settings,
        given_up: mpsc::UnboundedSender<String>,
        runtime: Handle,
    ) -> Self {
        Self {
            client: engine.client.clone(),
            gate: Arc::clone(&engine.gate),
            settings,
            runtime,
            dialect: Arc::clone(&engine.dialect),
            files: OnceLock::new(),
            canaries: Mutex::default(),
            longest: Mutex::default(),
            newest_wanted: watch::Sender::new(0),
            ending: watch::Sender::new(false),
            given_up,
            plugin: plugin::Plugin::default(),
        }
    }

    /// Versions lie in these folders from now on; the first call counts.
    pub fn lie_in(&self, files: Files) {
        if self.files.set(files).is_err() {
            tracing::error!("the folders of the weights were made twice");
        }
    }

    /// The memory that versions are fetched into, once there is any.
    pub fn files(&self) -> Option<&Files> {
        self.files.get()
    }

    /// The instance ends: a version that waits for the engine does so no longer.
    pub fn end(&self) {
        self.ending.send_replace(true);
    }

    /// A version that was ordered must answer this.
    pub fn expect(&self, version: u64, canary: Option<Canary>) {
        let mut canaries = self.canaries();
        match canary {
            Some(canary) => canaries.insert(version, canary),
            None => canaries.remove(&version),
        };
        while canaries.len() > CANARIES {
            canaries.pop_first();
        }
    }

    fn canaries(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Canary>> {
        self.canaries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take_over(&self, version: u64, buffer: &Arc<Buffer>) -> Result<(), SwapError> {
        tokio::select! {
            () = self.gate.is_up() => {}
            by = self.superseded(version) => return Err(superseded(version, by)),
        }
        let before = self.gate.state().weights();
        self.gate.change(|state| state.load(version));
        if self.settings.swap == Swap::Turn {
            tokio::select! {
                () = self.gate.is_idle() => {}
                by = self.superseded(version) => {
                    self.gate.change(|state| state.kept(before));
                    return Err(superseded(version, by));
                }
            }
        }
        let mut reason = String::new();
        for attempt in 1..=ATTEMPTS {
            let began = Instant::now();
            match self.bounded(version, buffer).await {
                Ok(took) => {
                    self.gate.change(State::verified);
                    tracing::info!(
                        version,
                        attempt,
                        pause_ms = ms(took.pause),
                        load_ms = ms(took.load),
                        verify_ms = ms(took.verify),
                        "the engine serves a verified version"
                    );
                    self.took(began.elapsed());
                    return Ok(());
                }
                Err(error) => {
                    reason = self.explained(&error);
                    tracing::warn!(version, attempt, %reason, "the engine is not given traffic");
                    if matches!(error, LoadError::Stuck { .. }) {
                        break;
                    }
                }
            }
        }
        self.gate.change(State::refused);
        let reason = format!("version {version} is not what the engine serves: {reason}");
        // The process is ending if nobody listens.
        let _ = self.given_up.send(reason.clone());
        Err(SwapError::Failed(reason))
    }

    /// An attempt, within what it may take. It begins when nobody else keeps the engine paused: a trainer
    /// that has the slot is not to be disturbed, and a paused engine could not be verified. One that
    /// somebody paused on the way begins again.
    async fn bounded(&self, version: u64, buffer: &Arc<Buffer>) -> Result<Took, LoadError> {
        loop {
            self.gate.is_not_paused().await;
            let limit = self.limit();
            let attempt = self.attempt(version, buffer);
            match tokio::time::timeout(limit, attempt).await {
                Ok(ended) => return ended,
                Err(_) if self.gate.state().paused_by().is_some() => {}
                Err(_) => return Err(LoadError::Stuck { version, limit }),
            }
        }
    }

    fn limit(&self) -> Duration {
        let most = self.settings.command.load();
        let longest = *self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        match longest {
            Some(longest) => (longest * SLOWER).max(LEAST).min(most),
            None => most,
        }
    }

    fn took(&self, time: Duration) {
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        *longest = Some(longest.unwrap_or_default().max(time));
    }

    async fn attempt(&self, version: u64, buffer: &Arc<Buffer>) -> Result<Took, LoadError> {
        let Some((dialect, files)) = self.dialect.get().zip(self.files.get()) else {
            return Err(FilesError::Unknown("no folder yet".into()).into());
        };
        let folder = files.name(buffer, version)?;
        let state = self.gate.state();
        let mut took = Took::default();
        let pauses = state.running() > 0 && state.paused_by().is_none();
        if pauses {
            let (mode, began) = (self.pause_mode(), Instant::now());
            self.order(&dialect.pause(mode)?, PAUSE).await?;
            took.pause = began.elapsed();
        }
        let began = Instant::now();
        let loaded = self.load(dialect, version, &folder).await;
        took.load = began.elapsed();
        if pauses {
            let began = Instant::now();
            // Whatever came of it: a paused engine could not even be verified.
            self.order(&dialect.resume(), PAUSE).await?;
            took.pause += began.elapsed();
        }
        loaded?;
        let canary = self.canaries().get(&version).cloned();
        let published = Published {
            version,
            buffer,
            folder: &folder,
            canary: canary.as_ref(),
        };
        let began = Instant::now();
        self.verify(dialect, &published).await?;
        took.verify = began.elapsed();
        Ok(took)
    }

    async fn load(&self, dialect: &Dialect, version: u64, folder: &Path) -> Result<(), LoadError> {
        let limit = self.settings.command.load();
        let flush = self.settings.command.flush != Flush::Never;
        match self.settings.command.weights {
            EngineWeights::None => Ok(()),
            EngineWeights::Theirs => self.wait_for(dialect, version, limit).await,
            EngineWeights::Disk => {
                let load = Load {
                    folder: folder.display().to_string(),
                    format: None,
                    version: Label::Number(version),
                    keep_pause: self.gate.state().paused_by().is_some(),
                    flush,
                };
                for call in dialect.load_from_folder(&load) {
                    self.order(&call, limit).await?;
                }
                Ok(())
            }
            EngineWeights::Plugin => {
                for call in self.plugin.calls(version, folder) {
                    self.order(&call, limit).await?;
                }
                match flush {
                    true => self.order(&dialect.flush(), limit).await,
                    false => Ok(()),
                }
            }
        }
    }

    /// Waits until the version is there that somebody else's trainer sends by itself.
    async fn wait_for(
        &self,
        dialect: &Dialect,
        version: u64,
        limit: Duration,
    ) -> Result<(), LoadError> {
        let arrived = async {
            loop {
                let served = self.served(dialect).await?;
                if served.number() >= Some(version) {
                    return Ok(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let late = || LoadError::NotSent { version, limit };
        tokio::time::timeout(limit, arrived)
            .await
            .map_err(|_| late())?
    }

    /// The version that the engine says it serves.
    async fn served(&self, dialect: &Dialect) -> Result<Label, LoadError> {
        let reply = self.client.ask(&dialect.version_served(), PAUSE).await?;
        let label = dialect
            .read_version(&reply.body)
            .map_err(NotVerified::from)?;
        Ok(label)
    }

    async fn verify(&self, dialect: &Dialect, published: &Published<'_>) -> Result<(), LoadError> {
        if self.settings.command.weights == EngineWeights::None {
            return Ok(());
        }
        // A paused engine answers no canary; whoever paused it lets it go on.
        self.gate.is_not_paused().await;
        let verifier = super::verify::Verifier {
            client: &self.client,
            dialect,
            command: &self.settings.command,
        };
        Ok(verifier.verify(published).await?)
    }

    /// Gives an order and judges the reply.
    async fn order(&self, call: &Call, limit: Duration) -> Result<(), LoadError> {
        let reply = self.client.ask(&call.request, limit).await?;
        let judged = call.judge(reply.status, &reply.body);
        judged.map_err(|refused| LoadError::Refused {
            order: call.request.to_string(),
            refused,
        })
    }

    fn pause_mode(&self) -> PauseMode {
        use robust_shared::job::PauseMode as Said;
        match self.settings.command.pause_mode() {
            Said::Abort => PauseMode::Abort,
            Said::Retract => PauseMode::Retract,
            Said::Wait => PauseMode::Wait,
            Said::InPlace | Said::Keep => PauseMode::Keep,
        }
    }

    /// The error with what cures it, where that is known.
    fn explained(&self, error: &LoadError) -> String {
        let LoadError::NotVerified(not_verified) = error else {
            return error.to_string();
        };
        match not_verified.cure(&self.settings.command) {
            Some(cure) => format!("{not_verified}; {cure}"),
            None => not_verified.to_string(),
        }
    }

    /// Returns the newer version that was ordered instead.
    async fn superseded(&self, version: u64) -> u64 {
        let mut wanted = self.newest_wanted.subscribe();
        match wanted.wait_for(|newest| *newest > version).await {
            Ok(newest) => *newest,
            Err(_) => version,
        }
    }
}

impl Engine for Loader {
    fn supersede(&self, version: u64) {
        self.newest_wanted
            .send_modify(|newest| *newest = version.max(*newest));
    }

    fn swap(&self, version: WeightVersion, buffer: &Arc<Buffer>) -> Result<(), SwapError> {
        let mut ending = self.ending.subscribe();
        self.runtime.block_on(async {
            tokio::select! {
                taken = self.take_over(version.0, buffer) => taken,
                // The sender lives as long as this loader.
                _ = ending.wait_for(|ending| *ending) => {
                    Err(SwapError::Failed("the instance ends".to_owned()))
                }
            }
        })
    }
}

fn superseded(version: u64, by: u64) -> SwapError {
    SwapError::Superseded(format!(
        "version {by} was wanted before the engine took over version {version}"
    ))
}
