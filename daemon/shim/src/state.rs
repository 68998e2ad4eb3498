//! What may be asked of the engine now.
//!
//! ```text
//!             ready               load(v)                   verified
//!  Starting ────────► Stale ───────────────► Loading(v) ───────────────► Serving(v)
//!                       ▲                     │      ▲                      │
//!                       └──────── refused ────┘      └─────── load(w) ──────┘
//! ```
//! Happy path: the engine is up, and stale: it serves what it was started with, whatever that is. The
//! first version is loaded and verified, and only then is there traffic (I-4). Each further version
//! closes the door again for as long as loading and verifying it takes.
//!
//! A pause that somebody else ordered lies over all of these: while it lasts nothing is let in, and the
//! phase says so, for a paused engine answers no probe. So does the turn of the rank whose slot a hybrid
//! engine shares, from the daemon's word to the other one.

use std::time::Duration;

use robust_engine::MemoryPart;
use robust_shared::phase::Phase;

/// After so long a client may ask a paused or stale engine again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the engine's weights are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// It does not answer yet.
    Starting,
    /// It answers, and nobody verified what it serves.
    Stale,
    /// It is being given this version, or that is being verified.
    Loading(u64),
    /// It serves this version, verified.
    Serving(u64),
}

/// The engine as its clients may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    weights: Weights,
    /// Who paused it; the shim's own pauses are part of loading.
    paused_by: Option<String>,
    /// What of its memory somebody else had it give back.
    asleep: Vec<MemoryPart>,
    /// Its slot is its rank's now.
    lent: bool,
    /// Requests under way.
    running: usize,
}

/// Why a request is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// The engine is not up yet.
    #[error("the engine is starting")]
    Starting,
    /// What it serves is not verified.
    #[error("the engine has no verified weights yet")]
    Stale,
    /// It is being given another version.
    #[error("version {0} is being loaded")]
    Loading(u64),
    /// Somebody paused it.
    #[error("generation is paused here by {0}; ask another engine")]
    Paused(String),
    /// Its rank trains in the slot that both have.
    #[error("the slot is its rank's, which trains; ask another engine")]
    Lent,
}

impl Closed {
    /// Whether it is over in a moment, so that waiting is better than asking elsewhere.
    pub fn is_short(&self) -> bool {
        matches!(self, Closed::Loading(_))
    }

    /// After how long a client may ask again.
    pub fn retry_after(&self) -> Duration {
        RETRY_AFTER
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            weights: Weights::Starting,
            paused_by: None,
            asleep: Vec::new(),
            lent: false,
            running: 0,
        }
    }
}

impl State {
    /// What the engine's weights are.
    pub fn weights(&self) -> Weights {
        self.weights
    }

    /// Who paused it, if it is paused by others.
    pub fn paused_by(&self) -> Option<&str> {
        self.paused_by.as_deref()
    }

    /// Whether its slot is its rank's now.
    pub fn is_lent(&self) -> bool {
        self.lent
    }

    /// Requests under way.
    pub fn running(&self) -> usize {
        self.running
    }

    /// The engine answers.
    pub fn ready(&mut self) {
        if self.weights == Weights::Starting {
            self.weights = Weights::Stale;
        }
    }

    /// Another version is being given to it: nothing is let in until it is verified.
    pub fn load(&mut self, version: u64) {
        self.weights = Weights::Loading(version);
    }

    /// It serves what it was given.
    pub fn verified(&mut self) {
        if let Weights::Loading(version) = self.weights {
            self.weights = Weights::Serving(version);
        }
    }

    /// It does not serve what it was given, and what it serves nobody knows.
    pub fn refused(&mut self) {
        self.weights = Weights::Stale;
    }

    /// Loading was given up before the engine was touched: it serves what it served.
    pub fn kept(&mut self, before: Weights) {
        self.weights = before;
    }

    /// Somebody else paused it.
    pub fn pause(&mut self, by: impl Into<String>) {
        self.paused_by = Some(by.into());
    }

    /// Somebody lets it go on, which it cannot without its memory.
    pub fn resume(&mut self) {
        if self.asleep.is_empty() {
            self.paused_by = None;
        }
    }

    /// Somebody else had it give memory back; what its weights are afterwards nobody knows.
    pub fn sleep(&mut self, parts: &[MemoryPart], by: impl Into<String>) {
        self.pause(by);
        let more = parts.iter().filter(|part| !self.asleep.contains(part));
        let more: Vec<MemoryPart> = more.copied().collect();
        self.asleep.extend(more);
    }

    /// Somebody else had it take memory again: it goes on when all of it is there. Whether it does.
    pub fn wake(&mut self, parts: &[MemoryPart]) -> bool {
        self.asleep.retain(|part| !parts.contains(part));
        if self.asleep.is_empty() {
            self.resume();
        }
        self.asleep.is_empty()
    }

    /// Its slot is its rank's from here on.
    pub fn lend(&mut self) {
        self.lent = true;
    }

    /// Its slot is its own again. Who had paused it before has nothing left that could go on: what the
    /// engine was doing then ended when the slot was lent.
    pub fn take_back(&mut self) {
        self.lent = false;
        self.paused_by = None;
        self.asleep.clear();
    }

    /// A request begins.
    pub fn begin(&mut self) {
        self.running += 1;
    }

    /// A request ended.
    pub fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// The version that a request would be served with, or why none is let in.
    pub fn admit(&self) -> Result<u64, Closed> {
        if self.lent {
            return Err(Closed::Lent);
        }
        if let Some(by) = &self.paused_by {
            return Err(Closed::Paused(by.clone()));
        }
        match self.weights {
            Weights::Starting => Err(Closed::Starting),
            Weights::Stale => Err(Closed::Stale),
            Weights::Loading(version) => Err(Closed::Loading(version)),
            Weights::Serving(version) => Ok(version),
        }
    }

    /// The phase that the rules judge by. While weights are loaded the engine generates nothing for
    /// anybody, and no rule may take that for silence.
    pub fn phase(&self) -> Phase {
        match self.weights {
            Weights::Starting => Phase::Init,
            _ if self.lent || self.paused_by.is_some() => Phase::Paused,
            Weights::Stale => Phase::PullWeights,
            Weights::Loading(_) => Phase::Paused,
            Weights::Serving(_) if self.running > 0 => Phase::Generating,
            Weights::Serving(_) => Phase::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving(version: u64) -> State {
        let mut state = State::default();
        state.ready();
        state.load(version);
        state.verified();
        state
    }

    #[test]
    fn nothing_is_let_in_before_a_version_was_verified() {
        let mut state = State::default();
        assert_eq!(state.admit(), Err(Closed::Starting));
        state.ready();
        assert_eq!(state.admit(), Err(Closed::Stale));
        state.load(3);
        assert_eq!(state.admit(), Err(Closed::Loading(3)));
        state.verified();
        assert_eq!(state.admit(), Ok(3));
    }

    #[test]
    fn a_refused_version_leaves_nothing_that_could_be_served() {
        let mut state = serving(3);
        state.load(4);
        state.refused();
        assert_eq!(
            (state.admit(), state.weights()),
            (Err(Closed::Stale), Weights::Stale)
        );
        state.verified();
        assert_eq!(
            state.admit(),
            Err(Closed::Stale),
            "a late word of it changes nothing"
        );
    }

    #[test]
    fn a_pause_by_others_lies_over_everything_and_outlasts_a_load() {
        let mut state = serving(3);
        state.pause("a client");
        state.load(4);
        state.verified();
        assert_eq!(state.admit(), Err(Closed::Paused("a client".into())));
        assert_eq!(state.phase(), Phase::Paused);
        state.resume();
        assert_eq!(state.admit(), Ok(4));
    }

    #[test]
    fn who_woke_a_part_of_the_memory_has_not_woken_the_engine() {
        let mut state = serving(3);
        state.sleep(&MemoryPart::ALL, "a client, asleep");
        assert!(!state.wake(&[MemoryPart::Weights]));
        state.resume();
        let closed = Closed::Paused("a client, asleep".into());
        assert_eq!(state.admit(), Err(closed));
        assert!(state.wake(&[MemoryPart::KvCache]));
        assert_eq!(state.admit(), Ok(3));
    }

    #[test]
    fn a_slot_that_is_lent_lets_nobody_in_and_a_pause_of_before_ends_with_it() {
        let mut state = serving(3);
        state.pause("a client");
        state.lend();
        assert_eq!(state.admit(), Err(Closed::Lent));
        assert_eq!(state.phase(), Phase::Paused);
        state.resume();
        assert_eq!(state.admit(), Err(Closed::Lent), "a client cannot end it");
        state.take_back();
        state.load(4);
        assert_eq!(state.admit(), Err(Closed::Loading(4)));
        state.verified();
        assert_eq!(state.admit(), Ok(4));
        let mut starting = State::default();
        starting.lend();
        assert_eq!(starting.phase(), Phase::Init);
    }

    #[test]
    fn the_phase_follows_requests_and_loads() {
        let mut state = serving(3);
        assert_eq!(state.phase(), Phase::Idle);
        state.begin();
        assert_eq!(state.phase(), Phase::Generating);
        state.load(4);
        assert_eq!(state.phase(), Phase::Paused);
        state.verified();
        state.end();
        state.end();
        assert_eq!((state.phase(), state.running()), (Phase::Idle, 0));
        assert_eq!(State::default().phase(), Phase::Init);
    }
}
