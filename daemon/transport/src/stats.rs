//! Counters of a transport.
use std::sync::atomic::{AtomicU64, Ordering};

/// A snapshot of a transport's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Bytes that arrived by fetches, failed ones included. Grows with every weight version.
    pub bytes_fetched: u64,
    /// Connections open now, those made by peers included. Normally one to four per living peer; up to six while one
    /// for notes was made anew on either side.
    pub endpoints_open: u64,
    /// Failed fetches, notifies and connections. Grows only with dead or stalled peers.
    pub errors: u64,
    /// Messages received by `notify`, taken or not.
    pub messages_received: u64,
    /// Callers turned away, and links closed, because whoever was there is no member of the job or keeps no
    /// rule of the protocol. None of a healthy job.
    pub refused: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub bytes_fetched: AtomicU64,
    pub endpoints_open: AtomicU64,
    pub errors: AtomicU64,
    pub messages_received: AtomicU64,
    pub refused: AtomicU64,
}

impl Counters {
    pub fn snapshot(&self) -> Stats {
        Stats {
            bytes_fetched: self.bytes_fetched.load(Ordering::Relaxed),
            endpoints_open: self.endpoints_open.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            messages_received: self.messages_received.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}
