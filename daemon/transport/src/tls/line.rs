//! One connection: parcels are sealed as there is room for them, and what comes is opened.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use robust_device::Block;

use super::frame::{self, Reader};
use super::outbox::Outbox;
use super::session::{Opened, RECORD, Session, Taken};
use crate::buffer::Buffer;
use crate::road::{Event, Failure, LinkId, OpId, Parcel, Socket, Targets};

/// Bytes that are sealed before the first of them is written, and most that are read at once.
const BATCH: usize = 16 * RECORD;
/// Bytes of a piece that are sealed at once.
const STRETCH: usize = 4 * RECORD;

/// One connection.
pub(super) struct Line {
    socket: TcpStream,
    session: Session,
    /// Whether the handshake is over.
    ready: bool,
    waiting: VecDeque<Outgoing>,
    /// Sealed and not written, and the operations that end with it.
    sealed: Outbox,
    ending: Vec<OpId>,
    /// Messages as they are before they are sealed.
    plain: Vec<u8>,
    /// What came, as far as it is not opened: the first `came` of it.
    wire: Vec<u8>,
    came: usize,
    reader: Reader,
    /// What a caller said with its last word of the handshake.
    early: Vec<u8>,
}

/// A parcel, the first `done` bytes of which are sealed.
struct Outgoing {
    op: OpId,
    head: Vec<u8>,
    body: Body,
    done: usize,
}

enum Body {
    None,
    Buffer(Arc<Buffer>, Range<usize>),
    Block(Block, usize),
}

impl Line {
    /// Either side of a connection that is being made.
    pub fn new(socket: TcpStream, session: Session) -> Line {
        Line {
            socket,
            session,
            ready: false,
            waiting: VecDeque::new(),
            sealed: Outbox::default(),
            ending: Vec::new(),
            plain: Vec::new(),
            wire: Vec::new(),
            came: 0,
            reader: Reader::default(),
            early: Vec::new(),
        }
    }

    /// Begins the handshake (the caller's side).
    pub fn greet(&mut self) -> Result<(), Failure> {
        let mut nothing = |_: &[u8]| Err(Failure::Garbage);
        let taken = self.session.take(&mut [], &mut self.sealed, &mut nothing);
        taken.map(drop)
    }

    /// Queues a parcel.
    pub fn push(&mut self, op: OpId, parcel: Parcel) {
        let (head, body) = match parcel {
            Parcel::Message(kind, bytes) => (frame::message(kind, &bytes), Body::None),
            Parcel::Piece(token, buffer, range) => (
                frame::piece(token, range.len()),
                Body::Buffer(buffer, range),
            ),
            Parcel::Block(token, block, len) => (frame::piece(token, len), Body::Block(block, len)),
        };
        let done = 0;
        self.waiting.push_back(Outgoing {
            op,
            head,
            body,
            done,
        });
    }

    /// Operations that will not end any more: nothing goes out.
    pub fn unsent(&self) -> impl Iterator<Item = OpId> + '_ {
        let waiting = self.waiting.iter().map(|outgoing| outgoing.op);
        self.ending.iter().copied().chain(waiting)
    }

    /// Goes on with the handshake; whether it is over. What came behind it is kept.
    pub fn shake(&mut self) -> Result<bool, Failure> {
        while !self.ready {
            let there = self.gulp()?;
            let mut early = std::mem::take(&mut self.early);
            let taken = self.open(&mut |bytes| {
                early.extend_from_slice(bytes);
                Ok(())
            });
            self.early = early;
            if taken?.closed {
                return Err(Failure::Gone);
            }
            if !there {
                break;
            }
        }
        Ok(self.ready)
    }

    /// Takes what came, to one batch: pieces go to their targets, the rest to `events`. Whether there may
    /// be more.
    pub fn take(
        &mut self,
        link: LinkId,
        targets: &Targets,
        events: &mut Vec<Event>,
    ) -> Result<bool, Failure> {
        let there = self.gulp()?;
        let mut reader = std::mem::take(&mut self.reader);
        let early = std::mem::take(&mut self.early);
        reader.take(&early, link, targets, events)?;
        let mut opened = |bytes: &[u8]| reader.take(bytes, link, targets, events);
        let taken = self.open(&mut opened);
        self.reader = reader;
        match taken?.closed {
            true => Err(Failure::Gone),
            false => Ok(there),
        }
    }

    /// Reads once; false if there was nothing.
    fn gulp(&mut self) -> Result<bool, Failure> {
        self.wire.resize(BATCH + RECORD, 0);
        let space = self.wire.get_mut(self.came..).unwrap_or_default();
        match self.socket.read(space) {
            // Not even an end was sealed: it died, or somebody cut in.
            Ok(0) => Err(Failure::Gone),
            Ok(len) => {
                self.came += len;
                Ok(true)
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(false),
                _ => Err(failure(&error)),
            },
        }
    }

    fn open(&mut self, opened: Opened<'_>) -> Result<Taken, Failure> {
        let came = self.wire.get_mut(..self.came).unwrap_or_default();
        let taken = self.session.take(came, &mut self.sealed, opened)?;
        self.wire.copy_within(taken.used..self.came, 0);
        self.came -= taken.used;
        self.ready |= taken.ready;
        Ok(taken)
    }

    /// Seals what waits, up to a batch.
    fn seal(&mut self) -> Result<(), Failure> {
        self.plain.clear();
        while self.ready && self.sealed.len() < BATCH {
            let Some(first) = self.waiting.front_mut() else {
                break;
            };
            self.plain.append(&mut first.head);
            let left = first.body.len() - first.done;
            if left > 0 {
                // A piece's bytes begin a record: so they come in whole blocks of its digest.
                self.seal_plain()?;
                self.seal_stretch(left.min(STRETCH))?;
            }
            if left <= STRETCH
                && let Some(sealed) = self.waiting.pop_front()
            {
                self.ending.push(sealed.op);
            }
        }
        self.seal_plain()
    }

    /// Seals the next bytes of a piece from where they lie.
    fn seal_stretch(&mut self, len: usize) -> Result<(), Failure> {
        let Some(first) = self.waiting.front_mut() else {
            return Ok(());
        };
        let now = first.done..first.done + len;
        first.done = now.end;
        let came = self.wire.get_mut(..self.came).unwrap_or_default();
        let (session, sealed) = (&mut self.session, &mut self.sealed);
        first
            .body
            .show(now, |bytes| session.seal(bytes, came, sealed))
    }

    fn seal_plain(&mut self) -> Result<(), Failure> {
        if !self.plain.is_empty() {
            let came = self.wire.get_mut(..self.came).unwrap_or_default();
            self.session.seal(&self.plain, came, &mut self.sealed)?;
            self.plain.clear();
        }
        Ok(())
    }
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Body::None => 0,
            Body::Buffer(_, range) => range.len(),
            Body::Block(_, len) => *len,
        }
    }

    /// Shows some of its bytes.
    fn show<R>(&self, range: Range<usize>, show: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Body::None => show(&[]),
            Body::Buffer(buffer, piece) => {
                buffer.show_unlent(piece.start + range.start..piece.start + range.end, show)
            }
            Body::Block(block, _) => show(block.bytes().get(range).unwrap_or_default()),
        }
    }
}

impl Socket for Line {
    fn flush(&mut self, ended: &mut Vec<OpId>) -> Result<(), Failure> {
        loop {
            while !self.sealed.is_empty() {
                match self.socket.write(self.sealed.waiting()) {
                    Ok(written) => self.sealed.wrote(written),
                    Err(error) => match error.kind() {
                        ErrorKind::WouldBlock => return Ok(()),
                        ErrorKind::Interrupted => {}
                        _ => return Err(failure(&error)),
                    },
                }
            }
            ended.append(&mut self.ending);
            self.seal()?;
            if self.sealed.is_empty() {
                return Ok(());
            }
        }
    }

    fn is_stuck(&self) -> bool {
        !self.sealed.is_empty()
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn failure(error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Failure::Gone,
        _ => match rustix::io::Errno::from_io_error(error) {
            Some(errno) => Failure::System(errno),
            None => Failure::Gone,
        },
    }
}
