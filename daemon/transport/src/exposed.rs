//! What a transport lets others read.
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::command::{Command, CommandPort};
use crate::key::RegionKey;

/// A buffer that peers may read. Dropping it withdraws the permission; what was asked for before may
/// still be on its way then: see [`Exposed::withdraw`].
pub struct Exposed {
    port: Arc<CommandPort>,
    key: RegionKey,
    buffer: Arc<Buffer>,
}

impl Exposed {
    pub(crate) fn new(port: Arc<CommandPort>, key: RegionKey, buffer: Arc<Buffer>) -> Exposed {
        Exposed { port, key, buffer }
    }

    /// What peers need to read the buffer.
    pub fn key(&self) -> &RegionKey {
        &self.key
    }

    /// These bytes of a growing region can be read from now on, and must not change any more.
    /// Of no effect on any other region.
    pub fn ready(&self, range: Range<u64>) {
        let region = self.key.region;
        // If the thread is gone, so are the readers.
        let _ = self.port.send(Command::Ready { region, range });
    }

    /// Withdraws the permission and waits until none of the bytes is on its way to anybody any more:
    /// afterwards the buffer may be written, and no reader gets a mixture. Readers that do not take
    /// what they asked for within a quarter of the stall timeout lose their link.
    pub fn withdraw(self) {
        let region = self.key.region;
        let (reply, done) = std::sync::mpsc::channel();
        if self.port.send(Command::Withdraw { region, reply }).is_ok() {
            // An error means that the thread is gone, and the readers with it.
            let _ = done.recv();
        }
    }

    /// The exposed buffer.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        // If the thread is gone, the registration went with it.
        let _ = self.port.send(Command::Unexpose {
            region: self.key.region,
        });
    }
}
