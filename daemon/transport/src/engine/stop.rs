//! The end of a transport: every link closed, and its roads given back or leaked.

use std::time::{Duration, Instant};

use super::Engine;
use super::link::LinkEnd;
use crate::road::Happened;

/// How long stopping waits for the roads to end what was under way.
const STOP_LIMIT: Duration = Duration::from_secs(2);

impl Engine {
    pub(super) fn begin_stop(&mut self) {
        self.stopping = Some(Instant::now() + STOP_LIMIT);
        for link in self.links.keys().copied().collect::<Vec<_>>() {
            self.end_link(link, LinkEnd::Shutdown);
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        let Some(limit) = self.stopping else {
            return false;
        };
        let idle = self.roads.pending() == 0 && self.copies.under_way() == 0;
        (self.links.is_empty() && idle) || Instant::now() >= limit
    }

    /// How long stopping still waits; none if nobody asked for it.
    pub(super) fn until_stopped(&self) -> Option<Duration> {
        let limit = self.stopping?;
        Some(limit.saturating_duration_since(Instant::now()))
    }

    /// Releases the roads; what they have not ended is leaked rather than pulled from under them.
    pub(super) fn finish(mut self) {
        for happened in self.roads.take_events() {
            if let Happened::Called(call) = happened {
                self.roads.reject(call);
            }
        }
        self.roads.stop_listening();
        if self.roads.pending() > 0 || !self.links.is_empty() {
            tracing::error!(
                pending = self.roads.pending(),
                "a road did not stop; leaking it"
            );
            std::mem::forget(self);
        }
    }
}
