//! What a puller is told, and what it tells.
use std::sync::Arc;

use robust_shared::ids::{Incarnation, WeightVersion};
use robust_shared::weights::Manifest;
pub use robust_shared::wire::PullFault as PullErrorKind;
use robust_transport::{Address, Buffer, Part, RegionKey, RoadKind};

/// Get this version from these sources.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its number, for whoever gave it.
    pub number: u64,
    /// The version.
    pub version: WeightVersion,
    /// What it consists of.
    pub manifest: Arc<Manifest>,
    /// Who has it. All are read at once; what several have is read from the first of them.
    pub sources: Vec<Source>,
}

/// Patches that make a version of the one before it, and can be read somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// What they are applied to, by `Manifest::content_digest`.
    pub base: [u8; 32],
    /// The region of their index; it leads to them.
    pub key: RegionKey,
}

/// Somebody who has bytes of a version, or is about to have them.
#[derive(Clone, Debug)]
pub struct Source {
    /// Who; errors name it.
    pub id: Incarnation,
    /// Where its transport listens.
    pub addr: Address,
    /// The region to read from.
    pub key: RegionKey,
    /// Which bytes of its region are which of our buffer. Cut as the plan likes; the puller cuts
    /// them further, by chunks.
    pub parts: Vec<Part>,
    /// Where in our buffer the bytes begin that a relay itself gets from each of its sources, the
    /// trainer's ranks: it fills from all these places at once, so it is read in that order. Empty:
    /// in one go.
    pub starts: Vec<u64>,
    /// What makes the version of those before it, link by link, the oldest first; empty if it has no patches.
    pub patches: Vec<Link>,
}

impl Source {
    /// One that has the whole buffer, as it is: a relay. Read in one go, unless [`Source::starts`] is
    /// set.
    pub fn relay(id: Incarnation, addr: Address, key: RegionKey) -> Self {
        let (src, dst, len) = (0, 0, key.len);
        let parts = vec![Part { src, dst, len }];
        Self {
            id,
            addr,
            key,
            parts,
            starts: Vec::new(),
            patches: Vec::new(),
        }
    }
}

/// A version in a buffer that others can read.
#[derive(Clone, Debug)]
pub struct Served {
    /// The version.
    pub version: WeightVersion,
    /// What it consists of; every chunk was verified.
    pub manifest: Arc<Manifest>,
    /// The region that others read.
    pub key: RegionKey,
    /// What makes it of the versions before, link by link, the oldest first; empty if there are no patches.
    pub patches: Vec<Link>,
}

/// How far a pull is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The version pulled.
    pub version: WeightVersion,
    /// Bytes in the buffer: verified, or arrived in this order's fetches.
    pub bytes: u64,
    /// Bytes of the version.
    pub total: u64,
    /// Chunks verified.
    pub chunks: u64,
    /// Chunks of the version.
    pub chunks_total: u64,
    /// The source of the latest piece; none before the first.
    pub source: Option<Incarnation>,
    /// The road that it took.
    pub road: Option<RoadKind>,
    /// Rate over the last second or so, of all sources.
    pub bytes_per_s: u64,
    /// Bytes that came over the network for this version, those fetched again included.
    pub fetched: u64,
    /// Bytes of chunks that patches made of those of the version served before.
    pub patched: u64,
    /// Words of two bytes that this version changed, in the chunks that have patches; 0 where none were
    /// used.
    pub changed_words: u64,
    /// Patches that did not make what the manifest says: those chunks are fetched whole.
    pub wrong_patches: u64,
}

/// Why a pull ended without its version. What was verified stays for the next order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {reason}")]
pub struct PullError {
    /// What kind of reason.
    pub kind: PullErrorKind,
    /// The source at fault, where it is one's fault.
    pub source_id: Option<Incarnation>,
    /// In words.
    pub reason: String,
}

impl PullError {
    pub(crate) fn new(
        kind: PullErrorKind,
        source_id: Option<Incarnation>,
        reason: impl Into<String>,
    ) -> Self {
        let reason = reason.into();
        Self {
            kind,
            source_id,
            reason,
        }
    }

    pub(crate) fn superseded(reason: impl Into<String>) -> Self {
        Self::new(PullErrorKind::Superseded, None, reason)
    }
}

/// Why a complete version was not swapped to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwapError {
    /// A newer order came while it waited for its turn.
    #[error("{0}")]
    Superseded(String),
    /// Whoever computes with the weights cannot.
    #[error("{0}")]
    Failed(String),
    /// Bytes changed in this process's own memory after they were verified: none of them is kept.
    #[error("{0}")]
    Damaged(String),
}

/// Hears of a puller's work. Called on the puller's thread; fetches go on meanwhile.
pub trait Observer: Send + Sync + 'static {
    /// From now on others can read the order's version here, each chunk as soon as it is verified. Said
    /// once per order, also when the region is that of the order before. Patches are passed on here, too,
    /// if it is pulled by them: link by link, the oldest first.
    fn started(&self, order: &Order, key: &RegionKey, patches: &[Link]);

    /// With the first bytes, ten times a second while more come, and when an order's fetches end.
    fn progress(&self, progress: Progress);

    /// The whole version is verified: compute from this buffer from now on. The one before may be
    /// overwritten as soon as this returns and the next order comes. An error fails the pull; the
    /// version stays complete in the spare buffer, and ordered again it is swapped to at once; one that
    /// is damaged does not.
    fn swap(&self, version: WeightVersion, buffer: &Arc<Buffer>) -> Result<(), SwapError>;

    /// The last call of an order: its version is served, or why not. Every order gets one, unless
    /// the puller is dropped before.
    fn done(&self, order: &Order, result: Result<Served, PullError>);
}
