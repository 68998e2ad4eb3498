//! Links that carry one chunk at a time, each at its own rate.
//!
//! ```text
//!  waiting chunks ──► sender's link ──latency──► receiver's link ──► digest ──► verified
//!                     first come first served    begins as soon as the first byte is there
//! ```
//! Two flows of one link alternate and get half of it each; a chunk on its way is on the sender's and
//! the receiver's link at the same time (cut through), so a lone flow gets all of the slower one.
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// A link's place in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link(usize);

/// A chunk that is to be sent.
#[derive(Clone, Copy, Debug)]
struct Sending<T> {
    /// When the request for it is there.
    asked: Duration,
    path: [Link; 2],
    bytes: u64,
    what: T,
}

/// What serves one chunk after the other.
#[derive(Clone, Debug)]
struct Server<T> {
    bytes_per_s: f64,
    free: Duration,
    sending: bool,
    waiting: VecDeque<Sending<T>>,
    bytes: u64,
}

/// Something that happens in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event<T> {
    Sent(usize),
    Verified(T),
}

/// The network: its links, and what is on its way. `T` says what a chunk is.
#[derive(Clone, Debug)]
pub struct Net<T> {
    servers: Vec<Server<T>>,
    latency: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, Event<T>)>>,
    serial: u64,
}

impl<T: Copy + Ord> Net<T> {
    /// A network without links; a byte takes `latency` from one end to the other.
    pub fn new(latency: Duration) -> Self {
        Self {
            servers: Vec::new(),
            latency,
            events: BinaryHeap::new(),
            serial: 0,
        }
    }

    /// A link in one direction; also what computes digests is one.
    pub fn link(&mut self, bytes_per_s: f64) -> Link {
        self.servers.push(Server {
            bytes_per_s,
            free: Duration::ZERO,
            sending: false,
            waiting: VecDeque::new(),
            bytes: 0,
        });
        Link(self.servers.len() - 1)
    }

    /// Bytes that a link has carried or begun to.
    pub fn carried(&self, link: Link) -> u64 {
        self.servers[link.0].bytes
    }

    /// A byte's way from one end to the other.
    pub fn latency(&self) -> Duration {
        self.latency
    }

    /// A chunk goes from a sender's link through a receiver's link and its digest. It is asked for at
    /// `asked` at the earliest, and waits for its turn.
    pub fn send(&mut self, now: Duration, asked: Duration, path: [Link; 3], bytes: u64, what: T) {
        let [from, into, digest] = path;
        let sending = Sending {
            asked,
            path: [into, digest],
            bytes,
            what,
        };
        self.servers[from.0].waiting.push_back(sending);
        if !self.servers[from.0].sending {
            self.next(now, from.0);
        }
    }

    /// When something happens next.
    pub fn next_at(&self) -> Option<Duration> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    /// What happens next: a chunk is verified, or nothing that anybody outside would see.
    pub fn step(&mut self) -> Option<(Duration, Option<T>)> {
        let Reverse((at, _, event)) = self.events.pop()?;
        match event {
            Event::Verified(what) => Some((at, Some(what))),
            Event::Sent(from) => {
                self.next(at, from);
                Some((at, None))
            }
        }
    }

    /// The link begins with the chunk that waited longest.
    fn next(&mut self, now: Duration, from: usize) {
        let server = &mut self.servers[from];
        let chunk = server.waiting.pop_front();
        server.sending = chunk.is_some();
        let Some(chunk) = chunk else {
            return;
        };
        let begins = now.max(chunk.asked);
        let sent = self.serve(from, begins, chunk.bytes);
        self.at(sent, Event::Sent(from));
        let [into, digest] = chunk.path;
        let received = self.serve(into.0, begins + self.latency, chunk.bytes);
        let received = received.max(sent + self.latency);
        let verified = self.serve(digest.0, received, chunk.bytes);
        self.at(verified, Event::Verified(chunk.what));
    }

    /// When a server is done with a chunk that comes at `at`.
    fn serve(&mut self, server: usize, at: Duration, bytes: u64) -> Duration {
        let server = &mut self.servers[server];
        let takes = Duration::from_secs_f64(bytes as f64 / server.bytes_per_s);
        server.free = server.free.max(at) + takes;
        server.bytes += bytes;
        server.free
    }

    fn at(&mut self, at: Duration, event: Event<T>) {
        self.serial += 1;
        self.events.push(Reverse((at, self.serial, event)));
    }
}
