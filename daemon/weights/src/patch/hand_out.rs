//! Patches that others can read here.
use std::ops::Range;
use std::sync::Arc;

use robust_transport::{Buffer, BufferError, Exposed, RegionKey, Transport, TransportError};

use super::index::Index;

/// An index that readers may already wait for, and the patches once it is known how long they are.
/// Dropped: those who read or wait are refused, and take whole chunks.
pub(super) struct HandOut {
    index: Exposed,
    patches: Option<Exposed>,
}

/// Why patches cannot be handed out.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotHanded {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Buffer(#[from] BufferError),
}

impl HandOut {
    /// Of a version of so many chunks.
    pub fn open(transport: &Transport, chunks: usize) -> Result<Self, TransportError> {
        let index = Buffer::new(Index::bytes(chunks))?;
        Ok(Self {
            index: transport.expose_growing(index)?,
            patches: None,
        })
    }

    /// Bytes of the patches; 0 where they are not known yet.
    pub fn bytes(&self) -> u64 {
        self.patches.as_ref().map_or(0, |patches| patches.key().len)
    }

    /// The index's.
    pub fn key(&self) -> &RegionKey {
        self.index.key()
    }

    /// These are all the patches.
    pub fn fill(
        &mut self,
        transport: &Transport,
        index: Index,
        patches: &[u8],
    ) -> Result<(), NotHanded> {
        let room = self.prepare(transport, &index)?;
        if let Some(room) = room {
            room.write_at(0, patches)?;
            self.ready(0..patches.len() as u64);
        }
        Ok(())
    }

    /// Lets others read the index; the patches come into the returned memory, each of which others can
    /// read once it is [`HandOut::ready`].
    pub fn prepare(
        &mut self,
        transport: &Transport,
        index: &Index,
    ) -> Result<Option<Arc<Buffer>>, NotHanded> {
        let total = usize::try_from(index.total()).unwrap_or(usize::MAX);
        let room = (total > 0).then(|| Buffer::new(total)).transpose()?;
        let patches = room
            .as_ref()
            .map(|room| transport.expose_growing(Arc::clone(room)));
        let patches = patches.transpose()?;
        let bytes = index.to_bytes(patches.as_ref().map(Exposed::key));
        self.index.buffer().write_at(0, &bytes)?;
        self.patches = patches;
        self.index.ready(0..bytes.len() as u64);
        Ok(room)
    }

    /// These bytes of the patches are right.
    pub fn ready(&self, range: Range<u64>) {
        if let Some(patches) = &self.patches {
            patches.ready(range);
        }
    }
}
