//! The puller's side of a fetch: reads of bounded size, some of them under way at a time.
//!
//! ```text
//!  Waiting ──link open──► Running ──last piece here──► ended Ok
//!     │                      │ refused, link ended
//!     └──── link ended ──────┴──► ended Err
//! ```
//! A fetch that ends takes back its expectations first: pieces still under way are dropped when
//! they arrive, and its caller may do with the buffer what it likes (T-1). Where the buffer is on a
//! device, see `landing`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::Sender;
use std::time::Instant;

use robust_device::Purpose;

use super::Engine;
use super::landing::Ask;
use super::link::{Breach, LinkEnd, LinkState};
use super::piece::{Cursor, Piece};
use super::wire::Read;
use crate::address::Address;
use crate::buffer::{Buffer, FetchGuard};
use crate::command::{FetchCommand, FetchEvent};
use crate::error::FetchError;
use crate::key::RegionKey;
use crate::road::{Landing, LinkId, MessageKind};

/// Pieces under way per fetch: 8 MiB cover the bandwidth-delay product of what we run on.
pub(super) const WINDOW: usize = 8;

pub(super) struct Fetch {
    pub peer: Address,
    pub link: LinkId,
    key: RegionKey,
    pieces: Cursor,
    /// Bytes of each part that have not arrived.
    pub left: Vec<u64>,
    /// Pieces that the source owes.
    pub asked: usize,
    /// Pieces that are here and on their way to a device.
    pub landing: usize,
    /// Pieces that were given up, to be asked for again before any other.
    pub again: VecDeque<Piece>,
    /// Cleared when the fetch ends: copies that have not begun are not made.
    pub wanted: Arc<AtomicBool>,
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

impl Fetch {
    pub fn buffer(&self) -> &Arc<Buffer> {
        self.into.buffer()
    }

    /// Where the next piece goes; none if that is a block of staging, and none is free.
    fn landing(&self) -> Option<Landing> {
        let buffer = self.buffer();
        match buffer.device() {
            None => Some(Landing::Buffer(Arc::clone(buffer))),
            Some(device) => device.staging.take(Purpose::Fetch).map(Landing::Block),
        }
    }

    fn has_more(&mut self) -> bool {
        !self.again.is_empty() || self.pieces.has_more()
    }

    fn next_piece(&mut self) -> Option<Piece> {
        self.again.pop_front().or_else(|| self.pieces.next())
    }

    fn is_complete(&mut self) -> bool {
        self.asked + self.landing == 0 && !self.has_more()
    }

    /// Tells the caller how it ended.
    pub fn answer(self, result: Result<u64, FetchError>) {
        // Before the answer, so that the caller finds its buffer free.
        drop(self.into);
        let _ = self.events.send(FetchEvent::Ended(result));
    }
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
        let link = match self.link_for_fetch(peer) {
            Ok(link) => link,
            Err(failure) => {
                self.count_error();
                drop(into);
                let error = FetchError::Connect {
                    peer,
                    reason: failure.text(),
                };
                let _ = events.send(FetchEvent::Ended(Err(error)));
                return;
            }
        };
        // Nothing will be written into an empty part.
        for (part, _) in left.iter().enumerate().filter(|(_, left)| **left == 0) {
            let (digest, road) = (None, None);
            let _ = events.send(FetchEvent::Arrived { part, digest, road });
        }
        let fetch = Fetch {
            peer,
            link,
            key,
            pieces: Cursor::new(parts),
            left,
            asked: 0,
            landing: 0,
            again: VecDeque::new(),
            wanted: Arc::new(AtomicBool::new(true)),
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
            Some(_) => {
                self.end_fetch(id, Some(FetchError::StaleKey { peer }));
                // Should the key be newer than the link, whose peer then died without a word, the next
                // fetch connects anew.
                if self.is_unused(link) {
                    self.end_link(link, LinkEnd::Disconnected);
                }
            }
            None => {}
        }
    }

    /// Asks for pieces up to the window, and ends the fetch if none is left.
    pub(super) fn fill_window(&mut self, id: u64) {
        match self.fetches.get(&id) {
            Some(fetch) if fetch.buffer().device().is_some() => self.starve(id),
            _ => while self.ask_next(id) == Ask::Asked {},
        }
        if self.fetches.get_mut(&id).is_some_and(Fetch::is_complete) {
            self.end_fetch(id, None);
        }
    }

    /// Asks for the next piece, if the window and the place where it would go allow.
    pub(super) fn ask_next(&mut self, id: u64) -> Ask {
        let Some(fetch) = self.fetches.get_mut(&id) else {
            return Ask::Enough;
        };
        if fetch.asked + fetch.landing >= WINDOW || !fetch.has_more() {
            return Ask::Enough;
        }
        let (link, region) = (fetch.link, fetch.key.region);
        let Some(LinkState::Open { agreed }) = self.links.get(&link).map(|link| &link.state) else {
            return Ask::Enough;
        };
        let Some(landing) = fetch.landing() else {
            return Ask::NoBlock;
        };
        let Some(piece) = fetch.next_piece() else {
            return Ask::Enough;
        };
        if fetch.asked == 0 {
            // The source owed nothing until now.
            fetch.last_progress = self.clock.now();
        }
        fetch.asked += 1;
        let token = self.secrets.number();
        let read = Read {
            session: agreed.session,
            token,
            region,
            offset: piece.src,
            len: piece.len,
        };
        self.roads.expect(token, piece.target(landing));
        self.asked.insert(token, Asked { fetch: id, piece });
        self.send(link, MessageKind::Read, read.to_bytes());
        Ask::Asked
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
                LinkEnd::Failed(failure) if !connecting => FetchError::Peer {
                    peer,
                    reason: failure.text(),
                    done,
                },
                LinkEnd::Unbelieved => {
                    let reason = end.text(connecting);
                    FetchError::Peer { peer, reason, done }
                }
                LinkEnd::Breach(Breach(what)) if !connecting => FetchError::Breach { peer, what },
                LinkEnd::Failed(_)
                | LinkEnd::Breach(_)
                | LinkEnd::ConnectTimeout
                | LinkEnd::Cut => {
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
        let done = fetch.done;
        if let Some(failure) = &failure {
            if !matches!(failure, FetchError::Cancelled) {
                self.count_error();
            }
            self.asked.retain(|token, asked| {
                let other = asked.fetch != id;
                if !other {
                    self.roads.unexpect(*token);
                }
                other
            });
        }
        self.leave(id, fetch, failure.map_or(Ok(done), Err));
    }

    pub(super) fn fetches_on(&self, link: LinkId) -> Vec<u64> {
        let on = self.fetches.iter().filter(|(_, fetch)| fetch.link == link);
        on.map(|(id, _)| *id).collect()
    }

    /// Links whose peers owe a fetch bytes, and since when each has waited for one.
    pub(super) fn running_fetches(&self) -> impl Iterator<Item = (LinkId, Instant)> + '_ {
        let owed = |fetch: &&Fetch| fetch.started && fetch.asked > 0;
        let running = self.fetches.values().filter(owed);
        running.map(|fetch| (fetch.link, fetch.last_progress))
    }
}
