//! The door to the engine: lets requests in, holds what comes out while weights are verified, and
//! tells the daemon what the engine does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use robust_role::Link;
use tokio::sync::watch;

use crate::state::{Closed, State, Weights};

/// How long a request waits at the door for weights that are being loaded, before it is sent elsewhere.
const WAIT: Duration = Duration::from_secs(2);

/// The state that everybody shares.
pub struct Gate {
    state: watch::Sender<State>,
    link: Link,
    /// When the last tokens went out.
    tokens_at: Mutex<Option<Instant>>,
}

/// A request that was let in; it is over when this is dropped.
#[derive(Debug)]
pub struct Entered {
    gate: Arc<Gate>,
    version: u64,
}

impl Entered {
    /// The version that is served as the request begins.
    pub fn version(&self) -> u64 {
        self.version
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.gate.change(State::end);
    }
}

impl Gate {
    /// A closed door of an engine that is starting.
    pub fn new(link: Link) -> Self {
        let gate = Self {
            state: watch::Sender::default(),
            link,
            tokens_at: Mutex::default(),
        };
        gate.link.phase(gate.state().phase(), 0);
        gate
    }

    /// What is known of the engine now.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Changes the state, and tells the daemon what follows from it.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(|state| {
            let before = (state.phase(), state.running());
            change(state);
            let version = match state.weights() {
                Weights::Loading(version) | Weights::Serving(version) => version,
                Weights::Starting | Weights::Stale => 0,
            };
            // Within the lock: what is said last is what is so.
            if before.1 != state.running() {
                self.link.set_running(state.running());
            }
            if before.0 != state.phase() {
                self.link.phase(state.phase(), version);
            }
        });
    }

    /// Lets a request in; one that comes while weights are loaded waits for that a little.
    pub async fn enter(self: &Arc<Self>) -> Result<Entered, Closed> {
        let mut states = self.state.subscribe();
        let settled = states.wait_for(|state| !state.admit().is_err_and(|why| why.is_short()));
        // The sender lives as long as this gate; in time or not, the state decides.
        let _ = tokio::time::timeout(WAIT, settled).await;
        let mut admitted = Err(Closed::Stale);
        self.change(|state| {
            admitted = state.admit();
            if admitted.is_ok() {
                state.begin();
            }
        });
        let version = admitted?;
        Ok(Entered {
            gate: Arc::clone(self),
            version,
        })
    }

    /// Waits until what the engine says may be passed on: at once, or when the version that is being
    /// loaded is verified. The error is that it was refused; what was said since then is nobody's.
    pub async fn passes(&self) -> Result<(), Closed> {
        let mut states = self.state.subscribe();
        let settled = |state: &State| !matches!(state.weights(), Weights::Loading(_));
        // The sender lives as long as this gate.
        if let Ok(state) = states.wait_for(settled).await
            && state.weights() == Weights::Stale
        {
            return Err(Closed::Stale);
        }
        Ok(())
    }

    /// Returns when the engine answers.
    pub async fn is_up(&self) {
        let up = |state: &State| state.weights() != Weights::Starting;
        self.until(up).await;
    }

    /// Returns when no request is under way.
    pub async fn is_idle(&self) {
        self.until(|state| state.running() == 0).await;
    }

    /// Returns when nobody else keeps the engine paused.
    pub async fn is_not_paused(&self) {
        self.until(|state| state.paused_by().is_none()).await;
    }

    /// Returns when the engine's slot is its rank's.
    pub async fn is_lent(&self) {
        self.until(State::is_lent).await;
    }

    /// Tokens went out to a client.
    pub fn tokens(&self, count: usize) {
        if count > 0 {
            self.link.add_tokens(count as u64);
            *self.last_tokens() = Some(Instant::now());
        }
    }

    /// Whether tokens went out within this time: an engine that generates need not be asked to.
    pub fn generated_within(&self, time: Duration) -> bool {
        self.last_tokens().is_some_and(|at| at.elapsed() < time)
    }

    fn last_tokens(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.tokens_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn until(&self, so: impl FnMut(&State) -> bool) {
        let mut states = self.state.subscribe();
        // The sender lives as long as this gate.
        let _ = states.wait_for(so).await;
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Gate").field(&self.state()).finish()
    }
}
