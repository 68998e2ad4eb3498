//! The road between processes of one machine: no port, no copy through a socket.
//!
//! ```text
//!  puller                                              source
//!    │ connect FOLDER/NUMBER.sock ──────────────────────►│ a user of this machine, this one only
//!    │ messages of the protocol, both ways               │
//!    │◄──────────── Piece: op, token, memory, offset, len│ the first time with the memory's descriptor
//!    │ copied and digested from where it lies            │
//!    │ Taken: op ───────────────────────────────────────►│ OpDone: the lease is over
//!    ✗ ends ────────────────────────────────────────────►│ LinkFailed, and with the link its leases
//! ```
//! A piece is lent until its reader says that it was taken, or is gone: a region that is withdrawn
//! waits for that, bounded (see `engine::withdraw`). Bytes in blocks of a device's staging are copied
//! into memory that can be shown.

mod folder;
pub(crate) mod frame;
mod line;
mod memory;

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use robust_device::{BLOCK_BYTES, Block};
use rustix::io::Errno;

use self::folder::Folder;
use self::frame::{Frame, Piece};
use self::line::{Lent, Line};
use crate::address::Address;
use crate::buffer::Buffer;
use crate::error::TransportError;
use crate::road::{
    Armed, CallId, Event, Failure, LinkId, OpId, Parcel, Road, RoadKind, Sockets, Targets,
};

/// Frames of one link that are handled before another one's turn.
const FRAMES: usize = 32;
/// Calls taken before links have their turn.
const CALLS: usize = 16;

/// Links to transports of the same machine.
pub(crate) struct LocalRoad {
    folder: Folder,
    number: u64,
    listener: Option<OwnedFd>,
    links: Sockets<Line>,
    calls: HashMap<CallId, OwnedFd>,
    next_call: CallId,
    targets: Targets,
    events: Vec<Event>,
    /// For bytes that must be read before they are copied.
    scratch: Vec<u8>,
    /// Memory that blocks are copied into, and that nobody has.
    copies: Vec<Arc<Buffer>>,
}

impl LocalRoad {
    /// Takes calls under this number in this folder.
    pub fn open(path: &Path, number: u64, targets: Targets) -> Result<LocalRoad, TransportError> {
        let failed = |source| TransportError::Folder {
            path: PathBuf::from(path),
            source,
        };
        let folder = Folder::open(path).map_err(failed)?;
        let listener = folder.listen(number).map_err(failed)?;
        let links = Sockets::new(&listener)?;
        Ok(LocalRoad {
            folder,
            number,
            listener: Some(listener),
            links,
            calls: HashMap::new(),
            next_call: 1,
            targets,
            events: Vec::new(),
            scratch: Vec::new(),
            copies: Vec::new(),
        })
    }

    fn take_calls(&mut self) {
        for _ in 0..CALLS {
            let Some(listener) = &self.listener else {
                return;
            };
            match Folder::take(listener) {
                Ok(socket) => {
                    let call = self.next_call;
                    self.next_call += 1;
                    self.calls.insert(call, socket);
                    self.events.push(Event::Called(call));
                }
                // One that was gone before it was taken is none.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(Errno::PERM) => tracing::warn!("a process of another user called: refused"),
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    tracing::warn!(%errno, "a call could not be taken");
                    return;
                }
            }
        }
    }

    /// Reads what came on a link, up to its turn's end or a piece: other links, deadlines and commands
    /// are not to wait for more than that.
    fn read(&mut self, link: LinkId) -> Result<(), Failure> {
        for _ in 0..FRAMES {
            let Some(line) = self.links.get_mut(link) else {
                return Ok(());
            };
            match line.next_frame()? {
                Some(Frame::Piece(piece, _)) => {
                    self.take_piece(link, piece)?;
                    break;
                }
                Some(frame) => self.take_frame(link, frame),
                None if line.gulp()? => {}
                None => return Ok(()),
            }
        }
        self.links.turn_again(link);
        Ok(())
    }

    /// A link's turn.
    fn turn(&mut self, link: LinkId) {
        if let Err(failure) = self.read(link) {
            self.fail(link, failure);
        }
    }

    fn take_frame(&mut self, link: LinkId, frame: Frame) {
        match frame {
            Frame::Message(kind, bytes) => {
                self.events.push(Event::Message { link, kind, bytes });
            }
            Frame::Taken(op) => {
                let line = self.links.get_mut(link);
                let Some(lent) = line.and_then(|line| line.lent.remove(&op)) else {
                    return;
                };
                self.end(op, Ok(()));
                self.give_back(lent);
            }
            Frame::Away(_) | Frame::Piece(..) => {}
        }
    }

    /// Copies a piece from where it lies, if it is wanted (still).
    fn take_piece(&mut self, link: LinkId, piece: Piece) -> Result<(), Failure> {
        let Some(line) = self.links.get_mut(link) else {
            return Ok(());
        };
        let landed = match self.targets.expected(piece.token) {
            Some(len) if len as u64 == piece.len => {
                let memory = line.memory(&piece).ok_or(Failure::Garbage)?;
                let (range, targets) = ((piece.offset, piece.len), &self.targets);
                let shown = memory.show(range, &mut self.scratch, |bytes| {
                    targets.land(piece.token, len, 0, bytes)
                });
                shown.unwrap_or_else(|error| {
                    tracing::warn!(%error, "a peer's memory could not be read");
                    targets.spoil(piece.token)
                })
            }
            Some(_) => self.targets.spoil(piece.token),
            None => None,
        };
        self.events.extend(landed);
        // It goes with the next read, as a rule, which the engine sends now.
        line.push(&Frame::Taken(piece.op), None);
        self.links.write_soon(link);
        Ok(())
    }

    /// Writes what waits on a link, as far as there is room.
    fn write(&mut self, link: LinkId) {
        if let Err(failure) = self.links.write(link, &mut self.events) {
            self.fail(link, failure);
        }
    }

    /// Nothing goes over this link any more; the engine closes it.
    fn fail(&mut self, link: LinkId, failure: Failure) {
        if self.links.fail(link) {
            self.events.push(Event::LinkFailed { link, failure });
        }
    }

    fn end(&mut self, op: OpId, result: Result<(), Failure>) {
        self.events.push(Event::OpDone { op, result });
    }

    /// Tells a reader where its piece lies, and keeps that until it was taken.
    fn lend(&mut self, link: LinkId, op: OpId, token: u64, (lent, range): (Lent, Range<usize>)) {
        let Some(line) = self.links.get_mut(link) else {
            return self.end(op, Err(Failure::Closed));
        };
        let memory = Arc::clone(lent.memory());
        let piece = Piece {
            op,
            token,
            memory: memory.id(),
            offset: memory.shown().map_or(0, |(_, at)| at) + range.start as u64,
            len: range.len() as u64,
        };
        line.push_piece(piece, &memory);
        line.lent.insert(op, lent);
        self.write(link);
    }

    /// The same for bytes in a block, copied to where they can be shown. The block is kept meanwhile: so
    /// there are no more copies than blocks, and who holds too many is found by those.
    fn lend_copy(&mut self, link: LinkId, op: OpId, token: u64, block: Block, len: usize) {
        let bytes = block.bytes().get(..len).unwrap_or_default();
        let free = self.copies.pop();
        let copy = free.map_or_else(|| Buffer::new(BLOCK_BYTES), Ok);
        match copy.and_then(|copy| copy.write_at(0, bytes).map(|()| copy)) {
            Ok(copy) => self.lend(link, op, token, (Lent::Copy(copy, block), 0..len)),
            Err(error) => {
                tracing::warn!(%error, "no memory to show a block in");
                self.end(op, Err(Failure::System(Errno::NOMEM)));
            }
        }
    }

    fn give_back(&mut self, lent: Lent) {
        if let Lent::Copy(copy, _) = lent {
            self.copies.push(copy);
        }
    }
}

impl Road for LocalRoad {
    fn kind(&self) -> RoadKind {
        RoadKind::Shm
    }

    fn reaches(&self, peer: &Address) -> bool {
        peer.number().is_some_and(|number| self.folder.has(number))
    }

    fn connect(&mut self, peer: &Address, link: LinkId) -> Result<(), Failure> {
        let number = peer.number().ok_or(Failure::NoRoad)?;
        let socket = self.folder.call(number)?;
        self.links.add(link, Line::new(socket))
    }

    fn accept(&mut self, call: CallId, link: LinkId) -> Result<(), Failure> {
        let socket = self.calls.remove(&call).ok_or(Failure::Gone)?;
        self.links.add(link, Line::new(socket))
    }

    fn reject(&mut self, call: CallId) {
        self.calls.remove(&call);
    }

    fn send(&mut self, link: LinkId, op: OpId, parcel: Parcel) {
        let Some(line) = self.links.get_mut(link) else {
            return self.end(op, Err(Failure::Closed));
        };
        match parcel {
            Parcel::Message(kind, bytes) => {
                line.push(&Frame::Message(kind, bytes), Some(op));
                self.write(link);
            }
            Parcel::Piece(token, served) => {
                let range = served.range();
                self.lend(link, op, token, (Lent::Served(served), range));
            }
            Parcel::Block(token, block, len) => self.lend_copy(link, op, token, block, len),
        }
    }

    fn close(&mut self, link: LinkId, op: OpId) {
        if let Some(mut line) = self.links.remove(link) {
            let lent = std::mem::take(&mut line.lent);
            let unsent: Vec<OpId> = line.unsent().collect();
            drop(line);
            let ops = unsent.into_iter().chain(lent.keys().copied());
            for op in ops.collect::<Vec<OpId>>() {
                self.end(op, Err(Failure::Closed));
            }
            lent.into_values().for_each(|lent| self.give_back(lent));
        }
        self.end(op, Ok(()));
    }

    /// Closing ends them all.
    fn cancel(&mut self, _op: OpId) {}

    fn progress(&mut self) -> bool {
        for link in self.links.take_unwritten() {
            self.write(link);
        }
        let found = self.links.look();
        if found.calls {
            self.take_calls();
        }
        let worked = found.is_some();
        found.room.into_iter().for_each(|link| self.write(link));
        found.turns.into_iter().for_each(|link| self.turn(link));
        worked
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn arm(&mut self) -> Result<Armed, Failure> {
        Ok(match self.events.is_empty() {
            true => self.links.arm(),
            false => Armed::Busy,
        })
    }

    fn wakes(&self) -> BorrowedFd<'_> {
        self.links.wakes()
    }

    fn stop_listening(&mut self) {
        self.calls.clear();
        if self.listener.take().is_some() {
            self.folder.remove(self.number);
        }
    }

    fn pending(&self) -> usize {
        let under_way = |line: &Line| line.lent.len() + line.unsent().count();
        self.links.iter().map(under_way).sum()
    }
}

impl Drop for LocalRoad {
    fn drop(&mut self) {
        self.stop_listening();
    }
}
