//! Trouble on the way to one peer, made on request: what a drill of the network needs.
//!
//! ```text
//!  Stall ──► held: what is to be sent to it, and what came from it ──time is up──► goes on in order
//!               └── links that waited too long meanwhile end as on a network that stopped
//!  Cut ────► links to it and from it closed by force, new ones refused ──time is up──► may call again
//! ```
//! Both directions are troubled here, so one end suffices. A peer that called is known by the
//! address that its Hello names. Bytes that were asked for before a stall arrive, as what is on the
//! wire does; whatever it would take to get more is held.

use std::time::{Duration, Instant};

use super::Engine;
use super::link::LinkEnd;
use super::region::Parked;
use crate::address::Address;
use crate::command::Trouble;
use crate::road::{Failure, LinkId, MessageKind};

/// Messages held for one peer; one that sends more loses its links (T-5).
const HELD_LIMIT: usize = 4096;

/// A peer with which nothing works for a while.
pub(super) struct Impaired {
    peer: Address,
    trouble: Trouble,
    until: Instant,
    held: Vec<Held>,
}

/// What waits for the end of a stall.
enum Held {
    /// Came from the peer.
    In(LinkId, MessageKind, Vec<u8>),
    /// Goes to it.
    Out(LinkId, MessageKind, Vec<u8>),
    /// Bytes that it asked for.
    Data { region: u64, read: Parked },
}

impl Engine {
    /// From now on, for so long. Another trouble with the same peer takes the place of the first.
    pub(super) fn impair(&mut self, peer: Address, trouble: Trouble, lasts: Duration) {
        self.clock.look();
        let peer = peer.canonical();
        self.relieve(|impaired| impaired.peer == peer);
        tracing::warn!(%peer, ?trouble, ?lasts, "trouble on request");
        if !lasts.is_zero() {
            let (until, held) = (self.clock.now() + lasts, Vec::new());
            self.impaired.push(Impaired {
                peer,
                trouble,
                until,
                held,
            });
        }
        if trouble == Trouble::Cut {
            self.end_links_with(peer);
        }
    }

    /// Ends the troubles whose time is up; whether there were any.
    pub(super) fn relieve_due(&mut self, now: Instant) -> bool {
        self.relieve(|impaired| impaired.until <= now)
    }

    /// When the next one ends.
    pub(super) fn next_relief(&self) -> Option<Instant> {
        self.impaired.iter().map(|impaired| impaired.until).min()
    }

    /// Whether nobody may call this peer.
    pub(super) fn is_cut(&self, peer: Address) -> Result<(), Failure> {
        match self.trouble_with(peer) {
            Some((Trouble::Cut, _)) => Err(Failure::Cut),
            _ => Ok(()),
        }
    }

    /// A peer that called says where it listens.
    pub(super) fn name_caller(&mut self, id: LinkId, listens: Address) {
        if let Some(link) = self.links.get_mut(&id) {
            link.caller = Some(listens);
        }
        if self.is_cut(listens).is_err() {
            self.end_link(id, LinkEnd::Cut);
        }
    }

    /// Whether a message that came waits; then it was taken.
    pub(super) fn hold_in(&mut self, id: LinkId, kind: MessageKind, bytes: &[u8]) -> bool {
        self.hold(id, || Held::In(id, kind, bytes.to_vec()))
    }

    /// The same of a message that is to be sent. That somebody waits here is word of life, and of
    /// that there is none.
    pub(super) fn hold_out(&mut self, id: LinkId, kind: MessageKind, bytes: &[u8]) -> bool {
        match kind {
            MessageKind::Wait => self.stall_of(id).is_some(),
            _ => self.hold(id, || Held::Out(id, kind, bytes.to_vec())),
        }
    }

    /// The same of bytes that are to be sent.
    pub(super) fn hold_data(&mut self, region: u64, read: Parked) -> bool {
        self.hold(read.link, || Held::Data { region, read })
    }

    fn hold(&mut self, id: LinkId, held: impl FnOnce() -> Held) -> bool {
        let Some(at) = self.stall_of(id) else {
            return false;
        };
        let impaired = &mut self.impaired[at];
        if impaired.held.len() < HELD_LIMIT {
            impaired.held.push(held());
        } else {
            let peer = impaired.peer;
            self.end_links_with(peer);
        }
        true
    }

    /// Which stall a link suffers from.
    fn stall_of(&self, id: LinkId) -> Option<usize> {
        if self.impaired.is_empty() {
            return None;
        }
        let peer = self.links.get(&id)?.with()?;
        let (trouble, at) = self.trouble_with(peer)?;
        (trouble == Trouble::Stall).then_some(at)
    }

    fn trouble_with(&self, peer: Address) -> Option<(Trouble, usize)> {
        let peer = peer.canonical();
        let at = self.impaired.iter().position(|i| i.peer == peer)?;
        Some((self.impaired[at].trouble, at))
    }

    fn relieve(&mut self, which: impl Fn(&Impaired) -> bool) -> bool {
        let over: Vec<Impaired> = self.impaired.extract_if(.., |i| which(i)).collect();
        let any = !over.is_empty();
        for held in over.into_iter().flat_map(|impaired| impaired.held) {
            match held {
                Held::In(link, kind, bytes) => self.deliver(link, kind, bytes),
                Held::Out(link, kind, bytes) => self.send(link, kind, bytes),
                Held::Data { region, read } => self.answer_now(region, read),
            }
        }
        any
    }

    fn end_links_with(&mut self, peer: Address) {
        let with = |link: &super::link::Link| link.with().map(Address::canonical) == Some(peer);
        let links = self.links.iter().filter(|(_, link)| with(link));
        for link in links.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_link(link, LinkEnd::Cut);
        }
    }
}
