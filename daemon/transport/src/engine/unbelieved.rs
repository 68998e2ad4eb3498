//! Links whose peer is not believed any more: the authority that certified it was dropped, or its
//! certificate is over. Most are those of members that have another one by now.
//!
//! ```text
//!  Unbelieved ──► out of the cache: whoever calls next makes a new link ──nothing is under way──► closed
//!                                          └── something is ────────────────── [`GRACE`] over ──► closed
//! ```

use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use super::link::LinkEnd;
use super::{Engine, OpKind};
use crate::road::LinkId;

/// What is under way may end: a pull that is cut would be held against a source that did nothing wrong.
const GRACE: Duration = Duration::from_secs(10);

impl Engine {
    pub(super) fn on_unbelieved(&mut self, id: LinkId) {
        let until = self.clock.now() + GRACE;
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.until.get_or_insert(until);
        let peer = link.peer;
        self.uncache(id);
        tracing::info!(?peer, "a link's certificate is not believed any more");
    }

    /// No call finds this link any more.
    pub(super) fn uncache(&mut self, id: LinkId) {
        let peer = self.links.get(&id).and_then(|link| link.peer);
        if let Some(peer) = peer
            && let Entry::Occupied(mut links) = self.by_peer.entry(peer)
        {
            links.get_mut().retain(|link| *link != id);
            if links.get().is_empty() {
                links.remove();
            }
        }
    }

    /// Links that are to end for that, and when.
    pub(super) fn unbelieved(&self) -> impl Iterator<Item = (LinkId, Instant, LinkEnd)> + '_ {
        let ending = self.links.iter();
        ending.filter_map(|(id, link)| {
            let until = link.until.filter(|_| self.is_open(*id))?;
            let at = match self.is_idle(*id) {
                true => self.clock.now(),
                false => until,
            };
            Some((*id, at, LinkEnd::Unbelieved))
        })
    }

    /// Whether nothing is under way on a link, of ours or of the peer's.
    fn is_idle(&self, id: LinkId) -> bool {
        let of_link = |kind: &&OpKind| kind.link() == id;
        self.is_unused(id)
            && self.waiting_on(id) == 0
            && self.ops.values().filter(of_link).count() == 0
    }
}
