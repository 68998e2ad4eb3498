//! Two engines and the network between them: what may be done to them, and what must hold afterwards.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use xxhash_rust::xxh3::xxh3_64;

use super::network::{FakeRoad, Network, address};
use crate::buffer::{Buffer, FetchGuard};
use crate::command::{Command, CommandQueue, FetchCommand, FetchEvent, Trouble, command_channel};
use crate::config::Config;
use crate::engine::link::{Link, LinkState};
use crate::engine::secrets::Secrets;
use crate::engine::{Engine, fetch, serve};
use crate::error::TransportError;
use crate::key::{Part, RegionKey};
use crate::road::{MessageKind, RoadKind, Roads};
use crate::shared::Shared;
use crate::tls::frame::{message, piece};
use crate::token::JobToken;
use crate::transport::guard_parts;

/// Bytes of each buffer.
pub const SIZE: usize = 4096;
/// What lies where nothing was fetched to.
const UNTOUCHED: u8 = 0xee;
/// Callers without a proof that one road keeps, as in `link`.
const UNPROVEN: usize = 64;
/// Connections of one run: what comes of more is what comes of these.
const MOST_PIPES: usize = 90;

/// Two engines that are members of one job.
pub struct Pair {
    sides: [Side; 2],
    network: Rc<RefCell<Network>>,
    /// Nobody lied so far: whatever arrives is what was asked for.
    honest: bool,
    tickets: u64,
}

struct Side {
    engine: Engine,
    queue: CommandQueue,
    shared: Arc<Shared>,
    /// What others read of.
    source: Arc<Buffer>,
    /// What is in it.
    written: Vec<u8>,
    regions: Vec<RegionKey>,
    /// What fetches fill.
    target: Arc<Buffer>,
    /// What is in it, as far as it may not change.
    settled: Vec<u8>,
    fetches: Vec<Fetch>,
    notes: Vec<Receiver<Result<(), TransportError>>>,
    withdrawals: Vec<Receiver<()>>,
    told: u32,
    heard: Option<u32>,
}

struct Fetch {
    ticket: u64,
    parts: Vec<Part>,
    arrived: Vec<bool>,
    guard: Arc<FetchGuard>,
    events: Receiver<FetchEvent>,
    ended: bool,
}

impl Fetch {
    fn range(&self, part: usize) -> Range<usize> {
        let part = self.parts[part];
        part.dst as usize..(part.dst + part.len) as usize
    }
}

thread_local! {
    /// Mapping one takes longer than most runs.
    static BUFFERS: [Arc<Buffer>; 4] = std::array::from_fn(|_| Buffer::new(SIZE).unwrap());
}

/// The byte that a source has there.
fn byte_of(side: usize, at: usize) -> u8 {
    (at * 31 + at / 256 * 7 + side * 101) as u8 & 0x7f
}

impl Default for Pair {
    fn default() -> Pair {
        let network = Rc::new(RefCell::new(Network::default()));
        let sides = [0, 1].map(|side| Side::new(side, &network));
        Pair {
            sides,
            network,
            honest: true,
            tickets: 0,
        }
    }
}

impl Side {
    fn new(side: usize, network: &Rc<RefCell<Network>>) -> Side {
        let road = FakeRoad {
            side,
            network: Rc::clone(network),
            wake: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
        };
        let config = Config::new(JobToken::new(b"fuzz"));
        let targets = network.borrow().targets[side].clone();
        let roads = Roads::new(vec![Box::new(road)], targets);
        let (port, queue) = command_channel().unwrap();
        let shared = Arc::new(Shared::default());
        let engine = Engine::over(
            &config,
            (roads, address(side)),
            Secrets::known(&[side as u8; 32]),
            (Arc::clone(&shared), Arc::new(port)),
        );
        let [source, target] = BUFFERS.with(|all| [0, 1].map(|of| Arc::clone(&all[side * 2 + of])));
        let written: Vec<u8> = (0..SIZE).map(|at| byte_of(side, at)).collect();
        source
            .with_bytes_mut(|bytes| bytes.copy_from_slice(&written))
            .unwrap();
        target
            .with_bytes_mut(|bytes| bytes.fill(UNTOUCHED))
            .unwrap();
        Side {
            engine,
            queue,
            shared,
            source,
            written,
            regions: Vec::new(),
            target,
            settled: vec![UNTOUCHED; SIZE],
            fetches: Vec::new(),
            notes: Vec::new(),
            withdrawals: Vec::new(),
            told: 0,
            heard: None,
        }
    }

    fn region(&self, at: usize) -> Option<RegionKey> {
        self.regions.get(at % self.regions.len().max(1)).copied()
    }
}

impl Pair {
    /// A side lets the other read its buffer, or what of it is ready.
    pub fn expose(&mut self, side: usize, growing: bool) {
        let side = &mut self.sides[side];
        let (reply, key) = channel();
        let buffer = Arc::clone(&side.source);
        side.engine.on_command(Command::Expose {
            buffer,
            growing,
            reply,
        });
        side.regions.push(key.recv().unwrap().unwrap());
    }

    /// Some bytes of a growing region are there.
    pub fn ready(&mut self, side: usize, region: usize, range: Range<u64>) {
        let side = &mut self.sides[side];
        if let Some(key) = side.region(region) {
            let region = key.region;
            side.engine.on_command(Command::Ready { region, range });
        }
    }

    /// A region is readable no more; with `wait`, its owner waits until nothing is on its way.
    pub fn unexpose(&mut self, side: usize, region: usize, wait: bool) {
        let side = &mut self.sides[side];
        let Some(RegionKey { region, .. }) = side.region(region) else {
            return;
        };
        if wait {
            let (reply, done) = channel();
            side.withdrawals.push(done);
            side.engine.on_command(Command::Withdraw { region, reply });
        } else {
            side.engine.on_command(Command::Unexpose { region });
        }
    }

    /// A side fetches parts of the other's region; `stale`: with the key of another transport.
    pub fn fetch(&mut self, side: usize, region: usize, parts: &[(u16, u16, u16)], stale: bool) {
        let Some(mut key) = self.sides[1 - side].region(region) else {
            return;
        };
        key.owner ^= u64::from(stale);
        let part = |(src, dst, len): &(u16, u16, u16)| Part {
            src: (*src).into(),
            dst: (*dst).into(),
            len: (*len).into(),
        };
        let parts: Vec<Part> = parts.iter().map(part).collect();
        let me = &mut self.sides[side];
        let Ok(guard) = guard_parts(&key, &parts, &me.target).map(Arc::new) else {
            return;
        };
        self.tickets += 1;
        let (sender, events) = channel();
        let fetch = Fetch {
            ticket: self.tickets,
            arrived: vec![false; parts.len()],
            parts,
            guard,
            events,
            ended: false,
        };
        let command = FetchCommand {
            ticket: fetch.ticket,
            peer: address(1 - side),
            key,
            parts: fetch.parts.clone(),
            into: Arc::clone(&fetch.guard),
            bytes: Arc::new(AtomicU64::new(0)),
            events: sender,
        };
        me.fetches.push(fetch);
        me.engine.on_command(Command::Fetch(command));
    }

    /// A caller wants a fetch no more.
    pub fn cancel(&mut self, side: usize, fetch: usize) {
        let side = &mut self.sides[side];
        let count = side.fetches.len().max(1);
        if let Some(ticket) = side.fetches.get(fetch % count).map(|fetch| fetch.ticket) {
            side.engine.on_command(Command::Cancel { ticket });
        }
    }

    /// A side sends the other a note.
    pub fn notify(&mut self, side: usize) {
        let me = &mut self.sides[side];
        me.told += 1;
        let (reply, done) = channel();
        me.notes.push(done);
        me.engine.on_command(Command::Notify {
            peer: address(1 - side),
            message: me.told.to_le_bytes().to_vec(),
            reply,
        });
    }

    /// A side closes its connections to the other, or a drill troubles them.
    pub fn trouble(&mut self, side: usize, trouble: Option<Trouble>, lasts: Duration) {
        let peer = address(1 - side);
        self.sides[side].engine.on_command(match trouble {
            None => Command::Disconnect { peer },
            Some(trouble) => Command::Impair {
                peer,
                trouble,
                lasts,
            },
        });
    }

    /// A side gets so many of the bytes that are on their way to it on a connection.
    pub fn deliver(&mut self, side: usize, pipe: usize, most: usize) {
        self.network.borrow_mut().deliver(pipe, side, most);
    }

    /// Both sides get all that is on its way, so many times.
    pub fn flow(&mut self, times: usize) {
        for _ in 0..times {
            for side in [0, 1] {
                let pipes = self.network.borrow().pipes.len();
                (0..pipes).for_each(|pipe| self.deliver(side, pipe, usize::MAX));
                self.turn(side);
            }
        }
    }

    /// A connection breaks, as a side sees it.
    pub fn cut(&mut self, side: usize, pipe: usize) {
        self.network.borrow_mut().cut(pipe, side);
    }

    /// A byte changes on its way to a side.
    pub fn spoil(&mut self, side: usize, pipe: usize, byte: usize, by: u8) {
        self.honest = false;
        self.network.borrow_mut().spoil(pipe, side, byte, by);
    }

    /// A side is sent a message of numbers that none of ours sent; `body` takes them from those seen.
    pub fn forge(
        &mut self,
        (side, pipe): (usize, usize),
        kind: u32,
        body: impl FnOnce(&[u64]) -> Vec<u8>,
    ) {
        self.honest = false;
        let mut network = self.network.borrow_mut();
        let body = body(network.seen.make_contiguous());
        let forged = message(MessageKind::from_number(kind), &body);
        network.forge(pipe, side, &forged);
    }

    /// A side is sent a piece of zeros that it may have asked for.
    pub fn forge_piece(&mut self, side: usize, pipe: usize, token: usize, len: usize) {
        self.honest = false;
        let mut network = self.network.borrow_mut();
        let token = network.seen.get(token).copied().unwrap_or(7);
        let forged = [piece(token, len), vec![0; len]].concat();
        network.forge(pipe, side, &forged);
    }

    /// Time goes on for a side, and it looks what is due.
    pub fn pass(&mut self, side: usize, time: Duration) {
        let engine = &mut self.sides[side].engine;
        engine.clock.sleeps(time);
        let now = engine.clock.now() + time;
        engine.clock.look_at(now);
        engine.check_deadlines();
    }

    /// A side's thread does one turn.
    pub fn turn(&mut self, side: usize) {
        if self.network.borrow().pipes.len() > MOST_PIPES {
            return;
        }
        let me = &mut self.sides[side];
        me.engine.turn(&me.queue);
        self.hear(side);
        self.check(side);
    }

    /// Takes what a side's callers are told.
    fn hear(&mut self, side: usize) {
        let honest = self.honest;
        let me = &mut self.sides[side];
        while let Some(note) = me.shared.inbox.try_pop() {
            let number = note.try_into().ok().map(u32::from_le_bytes);
            assert!(!honest || number > me.heard, "notes came out of order");
            me.heard = number;
        }
        for fetch in &mut me.fetches {
            while let Ok(event) = fetch.events.try_recv() {
                assert!(!fetch.ended, "a fetch was answered, and then more was said");
                match event {
                    FetchEvent::Arrived { part, digest, .. } => {
                        assert!(!fetch.arrived[part], "a part arrived twice");
                        fetch.arrived[part] = true;
                        let range = fetch.range(part);
                        let shown = |bytes: &[u8]| bytes.to_vec();
                        let bytes = me.target.show_unlent(range.clone(), shown);
                        assert!(digest.is_none_or(|digest| digest == xxh3_64(&bytes)));
                        let src = fetch.parts[part].src as usize;
                        let sent = (src..src + bytes.len()).map(|at| byte_of(1 - side, at));
                        assert!(!honest || sent.eq(bytes.iter().copied()));
                        me.settled[range].copy_from_slice(&bytes);
                        fetch.guard.arrived(part, |_| ());
                    }
                    FetchEvent::Ended(result) => {
                        fetch.ended = true;
                        let total: u64 = fetch.parts.iter().map(|part| part.len).sum();
                        let all = fetch.arrived.iter().all(|arrived| *arrived);
                        assert!(result.is_err() || result.ok() == Some(total) && all);
                        // Of parts that did not come whole some bytes may be there; they change no more.
                        for part in 0..fetch.parts.len() {
                            if !fetch.arrived[part] {
                                let range = fetch.range(part);
                                let into = &mut me.settled[range.clone()];
                                me.target
                                    .show_unlent(range, |bytes| into.copy_from_slice(bytes));
                            }
                        }
                    }
                }
            }
        }
        // What ended gives its ranges back.
        me.fetches.retain(|fetch| !fetch.ended);
    }

    fn check(&self, side: usize) {
        let me = &self.sides[side];
        let engine = &me.engine;
        let open = |fetch: &Fetch, part: usize| !fetch.arrived[part];
        me.target.show_unlent(0..SIZE, |bytes| {
            let mut may_change: Vec<Range<usize>> = Vec::new();
            for fetch in &me.fetches {
                let parts = (0..fetch.parts.len()).filter(|part| open(fetch, *part));
                may_change.extend(parts.map(|part| fetch.range(part)));
            }
            // Fetches exclude each other, so these are apart; the last one is the end.
            may_change.push(SIZE..SIZE);
            may_change.sort_by_key(|range| (range.start, range.end));
            let mut from = 0;
            for range in may_change {
                let settled = from..range.start.max(from);
                assert!(
                    me.settled[settled.clone()] == bytes[settled],
                    "bytes changed that nobody fetches"
                );
                from = from.max(range.end);
            }
        });
        let same = me.source.show_unlent(0..SIZE, |bytes| me.written == bytes);
        assert!(same, "a source was written to");
        let unproven = |link: &&Link| matches!(link.state, LinkState::Called { .. });
        let unproven = engine.links.values().filter(unproven).count();
        assert!(unproven <= UNPROVEN, "{unproven} callers without a proof");
        for link in engine.links.keys() {
            let waiting = engine.waiting_on(*link);
            assert!(waiting <= serve::PARKED_LIMIT, "{waiting} reads wait");
        }
        for links in engine.by_peer.values() {
            assert!(!links.is_empty(), "a peer is known without a link");
            for link in links {
                let state = engine.state(*link);
                assert!(!matches!(state, None | Some(LinkState::Closing)), "T-7");
            }
        }
        let network = self.network.borrow();
        for (token, asked) in &engine.asked {
            assert!(
                engine.fetches.contains_key(&asked.fetch),
                "asked for nobody"
            );
            assert!(
                network.targets[side].expected(*token).is_some(),
                "no place for a piece"
            );
        }
        for fetch in engine.fetches.values() {
            assert!(
                fetch.asked <= fetch::WINDOW,
                "more is asked for than the window"
            );
        }
        let counted = engine
            .shared
            .counters
            .endpoints_open
            .load(Ordering::Relaxed);
        assert_eq!(counted, engine.links.len() as u64);
        let road = |link: &Link| link.road == RoadKind::Tls;
        assert!(engine.links.values().all(road));
    }

    /// Both sides end: whoever waits is answered, and nothing is left.
    pub fn finish(mut self) {
        // What is on its way still may come, and must change nothing that was answered.
        self.flow(1);
        for side in [0, 1] {
            self.sides[side].engine.begin_stop();
            self.hear(side);
            for _ in 0..3 {
                let me = &mut self.sides[side];
                me.engine.turn(&me.queue);
                self.hear(side);
            }
            self.check(side);
            let me = &self.sides[side];
            assert!(me.engine.is_stopped(), "it does not stop");
            assert!(me.fetches.is_empty(), "a fetch was not answered");
            assert!(me.engine.asked.is_empty() && me.engine.links.is_empty());
            assert!(me.engine.notes.is_empty() && me.engine.ops.is_empty());
            let answered =
                |done: &Receiver<_>| !matches!(done.try_recv(), Err(TryRecvError::Empty));
            assert!(me.notes.iter().all(answered), "a note was not answered");
            let answered = |done: &Receiver<()>| done.try_recv() == Ok(());
            assert!(
                me.withdrawals.iter().all(answered),
                "a withdrawal was not answered"
            );
        }
    }
}
