//! One connection: parcels are sealed as there is room for them, and what comes is opened.
//!
//! Where the kernel does both (see `kernel`), it is given the keys once the handshake's last word is written,
//! and until then no byte is read that is the kernel's to open.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use rustls::pki_types::CertificateDer;

use super::frame::Reader;
use super::kernel::{self, RECORDS_OF_A_KEY, Record, Records};
use super::outbox::Outbox;
use super::outgoing::Outgoing;
use super::session::{Opened, RECORD, RECORD_HEAD, Session, Taken};
use crate::road::{Event, Failure, LinkId, OpId, Parcel, Socket, Targets};

/// Bytes that are sealed before the first of them is written, and most that are read at once.
const BATCH: usize = 16 * RECORD;
/// Bytes of a piece that are sealed at once.
const STRETCH: usize = 4 * RECORD;

/// One connection.
pub(super) struct Line {
    socket: TcpStream,
    sealing: Sealing,
    /// Whether the handshake is over, and what the peer showed in it.
    ready: bool,
    shown: Vec<CertificateDer<'static>>,
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

/// Who seals and opens records.
enum Sealing {
    /// rustls; until the handshake is over only, if somebody is to follow it.
    Here(Box<Session>, Option<&'static dyn Records>),
    /// The kernel, and how many it sealed at most.
    Kernel(&'static dyn Records, u64),
    /// Nobody: the keys could not be handed over.
    Nobody,
}

impl Line {
    /// Either side of a connection that is being made. Once it is, `follows` seals and opens, if anybody.
    pub fn new(socket: TcpStream, session: Session, follows: Option<&'static dyn Records>) -> Line {
        Line {
            socket,
            sealing: Sealing::Here(Box::new(session), follows),
            ready: false,
            shown: Vec::new(),
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
        self.open(&mut |_| Err(Failure::Garbage)).map(drop)
    }

    /// Whether the handshake is over.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// The peer's certificates, once the handshake is over.
    pub fn shown(&self) -> &[CertificateDer<'static>] {
        &self.shown
    }

    /// Queues a parcel.
    pub fn push(&mut self, op: OpId, parcel: Parcel) {
        self.waiting.push_back(Outgoing::new(op, parcel));
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
        match self.sealing {
            Sealing::Kernel(records, _) => return self.take_open(records, link, targets, events),
            // What comes now is the kernel's, which gets the keys with the next write.
            Sealing::Here(_, Some(_)) if self.ready => return Ok(false),
            _ => {}
        }
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

    /// Takes what came of a connection whose records the kernel opens.
    fn take_open(
        &mut self,
        records: &'static dyn Records,
        link: LinkId,
        targets: &Targets,
        events: &mut Vec<Event>,
    ) -> Result<bool, Failure> {
        self.wire.resize(BATCH + RECORD, 0);
        let space = self.wire.get_mut(self.came..).unwrap_or_default();
        let (record, len) = match records.read(&self.socket, space) {
            Ok(read) => read,
            Err(error) if is_nothing(&error) => return Ok(false),
            Err(error) => return Err(kernel::failure(&error).unwrap_or(failure(&error))),
        };
        match record {
            // An end without a word, or with one.
            Record::Data if len == 0 => return Err(Failure::Gone),
            Record::Alert => return Err(Failure::Gone),
            // They would have to be given to the kernel; a new link is as good.
            Record::NewKeys => return Err(Failure::Worn),
            Record::Other => return Err(Failure::Garbage),
            Record::Data => self.came += len,
        }
        let came = self.wire.get(..self.came).unwrap_or_default();
        let used = self.reader.take_blocks(came, link, targets, events)?;
        self.wire.copy_within(used..self.came, 0);
        self.came -= used;
        Ok(true)
    }

    /// Reads once; false if there was nothing. A handshake that the kernel follows is read to the end of one
    /// record and no further.
    fn gulp(&mut self) -> Result<bool, Failure> {
        self.wire.resize(BATCH + RECORD, 0);
        let by_record = matches!(self.sealing, Sealing::Here(_, Some(_)));
        loop {
            let until = match by_record {
                true => self.next_end().1,
                false => self.wire.len(),
            };
            let space = self.wire.get_mut(self.came..until).unwrap_or_default();
            match self.socket.read(space) {
                // Not even an end was sealed: it died, or somebody cut in.
                Ok(0) => return Err(Failure::Gone),
                Ok(len) => self.came += len,
                Err(error) if is_nothing(&error) => return Ok(false),
                Err(error) => return Err(failure(&error)),
            }
            if !by_record || self.next_end().0 {
                return Ok(true);
            }
        }
    }

    /// Whether what came are whole records, and up to where to read so that it never is more.
    fn next_end(&self) -> (bool, usize) {
        ends(self.wire.get(..self.came).unwrap_or_default())
    }

    fn open(&mut self, opened: Opened<'_>) -> Result<Taken, Failure> {
        let Sealing::Here(session, _) = &mut self.sealing else {
            return Err(Failure::Closed);
        };
        let came = self.wire.get_mut(..self.came).unwrap_or_default();
        let taken = session.take(came, &mut self.sealed, opened)?;
        self.wire.copy_within(taken.used..self.came, 0);
        self.came -= taken.used;
        if taken.ready && !self.ready {
            (self.ready, self.shown) = (true, session.shown());
        }
        Ok(taken)
    }

    /// Hands the keys to whoever follows rustls, if somebody does and the handshake is over and written.
    fn hand_over(&mut self) -> Result<(), Failure> {
        if !self.ready || !matches!(self.sealing, Sealing::Here(_, Some(_))) {
            return Ok(());
        }
        if self.came > 0 || !self.early.is_empty() {
            // Cannot be, as it is read record by record: the kernel would never see these.
            return Err(Failure::Garbage);
        }
        let sealing = std::mem::replace(&mut self.sealing, Sealing::Nobody);
        let Sealing::Here(session, Some(records)) = sealing else {
            return Ok(());
        };
        let secrets = session.into_secrets().map_err(Failure::of_tls)?;
        records.take_over(&self.socket, secrets)?;
        self.sealing = Sealing::Kernel(records, 0);
        Ok(())
    }

    /// Writes what waits, as it is; the kernel seals it.
    fn write_open(&mut self, ended: &mut Vec<OpId>) -> Result<(), Failure> {
        let Sealing::Kernel(_, records) = &mut self.sealing else {
            return Ok(());
        };
        while let Some(first) = self.waiting.front_mut() {
            if first.is_over() {
                ended.extend(self.waiting.pop_front().map(|over| over.op));
                continue;
            }
            if *records >= RECORDS_OF_A_KEY {
                return Err(Failure::Worn);
            }
            // A head is a record of its own, so that a piece comes in whole blocks of its digest.
            let wrote = match first.head.is_empty() {
                false => self.socket.write(&first.head),
                true => first.show(BATCH, |bytes| self.socket.write(bytes)),
            };
            match wrote {
                Ok(wrote) => {
                    *records += wrote.div_ceil(RECORD) as u64;
                    let of_head = wrote.min(first.head.len());
                    first.head.drain(..of_head);
                    first.advance(wrote - of_head);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    ErrorKind::Interrupted => {}
                    _ => return Err(failure(&error)),
                },
            }
        }
        Ok(())
    }

    /// Seals what waits, up to a batch.
    fn seal(&mut self) -> Result<(), Failure> {
        self.plain.clear();
        while self.ready && self.sealed.len() < BATCH {
            let Some(first) = self.waiting.front_mut() else {
                break;
            };
            self.plain.append(&mut first.head);
            let left = first.left();
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
        let (Some(first), Sealing::Here(session, _)) =
            (self.waiting.front_mut(), &mut self.sealing)
        else {
            return Err(Failure::Closed);
        };
        let came = self.wire.get_mut(..self.came).unwrap_or_default();
        first.show(len, |bytes| session.seal(bytes, came, &mut self.sealed))?;
        first.advance(len);
        Ok(())
    }

    fn seal_plain(&mut self) -> Result<(), Failure> {
        let Sealing::Here(session, _) = &mut self.sealing else {
            return Err(Failure::Closed);
        };
        if !self.plain.is_empty() {
            let came = self.wire.get_mut(..self.came).unwrap_or_default();
            session.seal(&self.plain, came, &mut self.sealed)?;
            self.plain.clear();
        }
        Ok(())
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
            self.hand_over()?;
            if matches!(self.sealing, Sealing::Kernel(..)) {
                return self.write_open(ended);
            }
            self.seal()?;
            if self.sealed.is_empty() {
                return Ok(());
            }
        }
    }

    fn is_stuck(&self) -> bool {
        let unwritten = matches!(self.sealing, Sealing::Kernel(..)) && !self.waiting.is_empty();
        unwritten || !self.sealed.is_empty()
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether these bytes are whole records, and how long they are once the record at their end is whole or, of
/// which the length is not known yet, its head.
fn ends(came: &[u8]) -> (bool, usize) {
    let mut rest = came;
    while let Some(([_, _, _, high, low], behind)) = rest.split_first_chunk::<RECORD_HEAD>() {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        match behind.split_at_checked(len) {
            Some((_, next)) => rest = next,
            None => return (false, came.len() + len - behind.len()),
        }
    }
    (rest.is_empty(), came.len() + RECORD_HEAD - rest.len())
}

/// Whether there is only nothing to be read yet.
fn is_nothing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
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

#[cfg(test)]
mod tests;
