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
mod frame;
mod line;
mod memory;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use robust_device::{BLOCK_BYTES, Block};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use self::folder::Folder;
use self::frame::{Frame, Piece};
use self::line::{Lent, Line};
use crate::address::Address;
use crate::buffer::Buffer;
use crate::error::TransportError;
use crate::road::{Armed, CallId, Event, Failure, LinkId, OpId, Parcel, Road, RoadKind, Targets};

/// The listener's number among descriptors that are waited for; no link has it.
const LISTENER: u64 = 0;
/// Frames of one link that are handled before another one's turn.
const FRAMES: usize = 32;
/// Copies of blocks that readers may have at once; further ones wait.
const COPIES: usize = 8;
/// Calls taken before links have their turn.
const CALLS: usize = 16;
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Links to transports of the same machine.
pub(crate) struct LocalRoad {
    folder: Folder,
    number: u64,
    listener: Option<OwnedFd>,
    epoll: OwnedFd,
    links: HashMap<LinkId, Line>,
    /// Links of which more frames are here than their turn allowed.
    behind: VecDeque<LinkId>,
    calls: HashMap<CallId, OwnedFd>,
    next_call: CallId,
    targets: Targets,
    events: Vec<Event>,
    /// For bytes that must be read before they are copied.
    scratch: Vec<u8>,
    copies: Copies,
}

/// Memory that blocks are copied into.
#[derive(Default)]
struct Copies {
    free: Vec<Arc<Buffer>>,
    made: usize,
    waiting: VecDeque<Waiting>,
}

/// A block that waits for memory, the read that it answers, and how much of it is meant.
struct Waiting {
    link: LinkId,
    op: OpId,
    token: u64,
    block: Block,
    len: usize,
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
        let waiting = |errno: Errno| TransportError::Io {
            doing: "waiting for descriptors",
            source: errno.into(),
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(waiting)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, epoll::EventFlags::IN).map_err(waiting)?;
        Ok(LocalRoad {
            folder,
            number,
            listener: Some(listener),
            epoll,
            links: HashMap::new(),
            behind: VecDeque::new(),
            calls: HashMap::new(),
            next_call: 1,
            targets,
            events: Vec::new(),
            scratch: Vec::new(),
            copies: Copies::default(),
        })
    }

    fn add(&mut self, link: LinkId, socket: OwnedFd) -> Result<(), Failure> {
        let data = epoll::EventData::new_u64(link);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)?;
        self.links.insert(link, Line::new(socket));
        Ok(())
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
            let Some(line) = self.links.get_mut(&link).filter(|line| !line.failed) else {
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
        self.behind.push_back(link);
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
                let line = self.links.get_mut(&link);
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
        let Some(line) = self.links.get_mut(&link) else {
            return Ok(());
        };
        let landed = match self.targets.expected(piece.token) {
            Some(len) if len as u64 == piece.len => {
                let memory = line.memory(&piece).ok_or(Failure::Garbage)?;
                let (range, targets) = ((piece.offset, piece.len), &self.targets);
                let shown = memory.show(range, &mut self.scratch, |bytes| {
                    targets.land(piece.token, bytes)
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
        line.push(&Frame::Taken(piece.op), None);
        self.write(link);
        Ok(())
    }

    /// Writes what waits on a link, and has the loop told of room if some is left.
    fn write(&mut self, link: LinkId) {
        let Some(line) = self.links.get_mut(&link).filter(|line| !line.failed) else {
            return;
        };
        let flushed = line.flush();
        let stuck = line.is_stuck();
        if stuck != line.wants_room && flushed.is_ok() {
            line.wants_room = stuck;
            let flags = match stuck {
                true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
                false => epoll::EventFlags::IN,
            };
            let data = epoll::EventData::new_u64(link);
            if let Err(errno) = epoll::modify(&self.epoll, &*line, data, flags) {
                return self.fail(link, errno.into());
            }
        }
        match flushed {
            Ok(ended) => ended.into_iter().for_each(|op| self.end(op, Ok(()))),
            Err(failure) => self.fail(link, failure),
        }
    }

    /// Nothing goes over this link any more; the engine closes it.
    fn fail(&mut self, link: LinkId, failure: Failure) {
        if let Some(line) = self.links.get_mut(&link).filter(|line| !line.failed) {
            line.failed = true;
            // What is not read again is not to be reported again.
            let _ = epoll::delete(&self.epoll, &*line);
            self.events.push(Event::LinkFailed { link, failure });
        }
    }

    fn end(&mut self, op: OpId, result: Result<(), Failure>) {
        self.events.push(Event::OpDone { op, result });
    }

    fn lend(
        &mut self,
        link: LinkId,
        op: OpId,
        token: u64,
        (buffer, range): (Lent, (usize, usize)),
    ) {
        let Some(line) = self.links.get_mut(&link) else {
            return self.end(op, Err(Failure::Closed));
        };
        let memory = match &buffer {
            Lent::Buffer(buffer) | Lent::Copy(buffer) => Arc::clone(buffer),
        };
        let piece = Piece {
            op,
            token,
            memory: memory.id(),
            offset: memory.shown().map_or(0, |(_, at)| at) + range.0 as u64,
            len: range.1 as u64,
        };
        line.push_piece(piece, &memory);
        line.lent.insert(op, buffer);
        self.write(link);
    }

    fn give_back(&mut self, lent: Lent) {
        if let Lent::Copy(buffer) = lent {
            self.copies.free.push(buffer);
            self.feed_waiting();
        }
    }

    /// Copies waiting blocks as far as there is memory for it.
    fn feed_waiting(&mut self) {
        while let Some(copy) = self.copies.next_free()
            && let Some(waiting) = self.copies.waiting.pop_front()
        {
            let Waiting {
                link,
                op,
                token,
                block,
                len,
            } = waiting;
            let bytes = block.bytes().get(..len).unwrap_or_default();
            if copy.write_at(0, bytes).is_err() {
                self.copies.free.push(copy);
                self.end(op, Err(Failure::Closed));
                continue;
            }
            drop(block);
            self.lend(link, op, token, (Lent::Copy(copy), (0, len)));
        }
    }
}

impl Copies {
    /// Memory for one more block, if one waits.
    fn next_free(&mut self) -> Option<Arc<Buffer>> {
        if self.waiting.is_empty() {
            return None;
        }
        if self.free.is_empty() && self.made < COPIES {
            let made = Buffer::new(BLOCK_BYTES);
            self.made += usize::from(made.is_ok());
            return made.ok();
        }
        self.free.pop()
    }

    /// Drops the blocks that wait for a link; answers with their operations.
    fn take_waiting(&mut self, link: LinkId) -> Vec<OpId> {
        let of_link = |waiting: &&Waiting| waiting.link == link;
        let ops = self
            .waiting
            .iter()
            .filter(of_link)
            .map(|waiting| waiting.op);
        let ops = ops.collect();
        self.waiting.retain(|waiting| waiting.link != link);
        ops
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
        self.add(link, socket)
    }

    fn accept(&mut self, call: CallId, link: LinkId) -> Result<(), Failure> {
        let socket = self.calls.remove(&call).ok_or(Failure::Gone)?;
        self.add(link, socket)
    }

    fn reject(&mut self, call: CallId) {
        self.calls.remove(&call);
    }

    fn send(&mut self, link: LinkId, op: OpId, parcel: Parcel) {
        let open = self.links.get_mut(&link).filter(|line| !line.failed);
        let Some(line) = open else {
            return self.end(op, Err(Failure::Closed));
        };
        match parcel {
            Parcel::Message(kind, bytes) => {
                line.push(&Frame::Message(kind, bytes), Some(op));
                self.write(link);
            }
            Parcel::Piece(token, buffer, range) => {
                let range = (range.start, range.len());
                self.lend(link, op, token, (Lent::Buffer(buffer), range));
            }
            Parcel::Block(token, block, len) => {
                self.copies.waiting.push_back(Waiting {
                    link,
                    op,
                    token,
                    block,
                    len,
                });
                self.feed_waiting();
            }
        }
    }

    fn close(&mut self, link: LinkId, op: OpId) {
        if let Some(mut line) = self.links.remove(&link) {
            let lent = std::mem::take(&mut line.lent);
            let unsent: Vec<OpId> = line.unsent().collect();
            drop(line);
            let blocks = self.copies.take_waiting(link);
            let ops = unsent.into_iter().chain(lent.keys().copied()).chain(blocks);
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
        let mut ready = Vec::with_capacity(64);
        let space = rustix::buffer::spare_capacity(&mut ready);
        if epoll::wait(&self.epoll, space, Some(&AT_ONCE)).is_err() {
            return false;
        }
        let behind = std::mem::take(&mut self.behind);
        for event in &ready {
            match event.data.u64() {
                LISTENER => self.take_calls(),
                link => {
                    let flags = event.flags;
                    if flags.contains(epoll::EventFlags::OUT) {
                        self.write(link);
                    }
                    if !behind.contains(&link) {
                        self.turn(link);
                    }
                }
            }
        }
        let worked = !ready.is_empty() || !behind.is_empty();
        behind.into_iter().for_each(|link| self.turn(link));
        worked
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn arm(&mut self) -> Result<Armed, Failure> {
        // What is readable stays so until it was read.
        Ok(match self.events.is_empty() && self.behind.is_empty() {
            true => Armed::Yes,
            false => Armed::Busy,
        })
    }

    fn wakes(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn stop_listening(&mut self) {
        self.calls.clear();
        if self.listener.take().is_some() {
            self.folder.remove(self.number);
        }
    }

    fn pending(&self) -> usize {
        let of_links = self
            .links
            .values()
            .map(|line| line.lent.len() + line.unsent().count());
        of_links.sum::<usize>() + self.copies.waiting.len()
    }
}

impl Drop for LocalRoad {
    fn drop(&mut self) {
        self.stop_listening();
    }
}
