//! What can go wrong, as callers need to tell it apart.
use std::path::PathBuf;
use std::time::Duration;

use crate::address::Address;

/// Failure of anything but a fetch.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A UCX call failed.
    #[error("{doing}: {text} (UCX status {status})")]
    Ucx {
        /// What was being done.
        doing: &'static str,
        /// UCX's status code.
        status: i8,
        /// UCX's text for it.
        text: String,
    },
    /// Network devices are named that are not here: nothing could ever be fetched.
    #[error("UCX has no network device `{named}` here; there are: {there}")]
    NoDevice {
        /// Those of the list that are not there.
        named: String,
        /// Those that are.
        there: String,
    },
    /// Transports of this machine cannot find each other.
    #[error("the folder {path} for transports of this machine: {source}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The peer could not be reached, or did not answer as a transport of this version.
    #[error("connecting to {peer}: {reason}")]
    Connect {
        /// Where the peer was expected.
        peer: Address,
        /// Why it failed.
        reason: String,
    },
    /// The peer was connected and then failed or stalled.
    #[error("peer {peer}: {reason}")]
    Peer {
        /// The peer's address.
        peer: Address,
        /// Why it failed.
        reason: String,
    },
    /// A message is longer than [`crate::MAX_MESSAGE_BYTES`].
    #[error("message of {len} bytes, at most {max} are possible")]
    MessageTooLong {
        /// Length of the message.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// The buffer could not be allocated or used.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The transport's thread is gone.
    #[error("the transport is shut down")]
    Shutdown,
}

/// Failure of a fetch. Whatever it is, no byte is written into the buffer after it is returned.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No byte arrived for the configured time: the peer is stopped, cut off or overloaded.
    #[error("fetch from {peer} stalled: no progress for {after:?} after {done} of {total} bytes")]
    Stalled {
        /// The peer's address.
        peer: Address,
        /// How long nothing arrived.
        after: Duration,
        /// Bytes that had arrived.
        done: u64,
        /// Bytes asked for.
        total: u64,
    },
    /// The peer, or the way to it, failed.
    #[error("fetch from {peer} failed after {done} bytes: {reason}")]
    Peer {
        /// The peer's address.
        peer: Address,
        /// Why, in words; they vary for one and the same cause.
        reason: String,
        /// Bytes that had arrived.
        done: u64,
    },
    /// The peer sent what no transport of this version sends; its link is closed.
    #[error("{peer} broke the protocol: {what}")]
    Breach {
        /// The peer's address.
        peer: Address,
        /// What it did.
        what: &'static str,
    },
    /// No connection could be made within the configured time, or the peer is not of this job.
    #[error("connecting to {peer}: {reason}")]
    Connect {
        /// The peer's address.
        peer: Address,
        /// Why it failed.
        reason: String,
    },
    /// A part reaches beyond the remote region or beyond the local buffer.
    #[error(
        "part {part} does not fit: source {src}+{len} of {region}, target {dst}+{len} of {buffer}"
    )]
    Bounds {
        /// Index of the part.
        part: usize,
        /// Its offset in the region.
        src: u64,
        /// Its offset in the buffer.
        dst: u64,
        /// Its length.
        len: u64,
        /// Length of the remote region.
        region: u64,
        /// Length of the local buffer.
        buffer: u64,
    },
    /// The key was issued by another transport than the one that listens at the address now.
    #[error("{peer} is not the transport that issued this region key")]
    StaleKey {
        /// The address asked.
        peer: Address,
    },
    /// The peer does not expose the region any more, or not that much of it.
    #[error("{peer} refused the read: {reason}")]
    Refused {
        /// The peer's address.
        peer: Address,
        /// Its reason.
        reason: &'static str,
    },
    /// Another fetch under way, or another part of this one, fills the same bytes.
    #[error("part {part} overlaps another part that is being fetched")]
    Overlap {
        /// Index of the part.
        part: usize,
    },
    /// [`crate::Cancel::cancel`] was called.
    #[error("the fetch was cancelled")]
    Cancelled,
    /// The target buffer is borrowed by its owner right now.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// [`crate::Transport::disconnect`] was called for the peer.
    #[error("disconnected from {peer} on request")]
    Disconnected {
        /// The peer's address.
        peer: Address,
    },
    /// The transport stopped.
    #[error("the transport is shut down")]
    Shutdown,
}

/// Failure to allocate or use a [`crate::Buffer`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BufferError {
    /// Length zero, or more than the address space takes.
    #[error("a buffer of {len} bytes is not possible")]
    BadLength {
        /// Length asked for.
        len: u64,
    },
    /// The system gave no memory.
    #[error("allocating {len} bytes: {reason}")]
    NoMemory {
        /// Length asked for.
        len: u64,
        /// The system's reason.
        reason: String,
    },
    /// Access beyond the end.
    #[error("access to {offset}+{len} in a buffer of {buffer} bytes")]
    Bounds {
        /// Where the access begins.
        offset: u64,
        /// How long it is.
        len: u64,
        /// Length of the buffer.
        buffer: u64,
    },
    /// The bytes are in a device's memory, where no reference reaches.
    #[error("the buffer is in a device's memory")]
    OnDevice,
    /// The device, or the way to it, failed.
    #[error(transparent)]
    Device(#[from] robust_device::DeviceError),
    /// Another thread, or a fetch, uses the buffer in a way that excludes this one.
    #[error("the buffer is in use: {by}")]
    Busy {
        /// What uses it.
        by: &'static str,
    },
}

/// A region key's bytes are not what [`crate::RegionKey::to_bytes`] made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a region key: {0}")]
pub struct KeyError(pub(crate) &'static str);
