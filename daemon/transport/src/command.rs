//! What other threads ask of the progress thread, and how they wake it.
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::address::Address;
use crate::buffer::{Buffer, FetchGuard};
use crate::error::{FetchError, TransportError};
use crate::key::{Part, RegionKey};
use crate::road::RoadKind;

/// One request; answers go back over the sender it carries.
pub(crate) enum Command {
    Expose {
        buffer: Arc<Buffer>,
        /// Nothing of it can be read until it is reported ready.
        growing: bool,
        reply: Sender<Result<RegionKey, TransportError>>,
    },
    Ready {
        region: u64,
        range: Range<u64>,
    },
    Unexpose {
        region: u64,
    },
    /// The same; answered when none of its bytes is on its way any more.
    Withdraw {
        region: u64,
        reply: Sender<()>,
    },
    Fetch(FetchCommand),
    Cancel {
        ticket: u64,
    },
    Notify {
        peer: Address,
        message: Vec<u8>,
        reply: Sender<Result<(), TransportError>>,
    },
    Disconnect {
        peer: Address,
    },
    Impair {
        peer: Address,
        trouble: Trouble,
        lasts: Duration,
    },
    Stop,
}

/// What a drill does to the network between this transport and a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing comes through, and nobody is told: as with a cable that is pulled.
    Stall,
    /// Connections are closed by force, and new ones refused.
    Cut,
}

pub(crate) struct FetchCommand {
    /// Names the fetch in [`Command::Cancel`].
    pub ticket: u64,
    pub peer: Address,
    pub key: RegionKey,
    /// Already checked against region and buffer.
    pub parts: Vec<Part>,
    pub into: Arc<FetchGuard>,
    /// Counts arriving bytes.
    pub bytes: Arc<AtomicU64>,
    pub events: Sender<FetchEvent>,
}

pub(crate) enum FetchEvent {
    /// Nothing is written into this part any more.
    Arrived {
        part: usize,
        /// Its digest, if it came for free.
        digest: Option<u64>,
        /// The road that it took; none for one without bytes.
        road: Option<RoadKind>,
    },
    Ended(Result<u64, FetchError>),
}

/// Sending end: a channel, and an eventfd that ends the progress thread's sleep.
pub(crate) struct CommandPort {
    sender: Sender<Command>,
    wake: OwnedFd,
}

/// Receiving end, owned by the progress thread.
pub(crate) struct CommandQueue {
    pub receiver: Receiver<Command>,
    wake: OwnedFd,
}

pub(crate) fn command_channel() -> std::io::Result<(CommandPort, CommandQueue)> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let port = CommandPort {
        sender,
        wake: wake.try_clone()?,
    };
    Ok((port, CommandQueue { receiver, wake }))
}

impl CommandPort {
    /// Err if the progress thread is gone.
    pub fn send(&self, command: Command) -> Result<(), TransportError> {
        self.sender
            .send(command)
            .map_err(|_| TransportError::Shutdown)?;
        self.wake();
        Ok(())
    }

    /// Ends the progress thread's sleep.
    pub fn wake(&self) {
        // Fails only when the counter is full, and then the thread is awake anyway.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl CommandQueue {
    /// Forgets past wake-ups. Call before draining the channel, never after (a command between
    /// the two would be slept over).
    pub fn acknowledge_wake(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
    }

    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
