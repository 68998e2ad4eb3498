//! What a source answers to a fetch, and what a fetch's own caller takes back.

use std::sync::atomic::Ordering;

use super::Engine;
use super::fetch::Asked;
use super::link::{Breach, LinkEnd};
use super::wire::{Refusal, tokens_from_bytes, tokens_to_bytes};
use crate::command::FetchEvent;
use crate::error::FetchError;
use crate::stats::Counters;
use crate::ucx::{LinkId, MessageKind};

impl Engine {
    pub(super) fn on_arrived(&mut self, token: u64, fits: bool) {
        let now = self.clock.now();
        let Some(Asked { fetch: id, piece }) = self.asked.remove(&token) else {
            return;
        };
        let Some(fetch) = self.fetches.get_mut(&id) else {
            return;
        };
        fetch.under_way -= 1;
        if !fits {
            let breach = Breach("it sent another number of bytes than asked for");
            let link = fetch.link;
            return self.end_link(link, LinkEnd::Breach(breach));
        }
        fetch.done += piece.len;
        fetch.last_progress = now;
        Counters::add(&self.shared.counters.bytes_fetched, piece.len);
        fetch.bytes.fetch_add(piece.len, Ordering::Relaxed);
        fetch.left[piece.part] -= piece.len;
        if fetch.left[piece.part] == 0 {
            // Fails if the caller panicked in its callback: then it also cancelled.
            let (part, digest) = (piece.part, piece.part_digest());
            let _ = fetch.events.send(FetchEvent::Arrived { part, digest });
        }
        self.fill_window(id);
    }

    /// The source lives and waits for these bytes itself: not its fault.
    pub(super) fn on_wait(&mut self, link: LinkId, bytes: &[u8]) -> Result<(), Breach> {
        let now = self.clock.now();
        for token in tokens_from_bytes(bytes).ok_or(Breach("a wait for nothing"))? {
            let fetch = self.asked.get(&token).map(|asked| asked.fetch);
            if let Some(fetch) = fetch.and_then(|id| self.fetches.get_mut(&id))
                && fetch.link == link
            {
                fetch.last_progress = now;
            }
        }
        Ok(())
    }

    /// Its caller does not want it any more. The link stays; the source is told, so that nothing
    /// waits there in vain.
    pub(super) fn cancel_fetch(&mut self, id: u64) {
        let Some(link) = self.fetches.get(&id).map(|fetch| fetch.link) else {
            return;
        };
        let under_way = self.asked.iter().filter(|(_, asked)| asked.fetch == id);
        let tokens: Vec<u64> = under_way.map(|(token, _)| *token).collect();
        if !tokens.is_empty() {
            self.send(link, MessageKind::Forget, tokens_to_bytes(&tokens));
        }
        self.end_fetch(id, Some(FetchError::Cancelled));
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
        self.end_fetch(id, Some(FetchError::Refused { peer, reason }));
        Ok(())
    }
}
