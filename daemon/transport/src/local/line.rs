//! One connection to a process of this machine: frames out, frames in, and the descriptors with them.

use std::collections::{HashMap, VecDeque};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use robust_device::Block;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::frame::{Frame, Garbage, Piece};
use super::memory::Memory;
use crate::buffer::{Buffer, Served};
use crate::road::{Failure, OpId, Socket};

/// Memories that a source keeps shown to one reader; one more takes the place of the oldest. Both ends
/// count the same way.
const SHOWN: usize = 4;
/// Most bytes taken from a socket at once.
const GULP: usize = 16 << 10;
/// Descriptors that may come with them.
const DESCRIPTORS: usize = 8;

/// One connection.
pub(super) struct Line {
    socket: OwnedFd,
    out: VecDeque<Outgoing>,
    /// What the peer was shown, the oldest first.
    shown: VecDeque<(u64, Weak<Buffer>)>,
    /// What it showed, the oldest first.
    seen: VecDeque<(u64, Memory)>,
    inbox: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    /// Pieces that the peer may still read, and what they lie in.
    pub lent: HashMap<OpId, Lent>,
}

/// What holds a piece until its reader took it.
pub(super) enum Lent {
    /// Where it lies.
    Served(Served),
    /// A copy of it, to be used again, and the block that it is a copy of.
    Copy(
        Arc<Buffer>,
        #[expect(dead_code, reason = "held for its lifetime only")] Block,
    ),
}

impl Lent {
    /// What readers are shown.
    pub fn memory(&self) -> &Arc<Buffer> {
        match self {
            Lent::Served(served) => served.buffer(),
            Lent::Copy(buffer, _) => buffer,
        }
    }
}

/// Frames that are written at once, as far as there is room: every write may wake the peer.
struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
    /// Its descriptor goes with the first byte.
    shows: Option<Arc<Buffer>>,
    /// End when all of it is written.
    ops: Vec<OpId>,
}

impl Line {
    pub fn new(socket: OwnedFd) -> Line {
        Line {
            socket,
            out: VecDeque::new(),
            shown: VecDeque::new(),
            seen: VecDeque::new(),
            inbox: Vec::new(),
            descriptors: VecDeque::new(),
            lent: HashMap::new(),
        }
    }

    /// Queues a frame; `op` ends when it is written.
    pub fn push(&mut self, frame: &Frame, op: Option<OpId>) {
        self.enqueue(frame.to_bytes(), None, op);
    }

    /// Queues word of where a piece lies, with its memory if the peer does not have that yet.
    pub fn push_piece(&mut self, piece: Piece, buffer: &Arc<Buffer>) {
        let known = self.shown.iter().any(|(memory, _)| *memory == piece.memory);
        if known {
            return self.push(&Frame::Piece(piece, None), None);
        }
        let is_gone = |(_, of): &(u64, Weak<Buffer>)| of.strong_count() == 0;
        let gone: Vec<u64> = self
            .shown
            .iter()
            .filter(|s| is_gone(s))
            .map(|(of, _)| *of)
            .collect();
        self.shown.retain(|shown| !is_gone(shown));
        for memory in gone {
            self.push(&Frame::Away(memory), None);
        }
        if self.shown.len() == SHOWN {
            self.shown.pop_front();
        }
        self.shown.push_back((piece.memory, Arc::downgrade(buffer)));
        let at = buffer.shown().map_or(0, |(_, at)| at);
        let size = at + buffer.len() as u64;
        let bytes = Frame::Piece(piece, Some(size)).to_bytes();
        self.enqueue(bytes, Some(Arc::clone(buffer)), None);
    }

    fn enqueue(&mut self, bytes: Vec<u8>, shows: Option<Arc<Buffer>>, op: Option<OpId>) {
        let has_room = |last: &&mut Outgoing| last.bytes.len() + bytes.len() <= GULP;
        match self.out.back_mut().filter(has_room) {
            Some(last) if shows.is_none() => {
                last.bytes.extend(bytes);
                last.ops.extend(op);
            }
            _ => self.out.push_back(Outgoing {
                bytes,
                written: 0,
                shows,
                ops: op.into_iter().collect(),
            }),
        }
    }

    /// Operations that will not end any more: nothing goes out.
    pub fn unsent(&self) -> impl Iterator<Item = OpId> + '_ {
        self.out
            .iter()
            .flat_map(|outgoing| outgoing.ops.iter().copied())
    }

    /// Takes more from the socket; false if there was nothing.
    pub fn gulp(&mut self) -> Result<bool, Failure> {
        let held = self.inbox.len();
        self.inbox.resize(held + GULP, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut self.inbox[held..])];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let taken = recvmsg(&self.socket, into, &mut control, flags);
        let bytes = taken.as_ref().map_or(0, |taken| taken.bytes);
        self.inbox.truncate(held + bytes);
        match taken {
            Ok(taken) if taken.bytes == 0 => Err(Failure::Gone),
            Ok(_) => {
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                        self.descriptors.extend(descriptors);
                    }
                }
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::CONNRESET) => Err(Failure::Gone),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The next frame that is here as a whole.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Failure> {
        let Some((frame, len)) = Frame::read(&self.inbox).map_err(garbage)? else {
            return Ok(None);
        };
        self.inbox.drain(..len);
        match frame {
            Frame::Piece(piece, Some(size)) => {
                let descriptor = self.descriptors.pop_front().ok_or(Failure::Garbage)?;
                let memory = Memory::of(descriptor, size).map_err(|error| {
                    tracing::warn!(%error, "a peer showed what is no memory");
                    Failure::Garbage
                })?;
                if self.seen.len() == SHOWN {
                    self.seen.pop_front();
                }
                self.seen.push_back((piece.memory, memory));
            }
            Frame::Away(memory) => self.seen.retain(|(seen, _)| *seen != memory),
            _ => {}
        }
        Ok(Some(frame))
    }

    /// The memory that a piece lies in.
    pub fn memory(&self, of: &Piece) -> Option<&Memory> {
        let seen = self.seen.iter().find(|(memory, _)| *memory == of.memory);
        seen.map(|(_, memory)| memory)
    }
}

impl Outgoing {
    fn write(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        let rest = self.bytes.get(self.written..).unwrap_or_default();
        let shows = self.shows.as_ref().filter(|_| self.written == 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptor: Option<[BorrowedFd<'_>; 1]> = shows.and_then(|b| Some([b.shown()?.0]));
        if let Some(descriptor) = &descriptor {
            control.push(SendAncillaryMessage::ScmRights(descriptor));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        self.written += sendmsg(socket, &[IoSlice::new(rest)], &mut control, flags)?;
        Ok(())
    }
}

impl Socket for Line {
    fn flush(&mut self, ended: &mut Vec<OpId>) -> Result<(), Failure> {
        while let Some(first) = self.out.front_mut() {
            match first.write(&self.socket) {
                Ok(()) if first.written < first.bytes.len() => {}
                Ok(()) => {
                    ended.append(&mut first.ops);
                    self.out.pop_front();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Failure::Gone),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn is_stuck(&self) -> bool {
        !self.out.is_empty()
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn garbage(Garbage: Garbage) -> Failure {
    Failure::Garbage
}
