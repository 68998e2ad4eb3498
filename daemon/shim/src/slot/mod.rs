//! The slot that a hybrid engine shares with its rank.
//!
//! ```text
//!            lend                          its memory is back, then the answer
//!  its own ───────► door closed, requests ended, cache emptied, asleep ───────────────► the rank's
//!     ▲                                                                                     │ take back
//!     │ door open, then the answer                                                          ▼
//!     └── verified ◄── goes on ◄── memory for keys and values ◄── weights loaded ◄── memory for weights
//! ```
//! With `hybrid = "pause"` the memory stays, and the rest is the same.
//!
//! A version that comes while the rank trains waits beside the engine ([`Loader`]). Whatever came, the
//! weights are loaded and verified again at each waking: SGLang keeps no copy of them, vLLM's may be lost,
//! and both go on naming the version that they had (I-4). They are loaded before keys and values take the
//! room that loading needs.
//!
//! An engine that is still starting has nothing to end: the word is taken at once, and it goes to sleep
//! when it is up. One that does not sleep or wake is given up: whoever has the slot could not use it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use robust_engine::{Dialect, Kind, MemoryPart, PauseMode};
use robust_shared::job::HybridMode;
use tokio::sync::mpsc;

use crate::gate::Gate;
use crate::state::{State, Weights};
use crate::weights::{ATTEMPTS, Bound, LoadError, Loader, Newest, PAUSE};

use crate::words::Word;
pub use crate::words::{Heard, Words, words};

/// How long replies that ended may take to their clients before the memory goes all the same: the engine
/// itself has nothing under way then.
const REPLIES: Duration = Duration::from_secs(5);
/// Pause before a cache is emptied again that had a request in it still.
const AGAIN: Duration = Duration::from_millis(100);

/// Obeys: has the engine sleep and wake.
pub struct Slot {
    loader: Arc<Loader>,
    gate: Arc<Gate>,
    mode: HybridMode,
    /// What of the memory is given back.
    asleep: Vec<MemoryPart>,
    /// What going to sleep may take.
    bound: Bound,
    given_up: mpsc::UnboundedSender<String>,
}

impl Slot {
    /// The slot of an engine that may still be starting. `given_up` is told why the engine must be started
    /// anew.
    pub fn new(
        loader: Arc<Loader>,
        gate: Arc<Gate>,
        mode: HybridMode,
        given_up: mpsc::UnboundedSender<String>,
    ) -> Self {
        // Weights are copied, as they are when they are loaded.
        let bound = Bound::new(loader.most());
        Self {
            loader,
            gate,
            mode,
            asleep: Vec::new(),
            bound,
            given_up,
        }
    }

    /// Obeys one word after the other, until one cannot be obeyed. What was begun is ended, whether
    /// somebody still waits for it or not: an engine that half sleeps is of no use to anybody.
    pub async fn obey(mut self, mut heard: Heard) {
        while let Some(order) = heard.0.recv().await {
            let obeyed = match order.word {
                Word::Up if !self.gate.state().is_lent() => Ok(()),
                Word::Up | Word::Lend => self.lend().await,
                Word::TakeBack => self.take_back().await,
                Word::Renew => self.renew().await,
            };
            match obeyed {
                Ok(()) => drop(order.done.send(())),
                Err(reason) => {
                    // The process is ending if nobody listens.
                    let _ = self.given_up.send(reason);
                    return;
                }
            }
        }
    }

    async fn lend(&mut self) -> Result<(), String> {
        // The door closes before anything else: who asks a paused engine waits without end.
        self.gate.change(State::lend);
        let loader = Arc::clone(&self.loader);
        // A load under way ends first.
        let _alone = loader.alone().await;
        if self.gate.state().weights() == Weights::Starting || !self.asleep.is_empty() {
            return Ok(());
        }
        let (began, limit) = (Instant::now(), self.bound.limit());
        let given = tokio::time::timeout(limit, self.give()).await;
        let given = given.unwrap_or(Err(LoadError::Awake { limit }));
        given
            .map_err(|error| format!("the engine does not leave the slot to its rank: {error}"))?;
        self.bound.took(began.elapsed());
        let took = began.elapsed().as_secs_f64() * 1e3;
        tracing::info!(
            took_ms = took,
            mode = self.mode.name(),
            "the rank has the slot"
        );
        Ok(())
    }

    async fn give(&mut self) -> Result<(), LoadError> {
        let loader = Arc::clone(&self.loader);
        let dialect = loader.dialect()?;
        let pause = dialect.pause(PauseMode::Abort)?;
        loader.order(&pause, PAUSE).await?;
        let _ = tokio::time::timeout(REPLIES, self.gate.is_idle()).await;
        if self.mode == HybridMode::Pause {
            return Ok(());
        }
        if dialect.kind() == Kind::Sglang {
            self.empty(dialect).await?;
        }
        // Level 2 would keep no copy of the weights, and is known to lose more of some models than is
        // loaded again.
        loader.order(&dialect.sleep(false), loader.most()).await?;
        self.asleep = MemoryPart::ALL.to_vec();
        Ok(())
    }

    /// SGLang refuses as long as a request stands in its cache, which those that were ended just now may.
    async fn empty(&self, dialect: &Dialect) -> Result<(), LoadError> {
        loop {
            match self.loader.order(&dialect.flush(), PAUSE).await {
                Err(LoadError::Refused { .. }) => tokio::time::sleep(AGAIN).await,
                other => return other,
            }
        }
    }

    async fn take_back(&mut self) -> Result<(), String> {
        let loader = Arc::clone(&self.loader);
        let _alone = loader.alone().await;
        let state = self.gate.state();
        if !state.is_lent() {
            return Ok(());
        }
        if state.weights() == Weights::Starting {
            self.gate.change(State::take_back);
            return Ok(());
        }
        let newest = loader.newest();
        self.gate.change(|state| {
            state.take_back();
            if let Some(newest) = &newest {
                state.load(newest.version);
            }
        });
        self.awaken(newest.as_ref()).await
    }

    async fn renew(&mut self) -> Result<(), String> {
        let loader = Arc::clone(&self.loader);
        let _alone = loader.alone().await;
        let state = self.gate.state();
        let Some(newest) = loader
            .newest()
            .filter(|_| state.weights() == Weights::Stale)
        else {
            // It was loaded meanwhile, or there is nothing yet that it could serve.
            return Ok(());
        };
        if state.is_lent() || state.paused_by().is_some() {
            // What ends that has it loaded, too.
            return Ok(());
        }
        self.gate.change(|state| state.load(newest.version));
        self.awaken(Some(&newest)).await
    }

    async fn awaken(&mut self, newest: Option<&Newest>) -> Result<(), String> {
        let mut reason = String::new();
        for attempt in 1..=ATTEMPTS {
            let (began, limit) = (Instant::now(), self.loader.bound.limit());
            let awake = tokio::time::timeout(limit, self.wake(newest)).await;
            match awake.unwrap_or(Err(LoadError::Asleep { limit })) {
                Ok(()) => {
                    self.gate.change(State::verified);
                    self.loader.bound.took(began.elapsed());
                    let took = began.elapsed().as_secs_f64() * 1e3;
                    let version = newest.map(|newest| newest.version);
                    tracing::info!(
                        version,
                        attempt,
                        took_ms = took,
                        "the slot is the engine's again"
                    );
                    return Ok(());
                }
                Err(error) => {
                    reason = self.loader.explained(&error);
                    tracing::warn!(attempt, %reason, "the engine does not go on");
                    if matches!(error, LoadError::Asleep { .. }) {
                        break;
                    }
                }
            }
        }
        self.gate.change(State::refused);
        Err(format!(
            "the engine does not go on with its memory again: {reason}"
        ))
    }

    /// Weights first, keys and values when those are loaded; then all is looked at, behind the closed door.
    async fn wake(&mut self, newest: Option<&Newest>) -> Result<(), LoadError> {
        let loader = Arc::clone(&self.loader);
        let dialect = loader.dialect()?;
        self.take(dialect, MemoryPart::Weights).await?;
        if let Some(newest) = newest {
            loader.put_in(newest, true).await?;
        }
        self.take(dialect, MemoryPart::KvCache).await?;
        loader.order(&dialect.resume(), PAUSE).await?;
        match newest {
            Some(newest) => loader.prove(newest).await,
            None => Ok(()),
        }
    }

    /// Takes a part of the memory again, unless that is done.
    async fn take(&mut self, dialect: &Dialect, part: MemoryPart) -> Result<(), LoadError> {
        if self.asleep.contains(&part) {
            let wake = dialect.wake(&[part]);
            self.loader.order(&wake, self.loader.most()).await?;
            self.asleep.retain(|asleep| *asleep != part);
        }
        Ok(())
    }
}
