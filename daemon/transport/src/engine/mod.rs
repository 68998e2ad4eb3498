//! The progress thread: turns commands and the roads' events into operations.
//!
//! Happy path of one turn: let the roads progress, handle commands, handle events; after
//! [`IDLE_POLLS`] turns without any of them, arm the roads and sleep until a descriptor of theirs, a
//! command or the next deadline. Turns in which bytes stream in are spaced, see `pace`. All state is
//! in [`Engine`] and touched by this thread only.

mod answer;
mod copies;
mod deadline;
mod fetch;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handshake;
mod impair;
mod landing;
mod link;
mod note;
mod pace;
mod piece;
mod region;
mod secrets;
mod serve;
mod staged;
mod stop;
mod unbelieved;
mod wire;
mod withdraw;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::copies::Copies;
use self::fetch::{Asked, Fetch};
use self::impair::Impaired;
use self::landing::Landings;
use self::link::{Link, LinkEnd};
use self::note::Note;
use self::pace::{IDLE_LOOKS, Pace};
use self::region::Region;
use self::secrets::Secrets;
use self::staged::Staged;
use self::withdraw::Withdrawal;
use crate::address::Address;
use crate::command::{Command, CommandPort, CommandQueue};
use crate::config::Config;
use crate::error::TransportError;
use crate::road::{Armed, Event, Failure, Happened, LinkId, OpId, Roads};
use crate::shared::Shared;
use crate::start;
use crate::stats::Counters;

/// Turns without work before sleeping: long enough to catch the next message of a busy stream,
/// some 50 us of processor time at most.
const IDLE_POLLS: u32 = 200;
/// Turns between two looks at the clock while there is work. A turn may copy a mebibyte: with many
/// more of them, work would look like a pause of this process (see `deadline`).
const TURNS_PER_CLOCK: u32 = 16;
/// Sleep without a deadline; only a bound, nothing is waited for.
const LONG_SLEEP: Duration = Duration::from_secs(3600);

pub(crate) struct Engine {
    fetches: HashMap<u64, Fetch>,
    /// Pieces asked for and not yet here, by the read's token.
    asked: HashMap<u64, Asked>,
    notes: HashMap<u64, Note>,
    links: HashMap<LinkId, Link>,
    /// Links that we called and that are not closing, the oldest first.
    by_peer: HashMap<Address, Vec<LinkId>>,
    regions: HashMap<u64, Region>,
    /// When the waiting pullers are told again; none if nobody waits.
    next_wait: Option<Instant>,
    withdrawals: Vec<Withdrawal>,
    /// Peers with which a drill lets nothing work.
    impaired: Vec<Impaired>,
    /// Regions and fetches in device memory.
    staged: Staged,
    landings: Landings,
    copies: Copies,
    ops: HashMap<OpId, OpKind>,
    roads: Roads,
    shared: Arc<Shared>,
    config: Config,
    owner: u64,
    addr: Address,
    secrets: Secrets,
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
    /// Bytes of a region.
    Data {
        link: LinkId,
        region: u64,
    },
    /// Bytes of a device's region, in a block since then.
    Block {
        link: LinkId,
        since: Instant,
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
    (shared, port): (Arc<Shared>, Arc<CommandPort>),
    ready: Sender<Result<Address, TransportError>>,
) {
    let started = Engine::start(config, shared, port);
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
            OpKind::Send { link }
            | OpKind::Data { link, .. }
            | OpKind::Block { link, .. }
            | OpKind::Note { link, .. }
            | OpKind::Close { link } => link,
        }
    }
}

impl Engine {
    fn start(
        config: &Config,
        shared: Arc<Shared>,
        port: Arc<CommandPort>,
    ) -> Result<(Engine, Address), TransportError> {
        let mut secrets = Secrets::new()?;
        let (roads, addr) = start::open(config, secrets.number())?;
        let engine = Engine::over(config, (roads, addr), secrets, (shared, port));
        Ok((engine, addr))
    }

    /// One that has done nothing yet, over these roads.
    fn over(
        config: &Config,
        (roads, addr): (Roads, Address),
        mut secrets: Secrets,
        (shared, port): (Arc<Shared>, Arc<CommandPort>),
    ) -> Engine {
        Engine {
            fetches: HashMap::new(),
            asked: HashMap::new(),
            notes: HashMap::new(),
            links: HashMap::new(),
            by_peer: HashMap::new(),
            regions: HashMap::new(),
            next_wait: None,
            withdrawals: Vec::new(),
            impaired: Vec::new(),
            staged: Staged::default(),
            landings: Landings::default(),
            copies: Copies::new(port),
            ops: HashMap::new(),
            roads,
            shared,
            config: config.clone(),
            owner: secrets.number(),
            addr,
            secrets,
            next_id: 1,
            clock: deadline::Clock::new(),
            stopping: None,
        }
    }

    fn drive(&mut self, queue: &CommandQueue) {
        let (mut idle, mut turns, mut pace) = (0, 0u32, Pace::new());
        let mut duty = self.config.share.duty();
        loop {
            turns = turns.wrapping_add(1);
            let streams = pace.gather(self.asked.len());
            match self.turn(queue) {
                Turn::Stopped => return,
                Turn::Worked => {
                    idle = 0;
                    if duty.rest() {
                        self.check_deadlines();
                    }
                }
                Turn::Idle => idle += 1,
            }
            if idle >= if streams { IDLE_LOOKS } else { IDLE_POLLS } {
                // What was given up leaves events and callbacks that nothing wakes a sleeper for.
                if self.check_deadlines() || self.sleep(queue) {
                    idle = 0;
                }
            } else if turns.is_multiple_of(TURNS_PER_CLOCK) {
                self.check_deadlines();
            }
        }
    }

    fn turn(&mut self, queue: &CommandQueue) -> Turn {
        let mut worked = self.roads.progress();
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
        for happened in self.roads.take_events() {
            worked = true;
            match happened {
                Happened::Called(call) => self.on_call(call),
                Happened::Other(event) => self.on_event(event),
            }
        }
        while let Some(end) = self.copies.next_end() {
            worked = true;
            self.on_copied(end);
        }
        if worked {
            self.feed();
        }
        if self.is_stopped() {
            return Turn::Stopped;
        }
        if worked { Turn::Worked } else { Turn::Idle }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Expose {
                buffer,
                growing,
                reply,
            } => drop(reply.send(Ok(self.expose(buffer, growing)))),
            Command::Ready { region, range } => self.on_ready(region, range),
            Command::Unexpose { region } => self.unexpose(region),
            Command::Withdraw { region, reply } => self.withdraw(region, reply),
            Command::Fetch(fetch) => self.begin_fetch(fetch),
            Command::Cancel { ticket } => self.cancel_fetch(ticket),
            Command::Notify {
                peer,
                message,
                reply,
            } => self.begin_note(peer, message, reply),
            Command::Disconnect { peer } => {
                for link in self.links_to(peer).to_vec() {
                    self.end_link(link, LinkEnd::Disconnected);
                }
            }
            Command::Impair {
                peer,
                trouble,
                lasts,
            } => self.impair(peer, trouble, lasts),
            Command::Stop => self.begin_stop(),
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            // Told with the road that it came on.
            Event::Called(_) => {}
            Event::Refused => self.count_refused(),
            Event::Unbelieved(link) => self.on_unbelieved(link),
            Event::LinkFailed { link, failure } => self.end_link(link, LinkEnd::Failed(failure)),
            Event::Message { link, kind, bytes } => self.on_message(link, kind, bytes),
            Event::Arrived { token, fits, block } => self.on_arrived(token, fits, block),
            Event::OpDone { op, result } => {
                if let Some(kind) = self.ops.remove(&op) {
                    self.on_op_done(kind, result);
                }
            }
        }
    }

    fn on_op_done(&mut self, kind: OpKind, result: Result<(), Failure>) {
        match kind {
            OpKind::Close { link } => return self.on_closed(link),
            OpKind::Note { note, .. } if result.is_ok() => self.on_note_done(note),
            OpKind::Data { .. } if !self.withdrawals.is_empty() => self.answer_withdrawals(),
            OpKind::Send { .. }
            | OpKind::Data { .. }
            | OpKind::Block { .. }
            | OpKind::Note { .. } => {}
        }
        if let Err(failure) = result {
            // No effect on a link that is closing already: then this is a consequence.
            self.end_link(kind.link(), LinkEnd::Failed(failure));
        }
    }

    /// True if it slept, false if a road has something to do first.
    fn sleep(&mut self, queue: &CommandQueue) -> bool {
        let longest = match self.roads.arm() {
            Ok(Armed::Busy) => return false,
            Ok(Armed::Yes) => LONG_SLEEP,
            Err(failure) => {
                tracing::warn!(
                    reason = failure.text(),
                    "arming a road failed: polling instead"
                );
                Duration::from_millis(1)
            }
        };
        let limit = self.until_due().map_or(longest, |due| due.min(longest));
        self.clock.sleeps(limit);
        let limit = Timespec::try_from(limit).ok();
        let all = std::iter::once(queue.wake_fd()).chain(self.roads.wakes());
        let mut fds: Vec<PollFd<'_>> = all
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // An interrupted sleep is just a short one.
        let _ = poll(&mut fds, limit.as_ref());
        let woken = fds.first().is_some_and(|fd| !fd.revents().is_empty());
        self.clock.look();
        if woken {
            queue.acknowledge_wake();
        }
        true
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn count_refused(&self) {
        Counters::add(&self.shared.counters.refused, 1);
    }

    fn count_error(&self) {
        Counters::add(&self.shared.counters.errors, 1);
    }
}
