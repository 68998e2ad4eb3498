//! A network between two transports, whose bytes lie where a fuzz target reaches them. What goes over it is
//! what goes through a TLS connection, unsealed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use crate::address::Address;
use crate::road::{
    Armed, CallId, Event, Failure, LinkId, MessageKind, OpId, Parcel, Road, RoadKind, Targets,
};
use crate::tls::frame::{Reader, message, piece};

/// Numbers seen on the wire that a liar may use.
const SEEN: usize = 64;

/// Both sides' connections.
#[derive(Default)]
pub(super) struct Network {
    pub pipes: Vec<Pipe>,
    /// For each side.
    pub events: [Vec<Event>; 2],
    pub targets: [Targets; 2],
    pub seen: VecDeque<u64>,
}

/// One connection. What is indexed by a side is about what that side gets or has.
#[derive(Default)]
pub(super) struct Pipe {
    pub links: [Option<LinkId>; 2],
    pub gone: [bool; 2],
    bytes: [VecDeque<u8>; 2],
    readers: [Reader; 2],
    /// Bytes that the side was sent, and how many it took.
    sent: [u64; 2],
    taken: [u64; 2],
    /// Operations of the other side, each with the byte that ends it.
    under_way: [VecDeque<(OpId, u64)>; 2],
}

/// One side's way into it.
pub(super) struct FakeRoad {
    pub side: usize,
    pub network: Rc<RefCell<Network>>,
    pub wake: OwnedFd,
}

/// Where a side is called.
pub(super) fn address(side: usize) -> Address {
    Address::new(Some(1 + side as u64), None)
}

impl Network {
    fn pipe_of(&self, side: usize, link: LinkId) -> Option<usize> {
        let of = |pipe: &Pipe| pipe.links[side] == Some(link);
        self.pipes.iter().position(of)
    }

    fn fail(&mut self, at: usize, side: usize, failure: Failure) {
        if let Some(link) = self.pipes[at].links[side].filter(|_| !self.pipes[at].gone[side]) {
            self.events[side].push(Event::LinkFailed { link, failure });
        }
    }

    fn see(&mut self, bytes: &[u8]) {
        for number in bytes.as_chunks::<8>().0 {
            self.seen.push_front(u64::from_le_bytes(*number));
        }
        self.seen.truncate(SEEN);
    }

    fn send(&mut self, from: usize, link: LinkId, op: OpId, bytes: &[u8]) {
        let to = 1 - from;
        match self.pipe_of(from, link) {
            Some(at) if !self.pipes[at].gone[from] && !self.pipes[at].gone[to] => {
                let pipe = &mut self.pipes[at];
                pipe.bytes[to].extend(bytes);
                pipe.sent[to] += bytes.len() as u64;
                pipe.under_way[to].push_back((op, pipe.sent[to]));
            }
            _ => self.done(from, op, Err(Failure::Closed)),
        }
    }

    fn done(&mut self, side: usize, op: OpId, result: Result<(), Failure>) {
        self.events[side].push(Event::OpDone { op, result });
    }

    fn close(&mut self, side: usize, link: LinkId, op: OpId) {
        if let Some(at) = self.pipe_of(side, link) {
            self.hang_up(at, side);
        }
        self.done(side, op, Ok(()));
    }

    fn hang_up(&mut self, at: usize, side: usize) {
        let pipe = &mut self.pipes[at];
        pipe.gone[side] = true;
        for (op, _) in std::mem::take(&mut pipe.under_way[1 - side]) {
            self.done(side, op, Err(Failure::Closed));
        }
        self.fail(at, 1 - side, Failure::Gone);
    }

    /// A side gets so many of the bytes that were sent to it.
    pub fn deliver(&mut self, at: usize, side: usize, most: usize) {
        let Some(pipe) = self.pipes.get_mut(at) else {
            return;
        };
        let Some(link) = pipe.links[side].filter(|_| !pipe.gone[side]) else {
            return;
        };
        let count = most.min(pipe.bytes[side].len());
        let bytes: Vec<u8> = pipe.bytes[side].drain(..count).collect();
        pipe.taken[side] += count as u64;
        let taken = pipe.taken[side];
        let ended = |(_, end): &(OpId, u64)| *end <= taken;
        while let Some((op, _)) = pipe.under_way[side].pop_front_if(|op| ended(op)) {
            self.events[1 - side].push(Event::OpDone { op, result: Ok(()) });
        }
        let (targets, events) = (&self.targets[side], &mut self.events[side]);
        if let Err(failure) = pipe.readers[side].take(&bytes, link, targets, events) {
            self.fail(at, side, failure);
        }
    }

    /// The network or a liar at its other end sends something more to a side.
    pub fn forge(&mut self, at: usize, side: usize, bytes: &[u8]) {
        if let Some(pipe) = self.pipes.get_mut(at) {
            pipe.bytes[side].extend(bytes);
            pipe.sent[side] += bytes.len() as u64;
        }
    }

    /// Changes a byte on its way.
    pub fn spoil(&mut self, at: usize, side: usize, byte: usize, by: u8) {
        let pipe = self.pipes.get_mut(at);
        if let Some(byte) = pipe.and_then(|pipe| pipe.bytes[side].get_mut(byte)) {
            *byte ^= by;
        }
    }

    /// A connection breaks, as one side sees it.
    pub fn cut(&mut self, at: usize, side: usize) {
        if at < self.pipes.len() {
            self.fail(at, side, Failure::Gone);
        }
    }
}

impl Road for FakeRoad {
    fn kind(&self) -> RoadKind {
        RoadKind::Tls
    }

    fn reaches(&self, peer: &Address) -> bool {
        *peer == address(1 - self.side)
    }

    fn connect(&mut self, _: &Address, link: LinkId) -> Result<(), Failure> {
        let mut network = self.network.borrow_mut();
        let call = network.pipes.len() as CallId;
        let mut pipe = Pipe::default();
        pipe.links[self.side] = Some(link);
        network.pipes.push(pipe);
        network.events[1 - self.side].push(Event::Called(call));
        Ok(())
    }

    fn accept(&mut self, call: CallId, link: LinkId) -> Result<(), Failure> {
        let mut network = self.network.borrow_mut();
        let pipe = &mut network.pipes[call as usize];
        if pipe.gone[1 - self.side] {
            return Err(Failure::Gone);
        }
        pipe.links[self.side] = Some(link);
        Ok(())
    }

    fn reject(&mut self, call: CallId) {
        let mut network = self.network.borrow_mut();
        network.hang_up(call as usize, self.side);
    }

    fn send(&mut self, link: LinkId, op: OpId, parcel: Parcel) {
        let mut network = self.network.borrow_mut();
        let bytes = match parcel {
            Parcel::Message(kind, bytes) => {
                if kind != MessageKind::Hello && kind != MessageKind::Note {
                    network.see(&bytes);
                }
                message(kind, &bytes)
            }
            Parcel::Piece(token, served) => {
                let mut bytes = piece(token, served.len());
                bytes.extend_from_slice(served.bytes());
                bytes
            }
            Parcel::Block(..) => panic!("there is no device"),
        };
        network.send(self.side, link, op, &bytes);
    }

    fn close(&mut self, link: LinkId, op: OpId) {
        self.network.borrow_mut().close(self.side, link, op);
    }

    fn cancel(&mut self, _: OpId) {}

    fn progress(&mut self) -> bool {
        false
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.network.borrow_mut().events[self.side])
    }

    fn arm(&mut self) -> Result<Armed, Failure> {
        Ok(Armed::Yes)
    }

    fn wakes(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn stop_listening(&mut self) {}

    fn pending(&self) -> usize {
        let network = self.network.borrow();
        let of = |pipe: &Pipe| pipe.under_way[1 - self.side].len();
        network.pipes.iter().map(of).sum()
    }
}
