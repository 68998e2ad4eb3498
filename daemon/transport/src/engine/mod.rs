//! The progress thread: turns commands and UCX's events into operations.
//!
//! Happy path of one turn: let UCX progress, handle commands, handle events; after
//! [`IDLE_POLLS`] turns without any of them, arm the worker and sleep until UCX's descriptor, a
//! command or the next deadline. All state is in [`Engine`] and touched by this thread only.

mod deadline;
mod fetch;
mod link;
mod note;
mod serve;
mod wire;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::fetch::{Chunk, Fetch};
use self::link::{Link, LinkEnd};
use self::note::Note;
use crate::buffer::Buffer;
use crate::command::{Command, CommandQueue};
use crate::config::Config;
use crate::error::TransportError;
use crate::key::RegionKey;
use crate::stats::Counters;
use crate::transport::Shared;
use crate::ucx::{Armed, Event, LinkId, OpId, Status, Worker};

/// Turns without work before sleeping: long enough to catch the next message of a busy stream,
/// some 50 us of processor time at most.
const IDLE_POLLS: u32 = 200;
/// Turns between two looks at the clock while there is work. A turn may copy a mebibyte: with many
/// more of them, work would look like a pause of this process (see `deadline`).
const TURNS_PER_CLOCK: u32 = 16;
/// Sleep without a deadline; only a bound, nothing is waited for.
const LONG_SLEEP: Duration = Duration::from_secs(3600);
/// How long stopping waits for UCX to end what was under way.
const STOP_LIMIT: Duration = Duration::from_secs(2);

pub(crate) struct Engine {
    fetches: HashMap<u64, Fetch>,
    /// Chunks asked for and not yet here, and whose they are.
    chunks: HashMap<u64, Chunk>,
    notes: HashMap<u64, Note>,
    links: HashMap<LinkId, Link>,
    by_peer: HashMap<SocketAddr, LinkId>,
    regions: HashMap<u64, Arc<Buffer>>,
    ops: HashMap<OpId, OpKind>,
    worker: Worker,
    shared: Arc<Shared>,
    config: Config,
    owner: u64,
    next_id: u64,
    clock: deadline::Clock,
    stopping: Option<Instant>,
}

/// What an operation was for, to route its completion.
#[derive(Clone, Copy)]
enum OpKind {
    /// Only its failure matters.
    Send {
        link: LinkId,
    },
    Note {
        link: LinkId,
        note: u64,
    },
    Close {
        link: LinkId,
    },
}

/// Whether the loop should go on at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Worked,
    Idle,
    Stopped,
}

/// Body of the progress thread. Answers on `ready` once, then runs until stopped.
pub(crate) fn run(
    config: &Config,
    queue: CommandQueue,
    shared: Arc<Shared>,
    ready: Sender<Result<SocketAddr, TransportError>>,
) {
    let started = Engine::start(config, shared);
    match started {
        Err(error) => drop(ready.send(Err(error))),
        Ok((mut engine, addr)) => {
            let _ = ready.send(Ok(addr));
            engine.drive(&queue);
            // Whoever asks from now on gets `Shutdown` from the closed channel.
            drop(queue);
            engine.finish();
        }
    }
}

impl OpKind {
    fn link(self) -> LinkId {
        match self {
            OpKind::Send { link } | OpKind::Note { link, .. } | OpKind::Close { link } => link,
        }
    }
}

impl Engine {
    fn start(config: &Config, shared: Arc<Shared>) -> Result<(Engine, SocketAddr), TransportError> {
        let mut worker = Worker::new(&config.ucx_settings())?;
        let addr = worker.listen(SocketAddr::new(config.bind, 0))?;
        let engine = Engine {
            fetches: HashMap::new(),
            chunks: HashMap::new(),
            notes: HashMap::new(),
            links: HashMap::new(),
            by_peer: HashMap::new(),
            regions: HashMap::new(),
            ops: HashMap::new(),
            worker,
            shared,
            config: config.clone(),
            owner: random_owner()?,
            next_id: 1,
            clock: deadline::Clock::new(),
            stopping: None,
        };
        Ok((engine, addr))
    }

    fn drive(&mut self, queue: &CommandQueue) {
        let (mut idle, mut turns) = (0, 0u32);
        loop {
            turns = turns.wrapping_add(1);
            match self.turn(queue) {
                Turn::Stopped => return,
                Turn::Worked => idle = 0,
                Turn::Idle => idle += 1,
            }
            if idle >= IDLE_POLLS {
                self.check_deadlines();
                if self.sleep(queue) {
                    idle = 0;
                }
            } else if turns.is_multiple_of(TURNS_PER_CLOCK) {
                self.check_deadlines();
            }
        }
    }

    fn turn(&mut self, queue: &CommandQueue) -> Turn {
        let mut worked = self.worker.progress();
        // While stopping, commands are left to fail with the channel.
        while self.stopping.is_none() {
            match queue.receiver.try_recv() {
                Ok(command) => self.on_command(command),
                // Every sender is gone without `Stop`: cannot be, but is an end all the same.
                Err(TryRecvError::Disconnected) => self.begin_stop(),
                Err(TryRecvError::Empty) => break,
            }
            worked = true;
        }
        for event in self.worker.take_events() {
            worked = true;
            self.on_event(event);
        }
        if self.is_stopped() {
            return Turn::Stopped;
        }
        if worked { Turn::Worked } else { Turn::Idle }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Expose { buffer, reply } => drop(reply.send(Ok(self.expose(buffer)))),
            Command::Unexpose { region } => drop(self.regions.remove(&region)),
            Command::Fetch(fetch) => self.begin_fetch(fetch),
            Command::Notify {
                peer,
                message,
                reply,
            } => self.begin_note(peer, message, reply),
            Command::Disconnect { peer } => {
                if let Some(link) = self.by_peer.get(&peer) {
                    self.end_link(*link, LinkEnd::Disconnected);
                }
            }
            Command::Stop => self.begin_stop(),
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::ConnectRequest(request) => self.on_connect_request(request),
            Event::LinkFailed { link, status } => self.end_link(link, LinkEnd::Failed(status)),
            Event::Message { kind, bytes, from } => self.on_message(kind, bytes, from),
            Event::Arrived { token, fits } => self.on_arrived(token, fits),
            Event::OpDone { op, status } => {
                if let Some(kind) = self.ops.remove(&op) {
                    self.on_op_done(kind, status);
                }
            }
        }
    }

    fn on_op_done(&mut self, kind: OpKind, status: Status) {
        match kind {
            OpKind::Close { link } => return self.on_closed(link),
            OpKind::Note { note, .. } => self.on_note_done(note, status),
            OpKind::Send { .. } => {}
        }
        if status != Status::OK {
            // No effect on a link that is closing already: then this is a consequence.
            self.end_link(kind.link(), LinkEnd::Failed(status));
        }
    }

    fn expose(&mut self, buffer: Arc<Buffer>) -> RegionKey {
        let (region, len) = (self.new_id(), buffer.len() as u64);
        self.regions.insert(region, buffer);
        RegionKey {
            owner: self.owner,
            region,
            len,
        }
    }

    /// True if it slept, false if UCX has something to do first.
    fn sleep(&mut self, queue: &CommandQueue) -> bool {
        let longest = match self.worker.arm() {
            Ok(Armed::Busy) => return false,
            Ok(Armed::Yes) => LONG_SLEEP,
            Err(status) => {
                tracing::warn!(status = status.text(), "arming UCX failed: polling instead");
                Duration::from_millis(1)
            }
        };
        let limit = match self.next_deadline() {
            Some(at) => at.saturating_duration_since(self.clock.now()).min(longest),
            None => longest,
        };
        self.clock.sleeps(limit);
        let limit = Timespec::try_from(limit).ok();
        let mut fds = [
            PollFd::from_borrowed_fd(self.worker.event_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(queue.wake_fd(), PollFlags::IN),
        ];
        // An interrupted sleep is just a short one.
        let _ = poll(&mut fds, limit.as_ref());
        let woken = !fds[1].revents().is_empty();
        self.clock.look();
        if woken {
            queue.acknowledge_wake();
        }
        true
    }

    fn begin_stop(&mut self) {
        self.stopping = Some(Instant::now() + STOP_LIMIT);
        for link in self.links.keys().copied().collect::<Vec<_>>() {
            self.end_link(link, LinkEnd::Shutdown);
        }
    }

    fn is_stopped(&self) -> bool {
        let Some(limit) = self.stopping else {
            return false;
        };
        (self.links.is_empty() && self.worker.pending() == 0) || Instant::now() >= limit
    }

    /// Releases UCX; what it has not ended is leaked rather than pulled from under it.
    fn finish(mut self) {
        for event in self.worker.take_events() {
            if let Event::ConnectRequest(request) = event {
                self.worker.reject(request);
            }
        }
        if self.worker.pending() > 0 || !self.links.is_empty() {
            tracing::error!(
                pending = self.worker.pending(),
                "UCX did not stop; leaking it"
            );
            std::mem::forget(self);
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn count_error(&self) {
        Counters::add(&self.shared.counters.errors, 1);
    }
}

fn random_owner() -> Result<u64, TransportError> {
    let mut bytes = [0u8; 8];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).map_err(
        |e| TransportError::Io {
            doing: "drawing a random number",
            source: e.into(),
        },
    )?;
    Ok(u64::from_ne_bytes(bytes))
}
