//! The puller's side of a fetch: reads of bounded size, some of them under way at a time.
//!
//! ```text
//!  Waiting ──link open──► Running ──last piece here──► ended Ok
//!     │                      │ refused, link ended
//!     └──── link ended ──────┴──► ended Err
//! ```
//! A fetch that ends takes back its expectations first: pieces still under way are dropped when
//! they arrive, and its caller may do with the buffer what it likes (T-1).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::Engine;
use super::link::{Breach, LinkEnd};
use super::piece::{Cursor, Piece};
use super::wire::Read;
use crate::buffer::FetchGuard;
use crate::command::{FetchCommand, FetchEvent};
use crate::error::FetchError;
use crate::key::RegionKey;
use crate::ucx::{LinkId, MessageKind};

/// Pieces under way per fetch: 8 MiB cover the bandwidth-delay product of what we run on.
pub(super) const WINDOW: usize = 16;

pub(super) struct Fetch {
    pub peer: SocketAddr,
    pub link: LinkId,
    key: RegionKey,
    pieces: Cursor,
    /// Bytes of each part that have not arrived.
    pub left: Vec<u64>,
    pub under_way: usize,
    started: bool,
    pub done: u64,
    total: u64,
    /// The last sign of life: bytes, or word that they are waited for.
    pub last_progress: Instant,
    into: Arc<FetchGuard>,
    pub bytes: Arc<AtomicU64>,
    pub events: Sender<FetchEvent>,
}

/// A read that was sent.
pub(super) struct Asked {
    pub fetch: u64,
    pub piece: Piece,
}

impl Engine {
    pub(super) fn begin_fetch(&mut self, command: FetchCommand) {
        let FetchCommand {
            ticket,
            peer,
            key,
            parts,
            into,
            bytes,
            events,
        } = command;
        let left: Vec<u64> = parts.iter().map(|part| part.len).collect();
        let total = left.iter().sum();
        let link = match self.link_to(peer) {
            Ok(link) => link,
            Err(status) => {
                self.count_error();
                drop(into);
                let error = FetchError::Connect {
                    peer,
                    reason: status.text(),
                };
                let _ = events.send(FetchEvent::Ended(Err(error)));
                return;
            }
        };
        // Nothing will be written into an empty part.
        for (part, _) in left.iter().enumerate().filter(|(_, left)| **left == 0) {
            let _ = events.send(FetchEvent::Arrived { part, digest: None });
        }
        let fetch = Fetch {
            peer,
            link,
            key,
            pieces: Cursor::new(parts),
            left,
            under_way: 0,
            started: false,
            done: 0,
            total,
            last_progress: self.clock.now(),
            into,
            bytes,
            events,
        };
        self.fetches.insert(ticket, fetch);
        if self.is_open(link) {
            self.start_fetch(ticket);
        }
    }

    /// The link opened: those who waited for it begin.
    pub(super) fn start_fetches(&mut self, link: LinkId) {
        for id in self.fetches_on(link) {
            self.start_fetch(id);
        }
    }

    fn start_fetch(&mut self, id: u64) {
        let now = self.clock.now();
        let Some(fetch) = self.fetches.get_mut(&id) else {
            return;
        };
        (fetch.started, fetch.last_progress) = (true, now);
        let (link, peer, owner) = (fetch.link, fetch.peer, fetch.key.owner);
        match self.agreed(link) {
            Some(agreed) if agreed.owner == owner => self.fill_window(id),
            Some(_) => self.end_fetch(id, Some(FetchError::StaleKey { peer })),
            None => {}
        }
    }

    /// Asks for pieces up to the window, and ends the fetch if none is left.
    pub(super) fn fill_window(&mut self, id: u64) {
        while let Some(fetch) = self.fetches.get_mut(&id)
            && fetch.under_way < WINDOW
            && let Some(piece) = fetch.pieces.next()
        {
            fetch.under_way += 1;
            self.ask(id, piece);
        }
        if self
            .fetches
            .get(&id)
            .is_some_and(|fetch| fetch.under_way == 0)
        {
            self.end_fetch(id, None);
        }
    }

    fn ask(&mut self, id: u64, piece: Piece) {
        let Some(fetch) = self.fetches.get(&id) else {
            return;
        };
        let (link, region) = (fetch.link, fetch.key.region);
        let Some(agreed) = self.agreed(link) else {
            return;
        };
        let token = self.secrets.number();
        let target = piece.target(Arc::clone(fetch.into.buffer()));
        self.worker.expect(token, target);
        let read = Read {
            session: agreed.session,
            token,
            region,
            offset: piece.src,
            len: piece.len,
        };
        self.asked.insert(token, Asked { fetch: id, piece });
        self.send(link, MessageKind::Read, read.to_bytes());
    }

    /// The link ended, and with it the fetches on it.
    pub(super) fn fail_fetches(&mut self, link: LinkId, end: LinkEnd, connecting: bool) {
        let after = self.config.stall_timeout;
        for id in self.fetches_on(link) {
            let Some(fetch) = self.fetches.get(&id) else {
                continue;
            };
            let (peer, done, total) = (fetch.peer, fetch.done, fetch.total);
            let error = match end {
                LinkEnd::Disconnected => FetchError::Disconnected { peer },
                LinkEnd::Shutdown => FetchError::Shutdown,
                LinkEnd::Stalled => FetchError::Stalled {
                    peer,
                    after,
                    done,
                    total,
                },
                LinkEnd::Failed(status) if !connecting => FetchError::Peer {
                    peer,
                    status: status.0,
                    text: status.text(),
                    done,
                },
                LinkEnd::Breach(Breach(what)) if !connecting => FetchError::Breach { peer, what },
                LinkEnd::Failed(_) | LinkEnd::Breach(_) | LinkEnd::ConnectTimeout => {
                    let reason = end.text(true);
                    FetchError::Connect { peer, reason }
                }
            };
            self.end_fetch(id, Some(error));
        }
    }

    pub(super) fn end_fetch(&mut self, id: u64, failure: Option<FetchError>) {
        let Some(fetch) = self.fetches.remove(&id) else {
            return;
        };
        if let Some(failure) = &failure {
            if !matches!(failure, FetchError::Cancelled) {
                self.count_error();
            }
            self.asked.retain(|token, asked| {
                let other = asked.fetch != id;
                if !other {
                    self.worker.unexpect(*token);
                }
                other
            });
        }
        // Before the answer, so that the caller finds its buffer free.
        drop(fetch.into);
        let result = failure.map_or(Ok(fetch.done), Err);
        let _ = fetch.events.send(FetchEvent::Ended(result));
    }

    fn fetches_on(&self, link: LinkId) -> Vec<u64> {
        let on = self.fetches.iter().filter(|(_, fetch)| fetch.link == link);
        on.map(|(id, _)| *id).collect()
    }

    /// Links with fetches under way, and since when each has waited for a byte.
    pub(super) fn running_fetches(&self) -> impl Iterator<Item = (LinkId, Instant)> + '_ {
        let running = self.fetches.values().filter(|fetch| fetch.started);
        running.map(|fetch| (fetch.link, fetch.last_progress))
    }
}
