//! Regions that are withdrawn while their bytes are still on the way to readers.
//!
//! ```text
//!  Withdraw ──► refused from now on ──none on the way──────────────► answered
//!                     └── some are ──the last one ended──────────────► answered
//!                                  └─quarter of the stall timeout: links closed by force, which ends them
//! ```

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::link::LinkEnd;
use super::{Engine, OpKind};
use crate::road::LinkId;

/// Readers get this part of the stall timeout to take what they asked for.
const PART_OF_STALL: u32 = 4;

/// Whoever withdrew a region and waits.
pub(super) struct Withdrawal {
    region: u64,
    since: Instant,
    reply: Sender<()>,
}

impl Engine {
    pub(super) fn withdraw(&mut self, region: u64, reply: Sender<()>) {
        self.unexpose(region);
        let since = self.clock.now();
        self.withdrawals.push(Withdrawal {
            region,
            since,
            reply,
        });
        self.answer_withdrawals();
    }

    /// Some bytes of a region are no longer on the way.
    pub(super) fn answer_withdrawals(&mut self) {
        let (ops, staged) = (&self.ops, &self.staged);
        // What was copied into a block is not the region's any more.
        let sent = |w: &Withdrawal| {
            !ops.values().any(|kind| kind.carries(w.region)) && !staged.copies(w.region)
        };
        for done in self.withdrawals.extract_if(.., |w| sent(w)) {
            // The owner may have ended.
            let _ = done.reply.send(());
        }
    }

    /// Links that hold a withdrawal up, and until when they may.
    pub(super) fn held_up(&self) -> impl Iterator<Item = (LinkId, Instant, LinkEnd)> + '_ {
        let grace: Duration = self.config.stall_timeout / PART_OF_STALL;
        let of = move |w: &'_ Withdrawal| {
            let (region, at) = (w.region, w.since + grace);
            let links = self.ops.values().filter(move |kind| kind.carries(region));
            links
                .filter(|kind| self.is_open(kind.link()))
                .map(move |kind| (kind.link(), at, LinkEnd::Stalled))
        };
        self.withdrawals.iter().flat_map(of)
    }
}

impl OpKind {
    /// Whether it sends bytes of this region.
    fn carries(self, of: u64) -> bool {
        matches!(self, OpKind::Data { region, .. } if region == of)
    }
}
