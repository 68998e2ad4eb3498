//! What a road is: a way on which messages and pieces of regions go between two transports.
//!
//! ```text
//!                       ┌─ local: a Unix socket carries messages, pieces stay where they are
//!  engine ─► Roads ─────┤                                            (memory handed over by descriptor)
//!    ▲     by link      ├─ tls: a TCP connection carries both, sealed
//!    │                  └─ ucx: active messages carry both
//!    └──── Event ◄────────
//! ```
//! The protocol above is the same on all of them (see the crate). A road keeps order on a link, and
//! delivers a message whole, once or not at all. Every operation gets an [`OpId`] and is answered by
//! exactly one [`Event::OpDone`]; until then the road keeps alive what it may touch (T-1).

mod roads;
mod sockets;
mod targets;

use std::os::fd::BorrowedFd;
use std::time::Instant;

use robust_device::Block;

pub(crate) use self::roads::{Call, Happened, Roads};
pub(crate) use self::sockets::{Socket, Sockets};
pub(crate) use self::targets::{Landing, Target, Targets};
use crate::address::Address;
use crate::buffer::Served;
use crate::digest;
use crate::status::Status;

/// Names one operation; never reused within a transport.
pub(crate) type OpId = u64;
/// Names one link; never reused within a transport.
pub(crate) type LinkId = u64;
/// Names one call that is neither taken nor refused; never reused within its road.
pub(crate) type CallId = u64;

/// The longest message but [`MessageKind::Data`]; longer ones are not from us.
pub(crate) const MESSAGE_LIMIT: usize = 16 * 1024;

/// The longest piece. With UCX's and our headers it fits
/// - one of UCX's TCP segments (1 MiB, see `config`): it is then received in one go, and copied and
///   digested while the processor's cache still has it;
/// - 16 packets of 65,483 bytes, which the kernel makes of it on loopback (MTU 65,536 less headers),
///   and leaves almost nothing over. A mebibyte needs a 17th for its last 800 bytes and half of one a
///   9th for 450, and what a packet costs besides its bytes is nearly as much as copying them.
///
/// Whole blocks of the digest.
pub const PIECE_BYTES: u64 = 1023 << 10;
const _: () = assert!(PIECE_BYTES.is_multiple_of(digest::BLOCK as u64));
// One block of a device's staging takes one.
const _: () = assert!(PIECE_BYTES <= robust_device::BLOCK_BYTES as u64);

/// One way to other transports. Used by the progress thread only.
pub(crate) trait Road {
    /// Its name, as users read it.
    fn kind(&self) -> RoadKind;

    /// Whether the peer can be called on it.
    fn reaches(&self, peer: &Address) -> bool;

    /// Whether it may be that nothing goes over it though the peer can be called on it: two machines may both
    /// have RDMA and no fabric between them.
    fn may_be_a_dead_end(&self) -> bool {
        false
    }

    /// Begins to connect; whether it worked is shown by the first answer or by an event.
    fn connect(&mut self, peer: &Address, link: LinkId) -> Result<(), Failure>;

    /// Takes a call.
    fn accept(&mut self, call: CallId, link: LinkId) -> Result<(), Failure>;

    /// Refuses a call.
    fn reject(&mut self, call: CallId);

    /// Starts to send on an open link.
    fn send(&mut self, link: LinkId, op: OpId, parcel: Parcel);

    /// Closes by force: operations under way end with an error, nothing is flushed. `op` ends when
    /// the link is gone.
    fn close(&mut self, link: LinkId, op: OpId);

    /// Gives up an operation that closing its link did not end.
    fn cancel(&mut self, op: OpId);

    /// Works once; true if anything moved.
    fn progress(&mut self) -> bool;

    /// What happened since the last call. Ended operations have given up their memory.
    fn take_events(&mut self) -> Vec<Event>;

    /// Prepares for sleeping on [`Road::wakes`].
    fn arm(&mut self) -> Result<Armed, Failure>;

    /// Readable when the road wants [`Road::progress`].
    fn wakes(&self) -> BorrowedFd<'_>;

    /// When it wants [`Road::progress`] though nothing came; none if never.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Ends listening.
    fn stop_listening(&mut self);

    /// Operations that have not ended.
    fn pending(&self) -> usize;
}

/// Which road.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RoadKind {
    /// Memory that processes of one machine share.
    Shm,
    /// TCP with TLS 1.3, between members that the job's authority certified.
    Tls,
    /// UCX, over whatever it finds.
    Ucx,
}

impl RoadKind {
    /// As users read it.
    pub fn as_str(self) -> &'static str {
        match self {
            RoadKind::Shm => "shm",
            RoadKind::Tls => "tls",
            RoadKind::Ucx => "ucx",
        }
    }
}

/// What is sent.
pub(crate) enum Parcel {
    /// A message of its own bytes, of any kind but [`MessageKind::Data`].
    Message(MessageKind, Vec<u8>),
    /// Some bytes of a buffer of this host's as the answer to a read, lent until the operation ended.
    Piece(u64, Served),
    /// The first bytes of a block, as the answer to a read; the block is free afterwards.
    Block(u64, Block, usize),
}

/// Answer of [`Road::arm`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Armed {
    /// The descriptor will wake the sleeper.
    Yes,
    /// Something happened meanwhile: work again.
    Busy,
}

/// Something that happened on a road, handled by the engine after `progress` returned.
pub(crate) enum Event {
    /// A peer calls.
    Called(CallId),
    /// Somebody who is no member called, and was turned away.
    Refused,
    /// The peer of this link has no certificate any more that is believed.
    Unbelieved(LinkId),
    /// The road gave a link up; it must be closed.
    LinkFailed { link: LinkId, failure: Failure },
    /// An operation ended; its memory is the process's own again.
    OpDone {
        op: OpId,
        result: Result<(), Failure>,
    },
    /// A message came.
    Message {
        link: LinkId,
        kind: MessageKind,
        bytes: Vec<u8>,
    },
    /// An expected piece came and is in its place, unless its length was wrong.
    Arrived {
        token: u64,
        fits: bool,
        /// The block that it is in, if it is to go on to a device.
        block: Option<Block>,
    },
}

/// Why a road does not work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// No road leads to the peer.
    NoRoad,
    /// A drill let nothing pass.
    Cut,
    /// The peer's end is closed.
    Gone,
    /// The link was closed here.
    Closed,
    /// What came is none of our frames.
    Garbage,
    /// The peer has no certificate of this job.
    Stranger,
    /// The peer does not take ours.
    Unbelieved,
    /// The certificate of one of both is over, or not good yet.
    Over,
    /// The link's keys have sealed as much as keys may.
    Worn,
    /// The system's reason.
    System(rustix::io::Errno),
    /// UCX's.
    Ucx(Status),
}

impl Failure {
    /// The reason in words.
    pub fn text(self) -> String {
        match self {
            Failure::NoRoad => {
                "no road leads to it: it is not on this machine, and its address names \
                                no network"
                    .to_owned()
            }
            Failure::Cut => "cut on request".to_owned(),
            Failure::Gone => "it closed the connection".to_owned(),
            Failure::Closed => "the link is closed".to_owned(),
            Failure::Garbage => "it sent what no transport sends".to_owned(),
            Failure::Stranger => "it has no certificate of this job".to_owned(),
            Failure::Unbelieved => "it does not take this process's certificate".to_owned(),
            Failure::Over => {
                "a certificate has expired, or is not good yet: compare the clocks of both machines"
                    .to_owned()
            }
            Failure::Worn => {
                "its keys have sealed as much as keys may: a new link has new ones".to_owned()
            }
            Failure::System(errno) => errno.to_string(),
            Failure::Ucx(status) => format!("{} (UCX status {})", status.text(), status.0),
        }
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(errno: rustix::io::Errno) -> Failure {
        Failure::System(errno)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Ucx(status)
    }
}

/// What a message is, by its number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum MessageKind {
    /// None of ours; never sent.
    Unknown = 0,
    /// First message of whoever connected.
    Hello = 1,
    /// Answer to it.
    Welcome = 2,
    /// A caller's message.
    Note = 3,
    /// Asks for a piece of a region.
    Read = 4,
    /// Refuses it.
    Refusal = 5,
    /// The piece: its token as header, its bytes as payload, or where they lie.
    Data = 6,
    /// Reads are waiting at the source for bytes that are not there yet.
    Wait = 7,
    /// Reads are not wanted any more.
    Forget = 8,
    /// The caller's proof that it is of the same job.
    Prove = 9,
    /// The callee believes it.
    Ready = 10,
}

impl MessageKind {
    pub const ALL: [MessageKind; 11] = [
        Self::Unknown,
        Self::Hello,
        Self::Welcome,
        Self::Note,
        Self::Read,
        Self::Refusal,
        Self::Data,
        Self::Wait,
        Self::Forget,
        Self::Prove,
        Self::Ready,
    ];

    /// The kind with this number on the wire.
    pub fn from_number(number: u32) -> MessageKind {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        Self::ALL.get(at).copied().unwrap_or(Self::Unknown)
    }
}

/// Exactly `N` numbers, little-endian as messages have them, and nothing else.
pub(crate) fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    let numbers: &[[u8; 8]; N] = numbers.try_into().ok()?;
    rest.is_empty().then(|| numbers.map(u64::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_number_on_the_wire() {
        for (at, kind) in MessageKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
            assert_eq!(MessageKind::from_number(at as u32), kind);
        }
        assert_eq!(MessageKind::from_number(99), MessageKind::Unknown);
    }
}
