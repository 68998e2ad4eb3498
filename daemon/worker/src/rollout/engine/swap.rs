//! When the engine goes over to new weights.
//!
//! ```text
//!   step   Swap ─────────────────────────────────────────────► swapped, running requests go on
//!
//!   turn   Swap ─┬─ nothing runs ────────────────────────────► swapped
//!                └─► waiting: new requests are held ──last one ends──► swapped, held ones begin
//!                       └─ Supersede ─► refused; held ones begin when the last running one ended
//! ```
//! A turn is a request. Nobody starves: a held request waits for those that ran when it came, no
//! longer, whether the weights still come or not. Probes are not held: they ask whether the engine
//! lives, and take one step.
//!
//! The model's parameters lie in the buffer that the version was fetched into. A swap exchanges
//! them; when it was answered, nothing refers to the old buffer any more.

use std::sync::mpsc::Sender;

use robust_shared::job::Swap;

use super::{ABORTED, FlatParams, Generate, Piece, State};

/// Weights to go over to.
#[derive(Debug)]
pub struct SwapRequest {
    /// Their version.
    pub version: u64,
    /// The parameters; nobody else writes into their memory.
    pub weights: FlatParams,
    /// Told when they are in use, or why they never will be.
    pub done: Sender<Result<(), NotSwapped>>,
}

/// Why the engine did not take weights over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSwapped {
    /// Newer ones are on their way.
    #[error("version {by} was wanted before running requests had ended")]
    Superseded {
        /// The newer version.
        by: u64,
    },
}

/// What waits for what.
pub(super) struct Swapping {
    at: Swap,
    waiting: Option<SwapRequest>,
    held: Vec<Generate>,
    /// No version below this one is taken over.
    newest_wanted: u64,
}

impl Swapping {
    pub fn at(at: Swap) -> Self {
        let (waiting, held) = Default::default();
        Self {
            at,
            waiting,
            held,
            newest_wanted: 0,
        }
    }

    /// Whether a request of this name is held.
    pub fn holds(&self, rid: &str) -> bool {
        self.held.iter().any(|request| request.rid == rid)
    }

    /// How many requests are held.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Ends held requests of this name, or all of them.
    pub fn abort_held(&mut self, rid: Option<&str>) {
        let ended = |request: &mut Generate| rid.is_none_or(|rid| request.rid == rid);
        for request in self.held.extract_if(.., ended) {
            // The client may have left meanwhile; else it is told as if it had been taken.
            let _ = request.accepted.send(Ok(()));
            let _ = request.pieces.send(Piece::Aborted(ABORTED.into()));
        }
    }
}

impl State {
    /// A request comes: it begins, or waits for the swap like those held before it.
    pub(super) fn on_generate(&mut self, request: Generate) {
        let waits = self.swapping.waiting.is_some() || !self.swapping.held.is_empty();
        if !waits || request.probe {
            return self.take(request);
        }
        match self.check(&request.rid) {
            Ok(()) => self.swapping.held.push(request),
            // A client that left is noticed by its closed pieces.
            Err(refused) => drop(request.accepted.send(Err(refused))),
        }
    }

    pub(super) fn on_swap(&mut self, request: SwapRequest) {
        if request.version < self.swapping.newest_wanted && self.swapping.at == Swap::Turn {
            return self.refuse(request);
        }
        if let Some(older) = self.swapping.waiting.replace(request) {
            self.refuse(older);
        }
        self.settle_swap();
    }

    pub(super) fn supersede(&mut self, version: u64) {
        self.swapping.newest_wanted = self.swapping.newest_wanted.max(version);
        if let Some(older) = self.swapping.waiting.take_if(|w| w.version < version) {
            self.refuse(older);
        }
    }

    fn refuse(&self, request: SwapRequest) {
        let by = self.swapping.newest_wanted;
        let SwapRequest { weights, done, .. } = request;
        // Its memory is about to be written again.
        drop(weights);
        // The puller may have ended meanwhile.
        let _ = done.send(Err(NotSwapped::Superseded { by }));
    }

    /// Swaps if it may be now, and lets held requests begin when nothing holds them any more.
    pub(super) fn settle_swap(&mut self) {
        self.swapping.held.retain(|held| !held.pieces.is_closed());
        let may = self.live.is_empty() || self.swapping.at == Swap::Step;
        if !may {
            return;
        }
        if let Some(request) = self.swapping.waiting.take() {
            self.swap(request);
        }
        for request in std::mem::take(&mut self.swapping.held) {
            self.take(request);
        }
    }

    fn swap(&mut self, request: SwapRequest) {
        let SwapRequest {
            version,
            weights,
            done,
        } = request;
        drop(self.model.replace_params(weights));
        // Keys and values of the old weights do not fit the new ones.
        self.engine.refresh();
        self.version = Some(version);
        // The puller may have ended meanwhile.
        let _ = done.send(Ok(()));
    }
}
