//! Regions in a device's memory: a read's bytes pass through a pinned block on their way out.
//!
//! ```text
//!  ready Read ──a block is free──► copied down ──► Data ──taken by the puller──► block free again
//!     └─ none ──► hungry ──► (as above, oldest first)             │
//!                   ├── every quarter of the stall timeout: Wait   └─ not taken for a stall timeout
//!                   ├── region withdrawn ──► Refusal                  while others are hungry:
//!                   └── Forget, link ended ──► dropped                link closed by force
//! ```
//! So a puller that is stopped in the middle holds blocks only as long as nobody else needs them.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use robust_device::{BLOCK_BYTES, Block, Copied, Copy, Purpose, Way};

use super::copies::CopyEnd;
use super::link::LinkEnd;
use super::region::Parked;
use super::serve::PARKED_LIMIT;
use super::wire::Reason;
use super::{Engine, OpKind};
use crate::buffer::OnDevice;
use crate::road::{LinkId, Parcel};

/// Reads of device memory.
#[derive(Default)]
pub(super) struct Staged {
    /// Those for which there is no block, oldest first.
    hungry: VecDeque<Hungry>,
    /// Those whose bytes are being copied.
    down: HashMap<u64, (u64, Parked)>,
}

/// A read that waits for a block.
struct Hungry {
    region: u64,
    from: OnDevice,
    read: Parked,
}

impl Staged {
    /// Reads that wait for a block.
    pub fn hungry(&self) -> impl Iterator<Item = &Parked> {
        self.hungry.iter().map(|hungry| &hungry.read)
    }

    /// Takes out the waiting reads for which `which` holds.
    pub fn drop_hungry(&mut self, which: impl Fn(u64, &Parked) -> bool) -> Vec<Parked> {
        let (out, left) = std::mem::take(&mut self.hungry)
            .into_iter()
            .partition(|hungry| which(hungry.region, &hungry.read));
        self.hungry = left;
        let out: VecDeque<Hungry> = out;
        out.into_iter().map(|hungry| hungry.read).collect()
    }

    /// Whether a region's memory is being copied from.
    pub fn copies(&self, of: u64) -> bool {
        self.down.values().any(|(region, _)| *region == of)
    }
}

impl Engine {
    /// A read whose bytes are ready, on a device.
    pub(super) fn answer_staged(&mut self, region: u64, from: OnDevice, read: Parked) {
        if read.len > BLOCK_BYTES {
            return self.refuse(read.link, read.token, Reason::TooLong);
        }
        if self.staged.hungry.is_empty()
            && let Some(block) = from.staging.take(Purpose::Serve)
        {
            return self.copy_down(region, &from, read, block);
        }
        if self.waiting_on(read.link) >= PARKED_LIMIT {
            return self.refuse(read.link, read.token, Reason::TooManyWaiting);
        }
        self.will_wait();
        let hungry = Hungry { region, from, read };
        self.staged.hungry.push_back(hungry);
    }

    /// Blocks may have become free.
    pub(super) fn feed_hungry(&mut self) {
        while let Some(first) = self.staged.hungry.front()
            && let Some(block) = first.from.staging.take(Purpose::Serve)
            && let Some(Hungry { region, from, read }) = self.staged.hungry.pop_front()
        {
            self.copy_down(region, &from, read, block);
        }
    }

    fn copy_down(&mut self, region: u64, from: &OnDevice, read: Parked, block: Block) {
        let id = self.new_id();
        self.staged.down.insert(id, (region, read));
        let told = self.copies.begin();
        from.staging.start(Copy {
            way: Way::Down,
            block,
            memory: from.memory.clone(),
            range: read.range(),
            wanted: Box::new(|| true),
            done: Box::new(move |block, copied| told.tell(CopyEnd::Down { id, block, copied })),
        });
    }

    /// The bytes of a read are in a block, or could not be copied.
    pub(super) fn on_down(&mut self, id: u64, block: Block, copied: Copied) {
        let Some((_, read)) = self.staged.down.remove(&id) else {
            return;
        };
        match copied {
            Copied::Done => self.send_block(read, block),
            Copied::Failed(error) => {
                tracing::error!(%error, "a peer's read of device memory failed");
                self.count_error();
                self.refuse(read.link, read.token, Reason::Unreadable);
            }
            Copied::Skipped => {}
        }
        self.answer_withdrawals();
    }

    fn send_block(&mut self, read: Parked, block: Block) {
        if !self.is_open(read.link) {
            return;
        }
        let block = Parcel::Block(read.token, block, read.len);
        let op = self.roads.send(read.link, block);
        let (link, since) = (read.link, self.clock.now());
        self.ops.insert(op, OpKind::Block { link, since });
    }

    /// Links that keep blocks while others are hungry, and until when they may.
    pub(super) fn hogs(&self) -> impl Iterator<Item = (LinkId, Instant, LinkEnd)> + '_ {
        let patience = self.config.stall_timeout;
        let of = move |kind: &OpKind| match kind {
            OpKind::Block { link, since } if self.is_open(*link) => {
                Some((*link, *since + patience, LinkEnd::Stalled))
            }
            _ => None,
        };
        let ops = (!self.staged.hungry.is_empty()).then(|| self.ops.values().filter_map(of));
        ops.into_iter().flatten()
    }

    /// Where the copies' thread tells how a copy ended.
    pub(super) fn on_copied(&mut self, end: CopyEnd) {
        self.copies.ended();
        match end {
            CopyEnd::Down { id, block, copied } => self.on_down(id, block, copied),
            CopyEnd::Up {
                fetch,
                piece,
                copied,
            } => self.on_landed(fetch, &piece, copied),
        }
    }

    /// Blocks may have become free: whoever waits for one gets it.
    pub(super) fn feed(&mut self) {
        self.feed_hungry();
        self.feed_starving();
    }
}
