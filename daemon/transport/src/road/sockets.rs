//! The sockets of one road, none of which is ever waited for.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::{Armed, Event, Failure, OpId};
use crate::error::TransportError;

/// The listener's number among descriptors that are waited for; no socket has it.
const LISTENER: u64 = 0;
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// One connection.
pub(crate) trait Socket: AsFd {
    /// Writes what there is room for, and tells which operations `ended` by it.
    fn flush(&mut self, ended: &mut Vec<OpId>) -> Result<(), Failure>;

    /// Whether something waits for room.
    fn is_stuck(&self) -> bool;
}

/// Connections by number, as a rule their link's.
pub(crate) struct Sockets<S> {
    epoll: OwnedFd,
    all: HashMap<u64, Entry<S>>,
    /// Of which more is here than their turn allowed.
    behind: VecDeque<u64>,
    /// With something that nobody has tried to write.
    unwritten: Vec<u64>,
}

struct Entry<S> {
    socket: S,
    /// Whether its end is known: nothing is read or written any more.
    failed: bool,
    /// Whether the loop is told when there is room to write.
    wants_room: bool,
}

/// What [`Sockets::look`] found.
#[derive(Default)]
pub(crate) struct Found {
    /// Whether somebody calls.
    pub calls: bool,
    /// Those whose turn it is: something came, or was left from their last turn.
    pub turns: Vec<u64>,
    /// Those that have room again.
    pub room: Vec<u64>,
}

impl<S: Socket> Sockets<S> {
    /// None yet, but the listener.
    pub fn new(listener: &impl AsFd) -> Result<Sockets<S>, TransportError> {
        let waiting = |errno: Errno| TransportError::Io {
            doing: "waiting for descriptors",
            source: errno.into(),
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(waiting)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, listener, data, epoll::EventFlags::IN).map_err(waiting)?;
        Ok(Sockets {
            epoll,
            all: HashMap::new(),
            behind: VecDeque::new(),
            unwritten: Vec::new(),
        })
    }

    /// One more.
    pub fn add(&mut self, number: u64, socket: S) -> Result<(), Failure> {
        let data = epoll::EventData::new_u64(number);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)?;
        let entry = Entry {
            socket,
            failed: false,
            wants_room: false,
        };
        self.all.insert(number, entry);
        Ok(())
    }

    /// One of them, unless it failed.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut S> {
        let entry = self.all.get_mut(&number).filter(|entry| !entry.failed);
        entry.map(|entry| &mut entry.socket)
    }

    /// All of them, with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, &S)> {
        let all = self.all.iter();
        all.map(|(number, entry)| (*number, &entry.socket))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.all.values().map(|entry| &entry.socket)
    }

    /// It is no longer one of these.
    pub fn remove(&mut self, number: u64) -> Option<S> {
        let entry = self.all.remove(&number)?;
        if !entry.failed {
            // One that is closed next is gone from there anyway.
            let _ = epoll::delete(&self.epoll, &entry.socket);
        }
        Some(entry.socket)
    }

    /// Nothing goes over it any more; whether that is new.
    pub fn fail(&mut self, number: u64) -> bool {
        let entry = self.all.get_mut(&number).filter(|entry| !entry.failed);
        entry.is_some_and(|entry| {
            entry.failed = true;
            // What is not read again is not to be reported again.
            let _ = epoll::delete(&self.epoll, &entry.socket);
            true
        })
    }

    /// Writes what waits on one, and has the loop told of room if some is left.
    pub fn write(&mut self, number: u64, events: &mut Vec<Event>) -> Result<(), Failure> {
        let open = self.all.get_mut(&number).filter(|entry| !entry.failed);
        let Some(entry) = open else { return Ok(()) };
        let mut ended = Vec::new();
        let flushed = entry.socket.flush(&mut ended);
        let done = |op| Event::OpDone { op, result: Ok(()) };
        events.extend(ended.into_iter().map(done));
        flushed?;
        let stuck = entry.socket.is_stuck();
        if stuck != entry.wants_room {
            entry.wants_room = stuck;
            let flags = match stuck {
                true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
                false => epoll::EventFlags::IN,
            };
            let data = epoll::EventData::new_u64(number);
            epoll::modify(&self.epoll, &entry.socket, data, flags)?;
        }
        Ok(())
    }

    /// What one has to say goes with the next words, or the next turn.
    pub fn write_soon(&mut self, number: u64) {
        self.unwritten.push(number);
    }

    /// Those that have something to say.
    pub fn take_unwritten(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unwritten)
    }

    /// It has another turn, whether or not something comes.
    pub fn turn_again(&mut self, number: u64) {
        self.behind.push_back(number);
    }

    /// What is to be done now.
    pub fn look(&mut self) -> Found {
        let mut ready = Vec::with_capacity(64);
        let space = rustix::buffer::spare_capacity(&mut ready);
        if epoll::wait(&self.epoll, space, Some(&AT_ONCE)).is_err() {
            return Found::default();
        }
        let mut found = Found {
            turns: std::mem::take(&mut self.behind).into(),
            ..Found::default()
        };
        for event in ready {
            let (number, flags) = (event.data.u64(), event.flags);
            if number == LISTENER {
                found.calls = true;
                continue;
            }
            if flags.contains(epoll::EventFlags::OUT) {
                found.room.push(number);
            }
            if flags != epoll::EventFlags::OUT && !found.turns.contains(&number) {
                found.turns.push(number);
            }
        }
        found
    }

    /// Prepares for sleeping on [`Sockets::wakes`]. What is readable stays so until it was read.
    pub fn arm(&self) -> Armed {
        match self.behind.is_empty() && self.unwritten.is_empty() {
            true => Armed::Yes,
            false => Armed::Busy,
        }
    }

    /// Readable when there is something to find.
    pub fn wakes(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Found {
    /// Whether that is anything.
    pub fn is_some(&self) -> bool {
        self.calls || !self.turns.is_empty() || !self.room.is_empty()
    }
}
