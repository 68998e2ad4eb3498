//! Weights that this process publishes for others to read.
//!
//! Two buffers by the version's parity: what is still being read is not overwritten by the next one. A
//! region is of one version, and whoever reads an older one is refused, not given other bytes. While a
//! version is read its patches are made of the two, and those of the versions before are kept, see `patch`.
use std::sync::Arc;

use robust_shared::ids::WeightVersion;
use robust_shared::weights::{Manifest, ManifestError, TensorSpec};
use robust_transport::{Buffer, BufferError, Exposed, RoadKind, Transport, TransportError};

use crate::names;
use crate::patch::{Chain, Patches, Version};
use crate::types::{Link, Served};

/// Why a version could not be published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The region is in use or of another size.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The transport does not take the region.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The layout makes no manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// What all versions of a publisher have in common.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Length of a version.
    pub bytes: usize,
    /// The tensors that it consists of.
    pub tensors: Vec<TensorSpec>,
    /// Length of the pieces that are verified each by itself.
    pub chunk_bytes: u64,
    /// How many processes publish the same bytes; pullers read from all of them.
    pub ranks: usize,
    /// Versions whose number is a multiple of it have no patches: they are pulled whole. 1: all.
    pub full_every: u64,
}

/// Publishes versions.
pub struct Publisher {
    transport: Transport,
    layout: Layout,
    places: [Place; 2],
    /// What makes the last version of the one before.
    patches: Option<Patches>,
    /// What made that one of those before it.
    chain: Chain,
}

/// Where every second version lies.
struct Place {
    buffer: Arc<Buffer>,
    exposed: Option<Exposed>,
    /// What is in the buffer, while it is whole.
    holds: Option<Arc<Manifest>>,
}

impl Publisher {
    /// Allocates the two buffers.
    pub fn new(transport: &Transport, layout: Layout) -> Result<Self, BufferError> {
        let buffers = [Buffer::new(layout.bytes)?, Buffer::new(layout.bytes)?];
        Ok(Self::over(transport, layout, buffers))
    }

    /// The same in memory of the caller's, two buffers of the layout's length.
    pub fn over(transport: &Transport, layout: Layout, buffers: [Arc<Buffer>; 2]) -> Self {
        let place = |buffer| Place {
            buffer,
            exposed: None,
            holds: None,
        };
        Self {
            transport: transport.clone(),
            layout,
            places: buffers.map(place),
            patches: None,
            chain: Chain::default(),
        }
    }

    /// The version before the last can be read no longer: this one's bytes are about to be written
    /// where it lies.
    pub fn make_room(&mut self, version: u64) {
        let place = &mut self.places[of(version)];
        place.holds = None;
        // Those of the version that stays are made of what lies here.
        if let Some(patches) = &self.patches {
            patches.stop();
        }
        if let Some(before) = place.exposed.take() {
            before.withdraw();
        }
    }

    /// Publishes a version whose bytes `write` puts into the buffer: all of them, for what it leaves
    /// is of an older version. That older version can be read no longer; after an error neither can.
    pub fn publish(
        &mut self,
        version: u64,
        write: impl FnOnce(&Buffer) -> Result<(), BufferError>,
    ) -> Result<Served, PublishError> {
        self.make_room(version);
        let at = of(version);
        let buffer = Arc::clone(&self.places[at].buffer);
        write(&buffer)?;
        let manifest = Arc::new(self.manifest(version, &buffer)?);
        let exposed = self.transport.expose(Arc::clone(&buffer))?;
        let key = *exposed.key();
        let served = Served {
            version: manifest.version,
            manifest: Arc::clone(&manifest),
            key,
            patches: self.links(version, &manifest)?,
        };
        self.places[at] = Place {
            buffer,
            exposed: Some(exposed),
            holds: Some(manifest),
        };
        Ok(served)
    }

    /// Begins to make this version's patches, and keeps those that made the one before, if they are all
    /// made. None where this one has none: then there is no way to it from any other.
    fn links(
        &mut self,
        version: u64,
        manifest: &Arc<Manifest>,
    ) -> Result<Vec<Link>, TransportError> {
        match self.patches.take().and_then(Patches::finish) {
            Some(kept) => self.chain.add(kept),
            None => self.chain.clear(),
        }
        self.patches = self.patches(version, manifest)?;
        let Some(patches) = &self.patches else {
            return Ok(Vec::new());
        };
        let newest = patches.link();
        if !self.chain.leads_to(&newest.base) {
            self.chain.clear();
        }
        let most = Patches::most(manifest.bytes);
        self.chain.keep(Chain::MOST_LINKS - 1, most);
        let mut links = self.chain.links();
        links.push(newest);
        Ok(links)
    }

    /// Reads every byte; where others of other machines come, chunks get their BLAKE3 digests, too.
    fn manifest(&self, version: u64, buffer: &Buffer) -> Result<Manifest, PublishError> {
        let layout = &self.layout;
        let bytes = buffer.len() as u64;
        let mut manifest = Manifest {
            version: WeightVersion(version),
            bytes,
            chunk_bytes: layout.chunk_bytes,
            chunk_xxh3: Vec::new(),
            chunk_blake3: Vec::new(),
            tensors: layout.tensors.clone(),
            shards: vec![0..bytes; layout.ranks],
        };
        match self.transport.net() {
            None => manifest.chunk_xxh3 = xxh3_of(&manifest, buffer)?,
            Some(_) => {
                let before = &self.places[1 - of(version)];
                let before = before.holds.as_deref().map(|held| (held, &*before.buffer));
                let named = names::of(&manifest, buffer, before)?;
                (manifest.chunk_xxh3, manifest.chunk_blake3) = named.into_iter().unzip();
            }
        }
        manifest.check()?;
        Ok(manifest)
    }

    /// Begins to make what makes this version of the one before it, where that is of use: of numbers that
    /// mostly stay the same, where readers come over Ethernet. By RDMA, and where all are on one machine, a
    /// whole version is there sooner than its patches are made. Readers on this machine use them, too, where
    /// there are others: they pass them on.
    fn patches(
        &self,
        version: u64,
        manifest: &Arc<Manifest>,
    ) -> Result<Option<Patches>, TransportError> {
        let before = &self.places[1 - of(version)];
        let Some(base) = &before.holds else {
            return Ok(None);
        };
        let slow = self.transport.net() == Some(RoadKind::Tls);
        let of_use = slow && is_of_short_words(&manifest.tensors);
        let whole = version.is_multiple_of(self.layout.full_every.max(1));
        if !of_use || whole || base.version.0 + 1 != version {
            return Ok(None);
        }
        let base = Version {
            manifest: Arc::clone(base),
            buffer: Arc::clone(&before.buffer),
        };
        let next = Version {
            manifest: Arc::clone(manifest),
            buffer: Arc::clone(&self.places[of(version)].buffer),
        };
        Patches::begin(&self.transport, base, next)
    }

    /// For drills: memory that fails. A bit flips in every chunk of what was published.
    pub fn damage(&self, version: u64) {
        let buffer = &self.places[of(version)].buffer;
        let chunk = usize::try_from(self.layout.chunk_bytes).unwrap_or(usize::MAX);
        for offset in (0..buffer.len()).step_by(chunk.max(1)) {
            if let Err(error) = buffer.damage(offset) {
                tracing::warn!(%error, offset, "memory that is to fail does not");
            }
        }
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

/// The digests of the chunks of a manifest that has none yet.
fn xxh3_of(manifest: &Manifest, buffer: &Buffer) -> Result<Vec<u64>, BufferError> {
    let chunks = (0..manifest.chunks()).map_while(|chunk| manifest.chunk_range(chunk));
    let digest = |chunk: std::ops::Range<u64>| {
        let chunk = chunk.start as usize..chunk.end as usize;
        buffer.digest(chunk)
    };
    chunks.map(digest).collect()
}

/// Which buffer is this version's.
fn of(version: u64) -> usize {
    (version % 2) as usize
}

/// Whether most bytes are of numbers of two bytes: a step changes every float32.
fn is_of_short_words(tensors: &[TensorSpec]) -> bool {
    let bytes = |short: bool| -> u64 {
        let of = tensors
            .iter()
            .filter(|t| (t.element_bytes() == Some(2)) == short);
        of.map(|t| t.bytes).sum()
    };
    bytes(true) > bytes(false)
}
