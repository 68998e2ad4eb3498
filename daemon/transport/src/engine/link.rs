//! Links: one or two per peer that we call, and of those that call us.
//!
//! ```text
//!  ours:    connect ──Hello──► Calling ──proved, Ready──► Open ──┐ error, stall, breach,
//!                                 │ too late, stranger           │ disconnect, stop
//!  theirs:  accept ──────────► Called ──proved──────────► Open ──┤
//!                                 └──────────────────────────────┴► Closing ─all ops ended─► gone
//! ```
//! Happy path: the first fetch or notify for a peer makes a link, queues on it until both sides
//! have proved themselves (see `handshake`), and later ones find it by the peer's address. A link
//! that leaves `Open` leaves that cache in the same step (T-7), so the next caller connects anew.
//!
//! A fetch that begins while others of the same peer go on gets a link of its own, up to [`PER_PEER`].
//! On one TCP connection two lanes of a relay that still fills share what that connection believes of
//! the network while it waits for bytes; on two, the second of two relays on shaped links was through
//! 0.1 s after the first instead of 0.8 s.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::handshake::{Agreed, Call, Challenge};
use super::{Engine, OpKind};
use crate::address::Address;
use crate::road::{self, Failure, LinkId, MessageKind, OpId, RoadKind};
use crate::stats::Counters;

/// Links to one peer that fetches at once have made for them; one more may be there where that for notes
/// had to be made anew. Each costs either side a connection with two
/// buffers of UCX's of 1 MiB.
const PER_PEER: usize = 2;

/// Peers that called and have not proved themselves: more are turned away. Each lives at most the
/// connect timeout.
const UNPROVEN_LIMIT: usize = 64;

pub(super) struct Link {
    /// Whom we called; none for those who called us.
    pub peer: Option<Address>,
    /// Where one that called us listens, once its Hello said so.
    pub caller: Option<Address>,
    pub road: RoadKind,
    /// Notes to the peer go over it, and over no other that is here.
    pub for_notes: bool,
    /// When it ends at the latest, because its peer is not believed any more.
    pub until: Option<Instant>,
    pub state: LinkState,
}

pub(super) enum LinkState {
    Calling {
        deadline: Instant,
        call: Call,
    },
    Called {
        deadline: Instant,
        /// Set by its Hello.
        challenge: Option<Challenge>,
    },
    Open {
        agreed: Agreed,
    },
    Closing,
}

/// What a peer did that none of ours does: its link is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Breach(pub &'static str);

/// The session number does not belong to the endpoint that the message names.
pub(super) const FORGED: Breach = Breach("a message that names another's session");

/// Why a link ended; told to everyone who was using it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkEnd {
    Failed(Failure),
    Breach(Breach),
    ConnectTimeout,
    Stalled,
    /// The peer is not believed any more.
    Unbelieved,
    Disconnected,
    /// A drill cut it.
    Cut,
    Shutdown,
}

impl LinkEnd {
    /// The reason in words, for errors without a variant of their own.
    pub fn text(self, connecting: bool) -> String {
        match self {
            LinkEnd::Failed(failure) if connecting => format!("refused: {}", failure.text()),
            LinkEnd::Failed(failure) => failure.text(),
            LinkEnd::Breach(Breach(what)) => what.into(),
            LinkEnd::ConnectTimeout => "no answer within the time allowed".into(),
            LinkEnd::Stalled => "it made no progress".into(),
            LinkEnd::Unbelieved => "its certificate is not believed any more".into(),
            LinkEnd::Disconnected => "disconnected on request".into(),
            LinkEnd::Cut => "cut on request".into(),
            LinkEnd::Shutdown => "the transport is shut down".into(),
        }
    }
}

impl Link {
    /// The transport at the other end, by where it listens.
    pub fn with(&self) -> Option<Address> {
        self.peer.or(self.caller)
    }
}

impl Engine {
    /// The link to `peer` for notes, made if there is none. When it ended its place is not taken by one
    /// that is there already: what was sent on it last may still be on its way, and a note that needs no
    /// handshake might be there first.
    pub(super) fn link_for_notes(&mut self, peer: Address) -> Result<LinkId, Failure> {
        let for_notes = |link: &&LinkId| self.links.get(link).is_some_and(|link| link.for_notes);
        match self.links_to(peer).iter().find(for_notes) {
            Some(link) => Ok(*link),
            None => self.call(peer, true),
        }
    }

    /// The link to `peer` for one more fetch: the first that has none, made if there are not yet so
    /// many; else the one with the fewest.
    pub(super) fn link_for_fetch(&mut self, peer: Address) -> Result<LinkId, Failure> {
        let fetches = |link: &LinkId| self.fetches_on(*link).len();
        let counted = self
            .links_to(peer)
            .iter()
            .map(|link| (fetches(link), *link));
        match counted.min_by_key(|(fetches, _)| *fetches) {
            Some((fetches, link)) if fetches == 0 || self.links_to(peer).len() >= PER_PEER => {
                Ok(link)
            }
            // One more is better, and not needed.
            Some((_, link)) => Ok(self.call(peer, false).unwrap_or(link)),
            None => self.call(peer, true),
        }
    }

    pub(super) fn links_to(&self, peer: Address) -> &[LinkId] {
        self.by_peer.get(&peer).map_or(&[], Vec::as_slice)
    }

    fn call(&mut self, peer: Address, for_notes: bool) -> Result<LinkId, Failure> {
        // Two roads share the time that a peer has to answer.
        let roads = if self.roads.has_another(&peer) { 2 } else { 1 };
        self.call_within(peer, for_notes, self.config.connect_timeout / roads)
    }

    fn call_within(
        &mut self,
        peer: Address,
        for_notes: bool,
        within: Duration,
    ) -> Result<LinkId, Failure> {
        self.is_cut(peer)?;
        let id = self.new_id();
        let now = self.clock.now();
        let road = self.roads.connect(&peer, id, now)?;
        let deadline = now + within;
        let (call, hello) = self.new_call();
        let state = LinkState::Calling { deadline, call };
        self.add_link(id, (Some(peer), road), state);
        self.by_peer.entry(peer).or_default().push(id);
        if let Some(link) = self.links.get_mut(&id) {
            link.for_notes = for_notes;
        }
        self.send(id, MessageKind::Hello, hello);
        match self.state(id) {
            // A drill that holds messages up has no room for this one.
            Some(LinkState::Closing) | None => Err(Failure::Closed),
            Some(_) => Ok(id),
        }
    }

    pub(super) fn on_call(&mut self, call: road::Call) {
        // Of one road: who crowds one that strangers reach keeps nobody off another.
        let road = self.roads.of_call(&call);
        let called = |link: &&Link| {
            Some(link.road) == road && matches!(link.state, LinkState::Called { .. })
        };
        if self.stopping.is_some() || self.links.values().filter(called).count() >= UNPROVEN_LIMIT {
            return self.roads.reject(call);
        }
        let id = self.new_id();
        match self.roads.accept(call, id) {
            Ok(road) => {
                let state = LinkState::Called {
                    deadline: self.clock.now() + self.config.connect_timeout,
                    challenge: None,
                };
                self.add_link(id, (None, road), state);
            }
            Err(failure) => {
                tracing::warn!(reason = failure.text(), "accepting a peer failed");
                self.count_error();
            }
        }
    }

    pub(super) fn on_message(&mut self, id: LinkId, kind: MessageKind, bytes: Vec<u8>) {
        if !self.hold_in(id, kind, &bytes) {
            self.deliver(id, kind, bytes);
        }
    }

    /// Takes a message in its turn.
    pub(super) fn deliver(&mut self, id: LinkId, kind: MessageKind, bytes: Vec<u8>) {
        if let Err(breach) = self.take_message(id, kind, bytes) {
            self.count_refused();
            self.end_link(id, LinkEnd::Breach(breach));
        }
    }

    fn take_message(
        &mut self,
        id: LinkId,
        kind: MessageKind,
        bytes: Vec<u8>,
    ) -> Result<(), Breach> {
        let Some(link) = self.links.get(&id) else {
            return Ok(());
        };
        let ours = link.peer.is_some();
        match (kind, &link.state) {
            (MessageKind::Hello, LinkState::Called { .. }) => self.on_hello(id, &bytes),
            (MessageKind::Prove, LinkState::Called { .. }) => self.on_prove(id, &bytes),
            (MessageKind::Welcome, LinkState::Calling { .. }) => self.on_welcome(id, &bytes),
            (MessageKind::Ready, LinkState::Calling { .. }) => self.on_call_ready(id, &bytes),
            (MessageKind::Note, LinkState::Open { agreed }) if !ours => {
                let session = agreed.session;
                self.on_note(session, &bytes)
            }
            (MessageKind::Read, LinkState::Open { agreed }) if !ours => {
                let session = agreed.session;
                self.on_read(id, session, &bytes)
            }
            (MessageKind::Forget, LinkState::Open { .. }) if !ours => self.on_forget(id, &bytes),
            (MessageKind::Refusal, LinkState::Open { .. }) if ours => self.on_refusal(id, &bytes),
            (MessageKind::Wait, LinkState::Open { .. }) if ours => self.on_wait(id, &bytes),
            // Gone already, and with it whatever this was about.
            (_, LinkState::Closing) => Ok(()),
            (_, LinkState::Open { .. }) => Err(Breach("a message that does not belong there")),
            (_, _) => Err(Breach("a message before it proved itself")),
        }
    }

    /// Takes a link out of use: out of the cache, closed by force, its users failed. Idempotent:
    /// the first reason counts.
    pub(super) fn end_link(&mut self, id: LinkId, end: LinkEnd) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let connecting = match std::mem::replace(&mut link.state, LinkState::Closing) {
            LinkState::Calling { .. } | LinkState::Called { .. } => true,
            LinkState::Open { .. } => false,
            LinkState::Closing => return,
        };
        let peer = link.peer;
        self.uncache(id);
        log_end(peer, end, connecting);
        if let (Some(peer), true, LinkEnd::Failed(_) | LinkEnd::ConnectTimeout) =
            (peer, connecting, end)
        {
            self.call_otherwise(id, peer);
        }
        let op = self.roads.close(id);
        self.ops.insert(op, OpKind::Close { link: id });
        self.fail_notes(id, end, connecting);
        self.fail_fetches(id, end, connecting);
        self.drop_parked(id);
        self.end_idle(peer, end);
    }

    /// A road did not lead to a peer: whoever waits on that link goes on waiting on one of another road, if
    /// there is one.
    fn call_otherwise(&mut self, id: LinkId, peer: Address) {
        let for_notes = self.links.get(&id).is_some_and(|link| link.for_notes);
        let another = self.roads.try_another(id, &peer, self.clock.now());
        if !another || self.is_unused(id) {
            return;
        }
        let within = self.config.connect_timeout / 2;
        let Ok(other) = self.call_within(peer, for_notes, within) else {
            return;
        };
        for fetch in self.fetches.values_mut().filter(|fetch| fetch.link == id) {
            fetch.link = other;
        }
        for note in self.notes.values_mut().filter(|note| note.link == id) {
            note.link = other;
        }
    }

    /// A peer that failed on one link is not to be waited for once more on another: whoever is next
    /// connects anew. Where something is under way, that tells.
    fn end_idle(&mut self, peer: Option<Address>, end: LinkEnd) {
        let (Some(peer), LinkEnd::Stalled | LinkEnd::Failed(_)) = (peer, end) else {
            return;
        };
        let others = self.links_to(peer).iter().copied();
        let idle = others.filter(|link| self.is_unused(*link));
        for link in idle.collect::<Vec<_>>() {
            self.end_link(link, end);
        }
    }

    /// Whether nothing of ours is under way on a link that we called.
    pub(super) fn is_unused(&self, link: LinkId) -> bool {
        self.fetches_on(link).is_empty() && self.notes.values().all(|note| note.link != link)
    }

    pub(super) fn on_closed(&mut self, id: LinkId) {
        // Closing by force ends what was under way; should its road have missed one, ask once more.
        for (op, _) in self.ops.iter().filter(|(_, kind)| kind.link() == id) {
            self.roads.cancel(*op);
        }
        self.roads.forget(id);
        if self.links.remove(&id).is_some() {
            self.shared
                .counters
                .endpoints_open
                .fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Sends on a link; nothing happens if it is closing, for then its users know.
    pub(super) fn send(&mut self, id: LinkId, kind: MessageKind, bytes: Vec<u8>) {
        if self.hold_out(id, kind, &bytes) {
            return;
        }
        if let Some(op) = self.start_send(id, kind, bytes) {
            self.ops.insert(op, OpKind::Send { link: id });
        }
    }

    /// Sends on a link that is not closing.
    pub(super) fn start_send(
        &mut self,
        id: LinkId,
        kind: MessageKind,
        bytes: Vec<u8>,
    ) -> Option<OpId> {
        let open = !matches!(self.links.get(&id)?.state, LinkState::Closing);
        open.then(|| self.roads.send_message(id, kind, bytes))
    }

    /// Both sides have proved themselves.
    pub(super) fn open(&mut self, id: LinkId, agreed: Agreed) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if !matches!(link.state, LinkState::Closing) {
            link.state = LinkState::Open { agreed };
        }
    }

    pub(super) fn state(&self, id: LinkId) -> Option<&LinkState> {
        Some(&self.links.get(&id)?.state)
    }

    pub(super) fn state_mut(&mut self, id: LinkId) -> Option<&mut LinkState> {
        Some(&mut self.links.get_mut(&id)?.state)
    }

    pub(super) fn agreed(&self, id: LinkId) -> Option<Agreed> {
        match self.state(id)? {
            LinkState::Open { agreed } => Some(*agreed),
            _ => None,
        }
    }

    pub(super) fn is_open(&self, id: LinkId) -> bool {
        self.agreed(id).is_some()
    }

    fn add_link(
        &mut self,
        id: LinkId,
        (peer, road): (Option<Address>, RoadKind),
        state: LinkState,
    ) {
        Counters::add(&self.shared.counters.endpoints_open, 1);
        let caller = None;
        self.links.insert(
            id,
            Link {
                peer,
                caller,
                road,
                for_notes: false,
                until: None,
                state,
            },
        );
    }
}

/// A breach is worth a warning, for none of ours does such a thing; the rest its users hear of.
fn log_end(peer: Option<Address>, end: LinkEnd, connecting: bool) {
    match (end, peer) {
        (LinkEnd::Breach(Breach(what)), peer) => tracing::warn!(?peer, what, "link closed"),
        (LinkEnd::Disconnected | LinkEnd::Shutdown, _) | (_, None) => {}
        (_, Some(peer)) => tracing::debug!(%peer, reason = end.text(connecting), "link ended"),
    }
}
