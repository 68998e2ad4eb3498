//! Two buffers: one is served, the other is being filled; both can be read by others.
//!
//! ```text
//!            order for another version            every chunk verified, swapped
//!   closed ───────────────────────────► growing ─────────────────────────────► served
//!     ▲                                  │  ▲ │                                  │
//!     │                                  │  └─┘ source lost: next order,         │
//!     │◄─────────────────────────────────┘      same version, same region        │
//!     │      order for another version: region withdrawn, readers refused        │
//!     └───────────────────────────────────────────────────────────────────────────┘
//!            the other slot is served and an order came: now this one is filled
//! ```
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use robust_shared::ids::WeightVersion;
use robust_shared::weights::Manifest;
use robust_transport::{Buffer, Exposed, RegionKey, Transport, TransportError};

use crate::patch::{Chain, Filled, Passing};
use crate::types::{Link, Served};

/// The two buffers of a puller.
pub struct Slots {
    transport: Transport,
    buffers: [Arc<Buffer>; 2],
    state: Mutex<State>,
    /// Held while a chunk of what is served is read again.
    scrubs: Mutex<()>,
}

#[derive(Default)]
struct State {
    served: Option<(usize, Served)>,
    exposed: [Option<Exposed>; 2],
    /// The patches that made the versions before and the served one, for others.
    chain: Chain,
    /// For drills: the slot that is being filled loses a bit of every chunk that gets readable.
    rots: Option<usize>,
}

impl Slots {
    /// Allocates two buffers for versions of `bytes` bytes, in host memory.
    pub fn new(transport: &Transport, bytes: usize) -> Result<Arc<Self>, TransportError> {
        let buffers = [Buffer::new(bytes)?, Buffer::new(bytes)?];
        Ok(Self::over(transport, buffers))
    }

    /// Two buffers of one length, wherever they lie.
    pub fn over(transport: &Transport, buffers: [Arc<Buffer>; 2]) -> Arc<Self> {
        Arc::new(Self {
            transport: transport.clone(),
            buffers,
            state: Mutex::default(),
            scrubs: Mutex::default(),
        })
    }

    /// What is served, for those who want to fetch it.
    pub fn served(&self) -> Option<Served> {
        self.state().served.as_ref().map(|(_, s)| s.clone())
    }

    /// The buffer to compute from: that of the served version. Before there is one, a buffer of
    /// zeros that no pull writes into.
    pub fn current(&self) -> Arc<Buffer> {
        let at = self.state().served.as_ref().map_or(1, |(at, _)| *at);
        Arc::clone(&self.buffers[at])
    }

    /// Shows the buffer of what is served while it cannot become another's; none when another version is
    /// served, or none.
    pub(crate) fn with_served<R>(
        &self,
        version: WeightVersion,
        read: impl FnOnce(&Buffer) -> R,
    ) -> Option<R> {
        let _held = self.scrubs.lock().unwrap_or_else(PoisonError::into_inner);
        let served = self.state().served.as_ref().map(|(at, s)| (*at, s.version));
        let (at, _) = served.filter(|(_, served)| *served == version)?;
        Some(read(&self.buffers[at]))
    }

    /// The buffer that may be written, and its number.
    pub(crate) fn spare(&self) -> (usize, &Arc<Buffer>) {
        let at = self.state().served.as_ref().map_or(0, |(at, _)| 1 - at);
        (at, &self.buffers[at])
    }

    /// Refuses those who read a slot, and waits for what they asked for: it is about to change.
    pub(crate) fn close(&self, at: usize) {
        let exposed = {
            let mut state = self.state();
            state.rots.take_if(|rots| *rots == at);
            state.exposed[at].take()
        };
        if let Some(exposed) = exposed {
            exposed.withdraw();
        }
    }

    /// Lets others read of a slot what [`Slots::ready`] says; withdraws what they could read before.
    pub(crate) fn open(&self, at: usize) -> Result<RegionKey, TransportError> {
        self.close(at);
        // Nobody begins to read a chunk of it again: it is not served.
        drop(self.scrubs.lock().unwrap_or_else(PoisonError::into_inner));
        let exposed = self
            .transport
            .expose_growing(Arc::clone(&self.buffers[at]))?;
        let key = *exposed.key();
        self.state().exposed[at] = Some(exposed);
        Ok(key)
    }

    /// These bytes of an open slot are verified.
    pub(crate) fn ready(&self, at: usize, range: Range<u64>) {
        let state = self.state();
        if state.rots == Some(at) {
            self.rot(at, range.start);
        }
        if let Some(exposed) = &state.exposed[at] {
            exposed.ready(range);
        }
    }

    /// For drills: memory that fails. A bit flips in every chunk of the served version, after it was
    /// verified. Answers how many; none when nothing is served.
    pub fn damage_served(&self) -> usize {
        let served = self.state().served.clone();
        let Some((at, served)) = served else { return 0 };
        let manifest = &served.manifest;
        let chunks = (0..manifest.chunks()).filter_map(|chunk| manifest.chunk_range(chunk));
        chunks.map(|range| self.rot(at, range.start)).count()
    }

    /// The same of the version that is being pulled: in each chunk from now on, once it is verified
    /// and before others read it.
    pub fn damage_filling(&self) {
        let (at, _) = self.spare();
        self.state().rots = Some(at);
    }

    fn rot(&self, at: usize, offset: u64) {
        if let Err(error) = self.buffers[at].damage(offset as usize) {
            tracing::warn!(%error, offset, "memory that is to fail does not");
        }
    }

    /// From now on this slot is what is served; those who read it, or the patches that made it, go on.
    pub(crate) fn promote(
        &self,
        at: usize,
        manifest: Arc<Manifest>,
        key: RegionKey,
        passing: Option<Passing>,
    ) -> Served {
        let version = manifest.version;
        let content = manifest.content_digest();
        let mut state = self.state();
        for kept in passing
            .into_iter()
            .flat_map(|passing| passing.kept(content))
        {
            state.chain.add(kept);
        }
        let served = Served {
            version,
            manifest,
            key,
            patches: state.chain.links_to(&content),
        };
        state.served = Some((at, served.clone()));
        served
    }

    /// The links that lead to this content; none where there is no way. What does not lead there is of no
    /// use any more and goes.
    pub(crate) fn links_to(&self, content: &[u8; 32]) -> Vec<Link> {
        let chain = &mut self.state().chain;
        if !chain.leads_to(content) {
            chain.clear();
        }
        chain.links_to(content)
    }

    /// Keeps so many of the links that led to what is served, and so many bytes of their patches.
    pub(crate) fn keep_links(&self, links: usize, bytes: u64) {
        self.state().chain.keep(links, bytes);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filled for Slots {
    fn ready(&self, at: usize, range: Range<u64>) {
        Slots::ready(self, at, range);
    }

    fn keep_links(&self, links: usize, bytes: u64) {
        Slots::keep_links(self, links, bytes);
    }
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slots")
            .field("served", &self.served())
            .finish_non_exhaustive()
    }
}
