//! Where the pieces go that were asked for, whatever road they come on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use robust_device::Block;

use super::Event;
use crate::buffer::Buffer;
use crate::digest::PartDigest;
use crate::outside::Outside;

/// What the bytes of one read are written into.
pub(crate) enum Landing {
    /// Their place in host memory.
    Buffer(Arc<Buffer>),
    /// A pinned block, on their way to a device.
    Block(Block),
}

/// Where the bytes of one read belong.
pub(crate) struct Target {
    pub landing: Landing,
    /// Of the first byte, in the buffer.
    pub offset: usize,
    pub len: usize,
    /// Of the part that the piece belongs to.
    pub digest: Arc<Mutex<PartDigest>>,
    /// Where in its part the piece begins.
    pub at: usize,
}

impl Target {
    /// Copies the bytes at `at` of the piece; false if there is no place for them.
    fn fill(&mut self, at: usize, data: Outside<'_>) -> bool {
        let in_part = self.at + at;
        let mut digest = self.digest.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut self.landing {
            Landing::Buffer(buffer) => {
                let filled = buffer.fill(self.offset + at, data, (&mut digest, in_part));
                filled.is_ok()
            }
            Landing::Block(block) => match block.bytes_mut().get_mut(at..at + data.len()) {
                Some(to) => {
                    // SAFETY: as long as the piece, and the block's holder's alone.
                    #[allow(unsafe_code)]
                    unsafe {
                        digest.copy(in_part, data, to.as_mut_ptr());
                    }
                    true
                }
                None => false,
            },
        }
    }
}

/// The targets of one transport, by the tokens of their reads. Locked because UCX documents no thread
/// for its callbacks and has one of its own for connection management.
#[derive(Clone, Default)]
pub(crate) struct Targets(Arc<Mutex<HashMap<u64, Target>>>);

impl Targets {
    /// Where the bytes of the read `token` are to go when they arrive. Bounds are checked then.
    pub fn expect(&self, token: u64, target: Target) {
        self.lock().insert(token, target);
    }

    /// The read `token` is no longer wanted: its bytes will be dropped.
    pub fn unexpect(&self, token: u64) {
        self.lock().remove(&token);
    }

    /// How many bytes are expected for `token`; none if nobody waits (any more).
    pub fn expected(&self, token: u64) -> Option<usize> {
        self.lock().get(&token).map(|target| target.len)
    }

    /// Copies some bytes of a piece of `len` to where they are expected: those at `at`, which come in
    /// their order. A piece that nobody expects (any more) is dropped (T-1).
    pub fn land<'a>(
        &self,
        token: u64,
        len: usize,
        at: usize,
        data: impl Into<Outside<'a>>,
    ) -> Option<Event> {
        let data = data.into();
        let mut all = self.lock();
        let target = all.get_mut(&token)?;
        let fits = len == target.len && at + data.len() <= len && target.fill(at, data);
        match fits && at + data.len() < len {
            true => None,
            false => Some(arrived(token, fits, all.remove(&token)?)),
        }
    }

    /// A piece that cannot be had: to whoever asked it is one that does not fit.
    pub fn spoil(&self, token: u64) -> Option<Event> {
        let target = self.lock().remove(&token)?;
        Some(arrived(token, false, target))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Target>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn arrived(token: u64, fits: bool, target: Target) -> Event {
    let block = match target.landing {
        Landing::Buffer(_) => None,
        Landing::Block(block) => Some(block),
    };
    Event::Arrived { token, fits, block }
}
