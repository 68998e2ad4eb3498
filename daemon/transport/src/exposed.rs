//! What a transport lets others read.
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::command::{Command, CommandPort};
use crate::key::RegionKey;

/// A buffer that peers may read; dropping it withdraws the permission.
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
