//! How the copies' thread of a device tells the progress thread that a copy ended.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use robust_device::{Block, Copied};

use super::piece::Piece;
use crate::command::CommandPort;

/// A copy that ended.
pub(super) enum CopyEnd {
    /// Bytes of a read, on their way out.
    Down {
        id: u64,
        block: Block,
        copied: Copied,
    },
    /// A piece of a fetch. Its block is free already.
    Up {
        fetch: u64,
        piece: Piece,
        copied: Copied,
    },
}

/// Copies of this transport that devices have.
pub(super) struct Copies {
    sender: Sender<CopyEnd>,
    ends: Receiver<CopyEnd>,
    port: Arc<CommandPort>,
    under_way: usize,
}

/// Where one copy's end is told.
pub(super) struct Teller {
    sender: Sender<CopyEnd>,
    port: Arc<CommandPort>,
}

impl Teller {
    pub fn tell(self, end: CopyEnd) {
        // The progress thread waits for its copies; if it gave up, nobody asks.
        let _ = self.sender.send(end);
        self.port.wake();
    }
}

impl Copies {
    pub fn new(port: Arc<CommandPort>) -> Copies {
        let (sender, ends) = channel();
        Copies {
            sender,
            ends,
            port,
            under_way: 0,
        }
    }

    /// One more is under way; it ends with an [`CopyEnd`].
    pub fn begin(&mut self) -> Teller {
        self.under_way += 1;
        Teller {
            sender: self.sender.clone(),
            port: Arc::clone(&self.port),
        }
    }

    /// The next that ended; [`Copies::ended`] counts it.
    pub fn next_end(&self) -> Option<CopyEnd> {
        self.ends.try_recv().ok()
    }

    pub fn ended(&mut self) {
        self.under_way -= 1;
    }

    /// Copies that devices have.
    pub fn under_way(&self) -> usize {
        self.under_way
    }
}
