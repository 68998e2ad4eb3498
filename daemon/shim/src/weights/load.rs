//! Gives the engine a version, and does not believe it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use robust_engine::Dialect;
use robust_role::pull::Engine;
use robust_shared::ids::WeightVersion;
use robust_shared::job::{RolloutCommand, Swap};
use robust_shared::weights::Canary;
use robust_transport::Buffer;
use robust_weights::SwapError;
use tokio::runtime::Handle;
use tokio::sync::{MutexGuard, mpsc, watch};

use super::bound::Bound;
use super::error::LoadError;
use super::files::{Files, FilesError};
use super::give::PAUSE;
use super::plugin;
use super::verify::Published;
use crate::client::Client;
use crate::front::Front;
use crate::gate::Gate;
use crate::state::{State, Weights};

/// How often a version is given to the engine before the engine is given up.
pub(crate) const ATTEMPTS: usize = 2;
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

/// A version that the engine serves, or is to serve when its slot is its own again.
#[derive(Debug, Clone)]
pub(crate) struct Newest {
    /// Its number.
    pub version: u64,
    /// Its bytes, every chunk verified.
    pub buffer: Arc<Buffer>,
}

/// Loads versions into the engine.
pub struct Loader {
    pub(super) client: Client,
    pub(super) gate: Arc<Gate>,
    pub(super) settings: Settings,
    runtime: Handle,
    /// Known when the engine is up.
    dialect: Arc<OnceLock<Dialect>>,
    /// Made with the first order, which says how large a version is.
    files: OnceLock<Files>,
    canaries: Mutex<BTreeMap<u64, Canary>>,
    /// What loading and verifying may take: who stands still in it is silent by no other rule.
    pub(crate) bound: Bound,
    /// Held by who has the engine load, verify, sleep or wake: each would spoil the other.
    alone: tokio::sync::Mutex<()>,
    newest: Mutex<Option<Newest>>,
    newest_wanted: watch::Sender<u64>,
    /// Whether the instance ends: nothing is waited for any more.
    ending: watch::Sender<bool>,
    /// Told why the engine is of no use any more.
    given_up: mpsc::UnboundedSender<String>,
    pub(super) plugin: plugin::Plugin,
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
        let bound = Bound::new(settings.command.load());
        Self {
            client: engine.client.clone(),
            gate: Arc::clone(&engine.gate),
            settings,
            runtime,
            dialect: Arc::clone(&engine.dialect),
            files: OnceLock::new(),
            canaries: Mutex::default(),
            bound,
            alone: tokio::sync::Mutex::default(),
            newest: Mutex::default(),
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

    /// Nobody else has the engine do anything while this is held.
    pub(crate) async fn alone(&self) -> MutexGuard<'_, ()> {
        self.alone.lock().await
    }

    /// What the engine serves, or is to serve when its slot is its own again.
    pub(crate) fn newest(&self) -> Option<Newest> {
        self.lock_newest().clone()
    }

    fn lock_newest(&self) -> std::sync::MutexGuard<'_, Option<Newest>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_newest(&self, version: u64, buffer: &Arc<Buffer>) {
        let buffer = Arc::clone(buffer);
        *self.lock_newest() = Some(Newest { version, buffer });
    }

    /// The slot is its rank's: the version waits beside the engine, whole and verified, and is loaded and
    /// verified in it before the engine goes on. The puller need not wait that long, and the controller
    /// gives the slot back to those who have the version.
    fn hold(&self, version: u64, buffer: &Arc<Buffer>) {
        self.is_newest(version, buffer);
        tracing::info!(version, "kept for the end of the rank's turn");
    }

    async fn take_over(&self, version: u64, buffer: &Arc<Buffer>) -> Result<(), SwapError> {
        let alone = async {
            self.gate.is_up().await;
            self.alone().await
        };
        let _alone = tokio::select! {
            alone = alone => alone,
            by = self.superseded(version) => return Err(superseded(version, by)),
        };
        let state = self.gate.state();
        if state.is_lent() {
            self.hold(version, buffer);
            return Ok(());
        }
        let before = state.weights();
        self.gate.change(|state| state.load(version));
        if self.settings.swap == Swap::Turn {
            tokio::select! {
                () = self.gate.is_idle() => {}
                () = self.gate.is_lent() => {
                    self.put_off(version, buffer, before);
                    return Ok(());
                }
                by = self.superseded(version) => {
                    self.gate.change(|state| state.kept(before));
                    return Err(superseded(version, by));
                }
            }
        }
        self.attempts(version, buffer, before).await
    }

    /// As [`Loader::hold`], when loading it had begun.
    fn put_off(&self, version: u64, buffer: &Arc<Buffer>, before: Weights) {
        self.gate.change(|state| state.kept(before));
        self.hold(version, buffer);
    }

    async fn attempts(
        &self,
        version: u64,
        buffer: &Arc<Buffer>,
        before: Weights,
    ) -> Result<(), SwapError> {
        let mut reason = String::new();
        for attempt in 1..=ATTEMPTS {
            let began = Instant::now();
            match self.bounded(version, buffer).await {
                Ok(took) => {
                    self.gate.change(State::verified);
                    self.is_newest(version, buffer);
                    tracing::info!(
                        version,
                        attempt,
                        pause_ms = ms(took.pause),
                        load_ms = ms(took.load),
                        verify_ms = ms(took.verify),
                        "the engine serves a verified version"
                    );
                    self.bound.took(began.elapsed());
                    return Ok(());
                }
                Err(LoadError::Lent) => {
                    self.put_off(version, buffer, before);
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

    /// An attempt, within what it may take. It begins when nobody else keeps the engine paused, for a paused
    /// engine could not be verified. One that somebody paused on the way begins again, and where it was the
    /// rank whose turn it is, when that is over.
    async fn bounded(&self, version: u64, buffer: &Arc<Buffer>) -> Result<Took, LoadError> {
        loop {
            tokio::select! {
                biased;
                () = self.gate.is_lent() => return Err(LoadError::Lent),
                () = self.gate.is_not_paused() => {}
            }
            let limit = self.bound.limit();
            let attempt = self.attempt(version, buffer);
            match tokio::time::timeout(limit, attempt).await {
                Ok(ended) => return ended,
                Err(_) if self.gate.state().paused_by().is_some() => {}
                Err(_) => return Err(LoadError::Stuck { version, limit }),
            }
        }
    }

    async fn attempt(&self, version: u64, buffer: &Arc<Buffer>) -> Result<Took, LoadError> {
        let dialect = self.dialect()?;
        let state = self.gate.state();
        let mut took = Took::default();
        let pauses = state.running() > 0 && state.paused_by().is_none();
        if pauses {
            let (mode, began) = (self.pause_mode(), Instant::now());
            self.order(&dialect.pause(mode)?, PAUSE).await?;
            took.pause = began.elapsed();
        }
        let newest = Newest {
            version,
            buffer: Arc::clone(buffer),
        };
        let began = Instant::now();
        let loaded = self.put_in(&newest, state.paused_by().is_some()).await;
        took.load = began.elapsed();
        if pauses {
            let began = Instant::now();
            // Whatever came of it: a paused engine could not even be verified.
            self.order(&dialect.resume(), PAUSE).await?;
            took.pause += began.elapsed();
        }
        loaded?;
        let began = Instant::now();
        self.prove(&newest).await?;
        took.verify = began.elapsed();
        Ok(took)
    }

    /// What loading may take, by the job file.
    pub(crate) fn most(&self) -> Duration {
        self.settings.command.load()
    }

    /// How the engine is spoken to.
    pub(crate) fn dialect(&self) -> Result<&Dialect, LoadError> {
        let unknown = || FilesError::Unknown("no engine yet".into()).into();
        self.dialect.get().ok_or_else(unknown)
    }

    /// Has the engine load a version.
    pub(crate) async fn put_in(&self, it: &Newest, keep_pause: bool) -> Result<(), LoadError> {
        let folder = self.folder(it)?;
        self.load(self.dialect()?, it.version, &folder, keep_pause)
            .await
    }

    /// Whether it is this version that the engine serves.
    pub(crate) async fn prove(&self, it: &Newest) -> Result<(), LoadError> {
        let canary = self.canaries().get(&it.version).cloned();
        let published = Published {
            version: it.version,
            buffer: &it.buffer,
            folder: &self.folder(it)?,
            canary: canary.as_ref(),
        };
        self.verify(self.dialect()?, &published).await
    }

    fn folder(&self, it: &Newest) -> Result<PathBuf, LoadError> {
        let none = || FilesError::Unknown("no folder yet".into());
        let files = self.files.get().ok_or_else(none)?;
        Ok(files.name(&it.buffer, it.version)?)
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
