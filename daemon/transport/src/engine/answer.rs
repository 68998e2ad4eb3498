//! What a source answers to a fetch, and what a fetch's own caller takes back.

use std::sync::atomic::Ordering;

use robust_device::Block;

use super::Engine;
use super::fetch::Asked;
use super::link::{Breach, LinkEnd};
use super::piece::Piece;
use super::wire::{Refusal, tokens_from_bytes, tokens_to_bytes};
use crate::command::FetchEvent;
use crate::error::FetchError;
use crate::road::{LinkId, MessageKind};
use crate::stats::Counters;

impl Engine {
    pub(super) fn on_arrived(&mut self, token: u64, fits: bool, block: Option<Block>) {
        let now = self.clock.now();
        let Some(Asked { fetch: id, piece }) = self.asked.remove(&token) else {
            return;
        };
        let Some(fetch) = self.fetches.get_mut(&id) else {
            return;
        };
        fetch.asked -= 1;
        let link = fetch.link;
        if !fits {
            let breach = Breach("it sent another number of bytes than asked for");
            return self.end_link(link, LinkEnd::Breach(breach));
        }
        // Of all fetches on that link: the source answers in order, so the others' bytes come behind.
        for fetch in self.fetches.values_mut().filter(|f| f.link == link) {
            fetch.last_progress = now;
        }
        match block {
            Some(block) => self.copy_up(id, piece, block),
            None => self.count_piece(id, &piece),
        }
    }

    /// A piece is in its place.
    pub(super) fn count_piece(&mut self, id: u64, piece: &Piece) {
        let Some(fetch) = self.fetches.get_mut(&id) else {
            return;
        };
        fetch.done += piece.len;
        Counters::add(&self.shared.counters.bytes_fetched, piece.len);
        fetch.bytes.fetch_add(piece.len, Ordering::Relaxed);
        fetch.left[piece.part] -= piece.len;
        if fetch.left[piece.part] == 0 {
            // Fails if the caller panicked in its callback: then it also cancelled.
            let (part, digest) = (piece.part, piece.part_digest());
            let road = self.links.get(&fetch.link).map(|link| link.road);
            let _ = fetch
                .events
                .send(FetchEvent::Arrived { part, digest, road });
        }
        self.fill_window(id);
    }

    /// The source lives and waits for these bytes itself: not its fault.
    pub(super) fn on_wait(&mut self, link: LinkId, bytes: &[u8]) -> Result<(), Breach> {
        let now = self.clock.now();
        let tokens = tokens_from_bytes(bytes).ok_or(Breach("a wait for nothing"))?;
        for token in &tokens {
            let fetch = self.asked.get(token).map(|asked| asked.fetch);
            if let Some(fetch) = fetch.and_then(|id| self.fetches.get_mut(&id))
                && fetch.link == link
            {
                fetch.last_progress = now;
            }
        }
        self.lend_blocks(link, &tokens);
        Ok(())
    }

    /// Its caller does not want it any more.
    pub(super) fn cancel_fetch(&mut self, id: u64) {
        self.abandon(id, FetchError::Cancelled);
    }

    /// Ends a fetch for a reason of our own. The link stays; the source is told, so that nothing
    /// waits there in vain.
    pub(super) fn abandon(&mut self, id: u64, error: FetchError) {
        let Some(link) = self.fetches.get(&id).map(|fetch| fetch.link) else {
            return;
        };
        let under_way = self.asked.iter().filter(|(_, asked)| asked.fetch == id);
        let tokens: Vec<u64> = under_way.map(|(token, _)| *token).collect();
        if !tokens.is_empty() {
            self.send(link, MessageKind::Forget, tokens_to_bytes(&tokens));
        }
        self.end_fetch(id, Some(error));
    }

    pub(super) fn on_refusal(&mut self, link: LinkId, bytes: &[u8]) -> Result<(), Breach> {
        let refusal = Refusal::from_bytes(bytes).ok_or(Breach("a refusal that is none"))?;
        let asked = self.asked.get(&refusal.token);
        // Not there: given up meanwhile.
        let Some((id, fetch)) =
            asked.and_then(|asked| Some((asked.fetch, self.fetches.get(&asked.fetch)?)))
        else {
            return Ok(());
        };
        if fetch.link != link {
            return Err(Breach("a refusal of another's read"));
        }
        let (peer, reason) = (fetch.peer, refusal.reason.text());
        self.abandon(id, FetchError::Refused { peer, reason });
        Ok(())
    }
}
