//! Links: one per peer that we call, one per peer that calls us.
//!
//! ```text
//!  ours:    connect ──Hello──► Connecting ──Welcome──► Open ──┐ error, stall,
//!                                   │ too late, refused       │ disconnect, stop
//!  theirs:  accept ──────────────────────────────────► Open ──┤
//!                                   └──────────────────────► Closing ──all ops ended──► gone
//! ```
//! Happy path: the first fetch or notify for a peer makes a link, queues on it until the peer's
//! Welcome, and later ones find it by the peer's address. A link that leaves `Open` leaves that
//! cache in the same step (T-7), so the next caller connects anew.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::wire::Handshake;
use super::{Engine, OpKind};
use crate::stats::Counters;
use crate::ucx::{ConnRequest, Endpoint, LinkId, MessageKind, OpId, ReplyTo, Status};

pub(super) struct Link {
    /// Whom we called; none for those who called us.
    pub peer: Option<SocketAddr>,
    pub state: LinkState,
}

pub(super) enum LinkState {
    Connecting {
        endpoint: Endpoint,
        deadline: Instant,
    },
    Open {
        endpoint: Endpoint,
        owner: u64,
    },
    Closing,
}

/// Why a link ended; told to everyone who was using it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkEnd {
    Failed(Status),
    ConnectTimeout,
    Stalled,
    Disconnected,
    Shutdown,
}

impl LinkEnd {
    /// The reason in words, for errors without a variant of their own.
    pub fn text(self, connecting: bool) -> String {
        match self {
            LinkEnd::Failed(status) if connecting => format!("refused: {}", status.text()),
            LinkEnd::Failed(status) => status.text(),
            LinkEnd::ConnectTimeout => "no answer within the time allowed".into(),
            LinkEnd::Stalled => "it made no progress".into(),
            LinkEnd::Disconnected => "disconnected on request".into(),
            LinkEnd::Shutdown => "the transport is shut down".into(),
        }
    }
}

impl Engine {
    /// The link to `peer`, made if there is none.
    pub(super) fn link_to(&mut self, peer: SocketAddr) -> Result<LinkId, Status> {
        if let Some(link) = self.by_peer.get(&peer) {
            return Ok(*link);
        }
        let id = self.new_id();
        let endpoint = self.worker.connect(peer, id)?;
        let hello = Handshake {
            token: id,
            owner: self.owner,
        }
        .to_bytes();
        let op = self.worker.send(&endpoint, MessageKind::Hello, hello);
        self.ops.insert(op, OpKind::Send { link: id });
        let deadline = self.clock.now() + self.config.connect_timeout;
        let state = LinkState::Connecting { endpoint, deadline };
        self.add_link(
            id,
            Link {
                peer: Some(peer),
                state,
            },
        );
        self.by_peer.insert(peer, id);
        Ok(id)
    }

    pub(super) fn on_connect_request(&mut self, request: ConnRequest) {
        if self.stopping.is_some() {
            return self.worker.reject(request);
        }
        let id = self.new_id();
        match self.worker.accept(request, id) {
            // Their owner number is of no use: regions are read only over links of our own.
            Ok(endpoint) => {
                let state = LinkState::Open { endpoint, owner: 0 };
                self.add_link(id, Link { peer: None, state });
            }
            Err(status) => {
                tracing::warn!(status = status.text(), "accepting a peer failed");
                self.count_error();
            }
        }
    }

    pub(super) fn on_message(&mut self, kind: MessageKind, bytes: Vec<u8>, from: Option<ReplyTo>) {
        match kind {
            MessageKind::Note => {
                Counters::add(&self.shared.counters.messages_received, 1);
                if !self.shared.inbox.push(bytes) {
                    tracing::warn!("inbox full: a message was dropped");
                    self.count_error();
                }
            }
            MessageKind::Hello => self.on_hello(&bytes, from),
            MessageKind::Welcome => self.on_welcome(&bytes),
            MessageKind::Read => self.on_read(&bytes, from),
            MessageKind::Refusal => self.on_refusal(&bytes),
            // Handled where it arrives.
            MessageKind::Data => {}
        }
    }

    fn on_hello(&mut self, bytes: &[u8], from: Option<ReplyTo>) {
        let (Some(hello), Some(from)) = (Handshake::from_bytes(bytes), from) else {
            return;
        };
        let Some((link, endpoint)) = find_link(&self.links, from) else {
            return;
        };
        let welcome = Handshake {
            token: hello.token,
            owner: self.owner,
        }
        .to_bytes();
        let op = self.worker.send(endpoint, MessageKind::Welcome, welcome);
        self.ops.insert(op, OpKind::Send { link });
    }

    fn on_welcome(&mut self, bytes: &[u8]) {
        let Some(welcome) = Handshake::from_bytes(bytes) else {
            return;
        };
        let id = welcome.token;
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        // Anything but `Connecting`: an answer that came after we gave up.
        match std::mem::replace(&mut link.state, LinkState::Closing) {
            LinkState::Connecting { endpoint, .. } => {
                link.state = LinkState::Open {
                    endpoint,
                    owner: welcome.owner,
                };
                self.start_notes(id);
                self.start_fetches(id);
            }
            other => link.state = other,
        }
    }

    /// Takes a link out of use: out of the cache, closed by force, its users failed. Idempotent: the first reason counts.
    pub(super) fn end_link(&mut self, id: LinkId, end: LinkEnd) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let (endpoint, connecting) = match std::mem::replace(&mut link.state, LinkState::Closing) {
            LinkState::Connecting { endpoint, .. } => (endpoint, true),
            LinkState::Open { endpoint, .. } => (endpoint, false),
            LinkState::Closing => return,
        };
        if let Some(peer) = link.peer {
            self.by_peer.remove(&peer);
            if !matches!(end, LinkEnd::Disconnected | LinkEnd::Shutdown) {
                tracing::debug!(%peer, reason = end.text(connecting), "link ended");
            }
        }
        let op = self.worker.close(endpoint);
        self.ops.insert(op, OpKind::Close { link: id });
        self.fail_notes(id, end, connecting);
        self.fail_fetches(id, end, connecting);
    }

    pub(super) fn on_closed(&mut self, id: LinkId) {
        // Closing by force ends what was under way; should UCX have missed one, ask once more.
        for (op, _) in self.ops.iter().filter(|(_, kind)| kind.link() == id) {
            self.worker.cancel(*op);
        }
        if self.links.remove(&id).is_some() {
            self.shared
                .counters
                .endpoints_open
                .fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Sends on an open link; none if it is not open (any more).
    pub(super) fn send_on(
        &mut self,
        id: LinkId,
        kind: MessageKind,
        bytes: Vec<u8>,
    ) -> Option<OpId> {
        match &self.links.get(&id)?.state {
            LinkState::Open { endpoint, .. } => Some(self.worker.send(endpoint, kind, bytes)),
            _ => None,
        }
    }

    pub(super) fn is_open(&self, id: LinkId) -> bool {
        self.links
            .get(&id)
            .is_some_and(|link| matches!(link.state, LinkState::Open { .. }))
    }

    fn add_link(&mut self, id: LinkId, link: Link) {
        Counters::add(&self.shared.counters.endpoints_open, 1);
        self.links.insert(id, link);
    }
}

/// The open link over which a message came.
pub(super) fn find_link(
    links: &HashMap<LinkId, Link>,
    from: ReplyTo,
) -> Option<(LinkId, &Endpoint)> {
    links.iter().find_map(|(id, link)| match &link.state {
        LinkState::Open { endpoint, .. } if endpoint.is(from) => Some((*id, endpoint)),
        _ => None,
    })
}
