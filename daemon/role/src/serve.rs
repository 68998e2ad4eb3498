//! Weights that this process publishes for others to read.
//!
//! Two buffers by the version's parity: what is still being read is not overwritten by the next one. A
//! region is of one version, and whoever reads an older one is refused, not given other bytes.

use std::sync::Arc;

use robust_proto::manifest::to_proto;
use robust_proto::v1::{Region, ServedVersion};
use robust_shared::ids::WeightVersion;
use robust_shared::weights::{Manifest, ManifestError, TensorSpec};
use robust_transport::{Buffer, BufferError, Exposed, RegionKey, Transport, TransportError};

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
}

/// Publishes versions.
pub struct Publisher {
    transport: Transport,
    layout: Layout,
    buffers: [Arc<Buffer>; 2],
    published: [Option<Exposed>; 2],
}

impl Publisher {
    /// Allocates the two buffers.
    pub fn new(transport: &Transport, layout: Layout) -> Result<Self, BufferError> {
        Ok(Self {
            transport: transport.clone(),
            buffers: [Buffer::new(layout.bytes)?, Buffer::new(layout.bytes)?],
            layout,
            published: [None, None],
        })
    }

    /// The same in memory of the caller's, two buffers of the layout's length.
    pub fn over(transport: &Transport, layout: Layout, buffers: [Arc<Buffer>; 2]) -> Self {
        Self {
            transport: transport.clone(),
            layout,
            buffers,
            published: [None, None],
        }
    }

    /// The version before the last can be read no longer: this one's bytes are about to be written
    /// where it lies.
    pub fn make_room(&mut self, version: u64) {
        if let Some(before) = self.published[of(version)].take() {
            before.withdraw();
        }
    }

    /// Publishes a version whose bytes `write` puts into the buffer: all of them, for what it leaves
    /// is of an older version. That older version can be read no longer; after an error neither can.
    pub fn publish(
        &mut self,
        version: u64,
        write: impl FnOnce(&Buffer) -> Result<(), BufferError>,
    ) -> Result<ServedVersion, PublishError> {
        self.make_room(version);
        let at = of(version);
        let buffer = &self.buffers[at];
        write(buffer)?;
        let Layout {
            tensors,
            chunk_bytes,
            ranks,
            ..
        } = &self.layout;
        let manifest = buffer.with_bytes(|bytes| {
            let whole = 0..bytes.len() as u64;
            let version = WeightVersion(version);
            let built = Manifest::build(version, bytes, *chunk_bytes, tensors.clone());
            built?.held_by(vec![whole; *ranks])
        })??;
        let region = self.transport.expose(Arc::clone(buffer))?;
        let served = ServedVersion {
            version,
            manifest: Some(to_proto(&manifest)),
            region: Some(as_region(region.key())),
            canary: None,
        };
        self.published[at] = Some(region);
        Ok(served)
    }

    /// For drills: memory that fails. A bit flips in every chunk of what was published.
    pub fn damage(&self, version: u64) {
        let buffer = &self.buffers[of(version)];
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

/// Which buffer is this version's.
fn of(version: u64) -> usize {
    (version % 2) as usize
}

/// A region that others can read, as the protocol names it.
pub fn as_region(key: &RegionKey) -> Region {
    Region {
        key: key.to_bytes(),
        bytes: key.len,
    }
}
