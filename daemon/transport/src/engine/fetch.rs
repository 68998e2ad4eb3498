//! The puller's side of a fetch: reads of bounded size, some of them under way at a time.
//!
//! ```text
//!  Waiting ──link open──► Running ──last chunk here──► ended Ok
//!     │                      │ refused, link ended
//!     └──── link ended ──────┴──► ended Err
//! ```
//! A fetch that ends takes back its expectations first: chunks still under way are dropped when
//! they arrive, and its caller may do with the buffer what it likes (T-1).

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::link::{LinkEnd, LinkState};
use super::wire::{Read, Refusal};
use super::{Engine, OpKind};
use crate::buffer::FetchGuard;
use crate::command::{FetchCommand, FetchEvent};
use crate::error::FetchError;
use crate::key::{Part, RegionKey};
use crate::stats::Counters;
use crate::ucx::{DATA_HEADER_BYTES, LinkId, MessageKind};

/// A chunk and UCX's and our headers fill one TCP segment (1 MiB, see `config`): it is then
/// received in one piece and copied once.
const CHUNK_BYTES: u64 = (1 << 19) - DATA_HEADER_BYTES as u64;
/// Chunks under way per fetch: 8 MiB cover the bandwidth-delay product of what we run on.
const WINDOW: usize = 16;

pub(super) struct Fetch {
    peer: SocketAddr,
    link: LinkId,
    key: RegionKey,
    parts: Cursor,
    under_way: usize,
    started: bool,
    done: u64,
    total: u64,
    last_progress: Instant,
    into: FetchGuard,
    events: Sender<FetchEvent>,
}

/// A read that was sent.
pub(super) struct Chunk {
    fetch: u64,
    bytes: u64,
}

/// Walks the parts in pieces of at most [`CHUNK_BYTES`].
struct Cursor {
    parts: Vec<Part>,
    index: usize,
    offset: u64,
}

impl Cursor {
    fn next(&mut self) -> Option<Part> {
        let part = self.parts.get(self.index)?;
        let piece = Part {
            src: part.src + self.offset,
            dst: part.dst + self.offset,
            len: (part.len - self.offset).min(CHUNK_BYTES),
        };
        self.offset += piece.len;
        if self.offset == part.len {
            (self.index, self.offset) = (self.index + 1, 0);
        }
        Some(piece)
    }
}

impl Engine {
    pub(super) fn begin_fetch(&mut self, command: FetchCommand) {
        let FetchCommand {
            peer,
            key,
            parts,
            into,
            events,
        } = command;
        let total = parts.iter().map(|part| part.len).sum();
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
        let id = self.new_id();
        let fetch = Fetch {
            peer,
            link,
            key,
            parts: Cursor {
                parts,
                index: 0,
                offset: 0,
            },
            under_way: 0,
            started: false,
            done: 0,
            total,
            last_progress: self.clock.now(),
            into,
            events,
        };
        self.fetches.insert(id, fetch);
        if self.is_open(link) {
            self.start_fetch(id);
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
        let Some(link) = self.links.get(&fetch.link) else {
            return;
        };
        let LinkState::Open { owner, .. } = &link.state else {
            return;
        };
        (fetch.started, fetch.last_progress) = (true, now);
        if *owner == fetch.key.owner {
            self.fill_window(id);
        } else {
            let error = FetchError::StaleKey { peer: fetch.peer };
            self.end_fetch(id, Some(error));
        }
    }

    /// Asks for chunks up to the window, and ends the fetch if none is left.
    fn fill_window(&mut self, id: u64) {
        while let Some(fetch) = self.fetches.get_mut(&id)
            && fetch.under_way < WINDOW
            && let Some(piece) = fetch.parts.next()
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

    fn ask(&mut self, id: u64, piece: Part) {
        let token = self.new_id();
        let Some(fetch) = self.fetches.get(&id) else {
            return;
        };
        let (link, region) = (fetch.link, fetch.key.region);
        // Bounded by a buffer in this process, so both fit a usize.
        let range = (piece.dst as usize, piece.len as usize);
        self.worker.expect(token, fetch.into.buffer(), range);
        self.chunks.insert(
            token,
            Chunk {
                fetch: id,
                bytes: piece.len,
            },
        );
        let read = Read {
            token,
            region,
            offset: piece.src,
            len: piece.len,
        }
        .to_bytes();
        if let Some(op) = self.send_on(link, MessageKind::Read, read) {
            self.ops.insert(op, OpKind::Send { link });
        }
    }

    pub(super) fn on_arrived(&mut self, token: u64, fits: bool) {
        let now = self.clock.now();
        let Some(chunk) = self.chunks.remove(&token) else {
            return;
        };
        let Some(fetch) = self.fetches.get_mut(&chunk.fetch) else {
            return;
        };
        fetch.under_way -= 1;
        if !fits {
            let (peer, reason) = (fetch.peer, "it sent a chunk of another length");
            return self.end_fetch(chunk.fetch, Some(FetchError::Refused { peer, reason }));
        }
        fetch.done += chunk.bytes;
        fetch.last_progress = now;
        Counters::add(&self.shared.counters.bytes_fetched, chunk.bytes);
        // Fails if the caller panicked in its callback: the fetch goes on to its end.
        let _ = fetch.events.send(FetchEvent::Progress(fetch.done));
        self.fill_window(chunk.fetch);
    }

    pub(super) fn on_refusal(&mut self, bytes: &[u8]) {
        let Some(Refusal { token, reason }) = Refusal::from_bytes(bytes) else {
            return;
        };
        let Some(chunk) = self.chunks.get(&token) else {
            return;
        };
        let id = chunk.fetch;
        let Some(fetch) = self.fetches.get(&id) else {
            return;
        };
        let error = FetchError::Refused {
            peer: fetch.peer,
            reason: reason.text(),
        };
        self.end_fetch(id, Some(error));
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
                LinkEnd::Failed(_) | LinkEnd::ConnectTimeout => FetchError::Connect {
                    peer,
                    reason: end.text(true),
                },
            };
            self.end_fetch(id, Some(error));
        }
    }

    fn end_fetch(&mut self, id: u64, failure: Option<FetchError>) {
        let Some(fetch) = self.fetches.remove(&id) else {
            return;
        };
        if failure.is_some() {
            self.count_error();
            self.chunks.retain(|token, chunk| {
                let other = chunk.fetch != id;
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
