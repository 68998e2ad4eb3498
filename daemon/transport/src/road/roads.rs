//! The roads of one transport: which one leads to a peer, and which one a link goes over.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::{Armed, CallId, Event, Failure, LinkId, MessageKind, OpId, Parcel, Road, RoadKind};
use super::{Target, Targets};
use crate::address::Address;

/// A fabric may be mended, and a peer that stood still goes on.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// All roads, the best one first.
pub(crate) struct Roads {
    all: Vec<Box<dyn Road>>,
    targets: Targets,
    /// By link that is not closed: an index into `all`.
    of_link: HashMap<LinkId, usize>,
    /// By operation under way.
    of_op: HashMap<OpId, usize>,
    next_op: OpId,
    /// Roads that should lead to a peer and did not, and until when that is believed.
    dead_ends: HashMap<(Address, usize), Instant>,
}

/// A call that is neither taken nor refused, and the road that it came on.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    road: usize,
    call: CallId,
}

/// What happened on any road.
pub(crate) enum Happened {
    /// Somebody calls.
    Called(Call),
    /// Anything else.
    Other(Event),
}

impl Roads {
    /// The best one first; their pieces go where `targets` says.
    pub fn new(all: Vec<Box<dyn Road>>, targets: Targets) -> Roads {
        Roads {
            all,
            targets,
            of_link: HashMap::new(),
            of_op: HashMap::new(),
            next_op: 1,
            dead_ends: HashMap::new(),
        }
    }

    /// Begins to connect on the best road that leads there.
    pub fn connect(
        &mut self,
        peer: &Address,
        link: LinkId,
        now: Instant,
    ) -> Result<RoadKind, Failure> {
        self.dead_ends.retain(|_, until| now < *until);
        let (at, road) = self
            .best(peer)
            .and_then(|at| Some((at, self.all.get_mut(at)?)))
            .ok_or(Failure::NoRoad)?;
        road.connect(peer, link)?;
        self.of_link.insert(link, at);
        Ok(road.kind())
    }

    fn best(&self, peer: &Address) -> Option<usize> {
        let believed = |at: usize| !self.dead_ends.contains_key(&(*peer, at));
        let mut roads = self.all.iter().enumerate();
        roads.position(|(at, road)| believed(at) && road.reaches(peer))
    }

    /// Whether the best road to a peer may be a dead end, and another one leads there, too.
    pub fn has_another(&self, peer: &Address) -> bool {
        self.best(peer)
            .is_some_and(|at| self.leads_besides(at, peer))
    }

    /// Whether this road may be a dead end, and a later one leads to the peer.
    fn leads_besides(&self, at: usize, peer: &Address) -> bool {
        let mut roads = self.all.iter().skip(at);
        let doubtful = roads.next().is_some_and(|road| road.may_be_a_dead_end());
        doubtful && roads.any(|road| road.reaches(peer))
    }

    /// A link to a peer did not come about. Where its road may be a dead end and another one leads there, that
    /// one is taken from now on, for a while, and this says so.
    pub fn try_another(&mut self, link: LinkId, peer: &Address, now: Instant) -> bool {
        let here = self.of_link.get(&link).copied();
        let Some(at) = here.filter(|at| self.leads_besides(*at, peer)) else {
            return false;
        };
        self.dead_ends.insert((*peer, at), now + FORGOTTEN_AFTER);
        true
    }

    /// The road that somebody calls on.
    pub fn of_call(&self, call: &Call) -> Option<RoadKind> {
        self.all.get(call.road).map(|road| road.kind())
    }

    /// Takes a call.
    pub fn accept(&mut self, call: Call, link: LinkId) -> Result<RoadKind, Failure> {
        let road = self.all.get_mut(call.road).ok_or(Failure::NoRoad)?;
        road.accept(call.call, link)?;
        self.of_link.insert(link, call.road);
        Ok(road.kind())
    }

    /// Refuses a call.
    pub fn reject(&mut self, call: Call) {
        if let Some(road) = self.all.get_mut(call.road) {
            road.reject(call.call);
        }
    }

    /// Sends on a link that is not closed.
    pub fn send(&mut self, link: LinkId, parcel: Parcel) -> OpId {
        self.start(link, |road, op| road.send(link, op, parcel))
    }

    /// Sends a message of its own bytes.
    pub fn send_message(&mut self, link: LinkId, kind: MessageKind, bytes: Vec<u8>) -> OpId {
        self.send(link, Parcel::Message(kind, bytes))
    }

    /// Closes a link by force.
    pub fn close(&mut self, link: LinkId) -> OpId {
        self.start(link, |road, op| road.close(link, op))
    }

    fn start(&mut self, link: LinkId, start: impl FnOnce(&mut dyn Road, OpId)) -> OpId {
        let op = self.next_op;
        self.next_op += 1;
        let at = self.of_link.get(&link).copied();
        if let Some((at, road)) = at.and_then(|at| Some((at, self.all.get_mut(at)?))) {
            self.of_op.insert(op, at);
            start(road.as_mut(), op);
        }
        op
    }

    /// A link is gone, all its operations have ended.
    pub fn forget(&mut self, link: LinkId) {
        self.of_link.remove(&link);
    }

    /// Gives up an operation that closing its link did not end.
    pub fn cancel(&mut self, op: OpId) {
        let at = self.of_op.get(&op).copied();
        if let Some(road) = at.and_then(|at| self.all.get_mut(at)) {
            road.cancel(op);
        }
    }

    /// Where the bytes of the read `token` are to go.
    pub fn expect(&self, token: u64, target: Target) {
        self.targets.expect(token, target);
    }

    /// The read `token` is no longer wanted.
    pub fn unexpect(&self, token: u64) {
        self.targets.unexpect(token);
    }

    /// Lets every road work once; true if anything moved.
    pub fn progress(&mut self) -> bool {
        let moved = |moved, road: &mut Box<dyn Road>| road.progress() | moved;
        self.all.iter_mut().fold(false, moved)
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<Happened> {
        let mut all = Vec::new();
        for (at, road) in self.all.iter_mut().enumerate() {
            for event in road.take_events() {
                match event {
                    Event::Called(call) => all.push(Happened::Called(Call { road: at, call })),
                    Event::OpDone { op, .. } => {
                        self.of_op.remove(&op);
                        all.push(Happened::Other(event));
                    }
                    event => all.push(Happened::Other(event)),
                }
            }
        }
        all
    }

    /// Prepares for sleeping on [`Roads::wakes`].
    pub fn arm(&mut self) -> Result<Armed, Failure> {
        for road in &mut self.all {
            if road.arm()? == Armed::Busy {
                return Ok(Armed::Busy);
            }
        }
        Ok(Armed::Yes)
    }

    /// When a road wants [`Roads::progress`] though nothing came.
    pub fn due(&self) -> Option<Instant> {
        self.all.iter().filter_map(|road| road.due()).min()
    }

    /// Readable when a road wants [`Roads::progress`].
    pub fn wakes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.all.iter().map(|road| road.wakes())
    }

    /// Ends listening.
    pub fn stop_listening(&mut self) {
        self.all.iter_mut().for_each(|road| road.stop_listening());
    }

    /// Operations that have not ended.
    pub fn pending(&self) -> usize {
        self.all.iter().map(|road| road.pending()).sum()
    }
}
