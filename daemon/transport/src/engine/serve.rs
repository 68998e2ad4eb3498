//! The source's side of a fetch: checks each read against its regions and sends the bytes.
//!
//! ```text
//!  Read ──► refused: no such region, out of bounds, too many waiting
//!    │
//!    ├─ bytes ready ───────────────────────────► Data
//!    └─ not yet ──► parked ──Exposed::ready────► Data
//!                     ├── every quarter of the stall timeout: Wait
//!                     ├── region withdrawn ────► Refusal
//!                     └── Forget, link ended ──► dropped
//! ```
//! Bytes in a device's memory take a detour: see `staged`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::fetch::WINDOW;
use super::link::{Breach, FORGED};
use super::region::{Parked, Region};
use super::wire::{Read, Reason, Refusal, tokens_from_bytes, tokens_to_bytes};
use super::{Engine, OpKind};
use crate::buffer::{Buffer, Served};
use crate::key::RegionKey;
use crate::road::{LinkId, MessageKind, Parcel};

/// Reads of one link that may wait here; more are refused. A puller has one window for each of
/// its fetches, of which at most four are of one source, on two links.
pub(super) const PARKED_LIMIT: usize = 4 * WINDOW;
/// What may be on its way to one puller: what it may wait for, and as much again of each of a few fetches
/// that it gave up. Whoever asks for more takes nothing of what it asks for.
const ANSWERS_LIMIT: usize = 4 * PARKED_LIMIT;
/// A waiting puller hears of us this many times within its stall timeout.
const WAITS_PER_STALL: u32 = 4;

impl Engine {
    pub(super) fn expose(&mut self, buffer: Arc<Buffer>, growing: bool) -> RegionKey {
        // Nobody guesses it: a member of the job reads what it was told of and nothing else.
        let (region, len) = (self.secrets.number(), buffer.len() as u64);
        self.regions.insert(region, Region::new(buffer, growing));
        RegionKey {
            owner: self.owner,
            region,
            len,
        }
    }

    /// Some bytes of a growing region are there: whoever waited for them gets them.
    pub(super) fn on_ready(&mut self, region: u64, range: Range<u64>) {
        let Some(exposed) = self.regions.get_mut(&region) else {
            return;
        };
        let bound = |at: u64| {
            usize::try_from(at)
                .unwrap_or(usize::MAX)
                .min(exposed.buffer.len())
        };
        let range = bound(range.start)..bound(range.end);
        let buffer = Arc::clone(&exposed.buffer);
        for read in exposed.grow(range) {
            self.answer(region, &buffer, read);
        }
    }

    /// The region is readable no more.
    pub(super) fn unexpose(&mut self, region: u64) {
        let Some(mut exposed) = self.regions.remove(&region) else {
            return;
        };
        let parked = exposed.take_parked(|_| true);
        let hungry = self.staged.drop_hungry(|of, _| of == region);
        for read in parked.into_iter().chain(hungry) {
            self.refuse(read.link, read.token, Reason::NotExposed);
        }
    }

    pub(super) fn on_read(
        &mut self,
        link: LinkId,
        session: u64,
        bytes: &[u8],
    ) -> Result<(), Breach> {
        let read = Read::from_bytes(bytes).ok_or(Breach("a read that is none"))?;
        if read.session != session {
            return Err(FORGED);
        }
        let answers = self.ops.values().filter(|kind| kind.link() == link);
        if answers.count() >= ANSWERS_LIMIT {
            return Err(Breach("it asks for more than it takes"));
        }
        self.take_read(link, read);
        Ok(())
    }

    fn take_read(&mut self, link: LinkId, read: Read) {
        let token = read.token;
        let Some(region) = self.regions.get(&read.region) else {
            return self.refuse(link, token, Reason::NotExposed);
        };
        let Some((offset, len)) = in_bounds(&read, region.buffer.len()) else {
            return self.refuse(link, token, Reason::OutOfBounds);
        };
        let read_here = Parked {
            link,
            token,
            offset,
            len,
        };
        if region.is_ready(&read_here.range()) {
            let buffer = Arc::clone(&region.buffer);
            return self.answer(read.region, &buffer, read_here);
        }
        if self.waiting_on(link) >= PARKED_LIMIT {
            return self.refuse(link, token, Reason::TooManyWaiting);
        }
        self.will_wait();
        if let Some(region) = self.regions.get_mut(&read.region) {
            region.park(read_here);
        }
    }

    /// The puller gave these reads up.
    pub(super) fn on_forget(&mut self, link: LinkId, bytes: &[u8]) -> Result<(), Breach> {
        let tokens = tokens_from_bytes(bytes).ok_or(Breach("it forgets nothing"))?;
        let forgotten = |read: &Parked| read.link == link && tokens.contains(&read.token);
        for region in self.regions.values_mut() {
            region.take_parked(forgotten);
        }
        self.staged.drop_hungry(|_, read| forgotten(read));
        Ok(())
    }

    /// The link ended, and with it its reads.
    pub(super) fn drop_parked(&mut self, link: LinkId) {
        for region in self.regions.values_mut() {
            region.take_parked(|read| read.link == link);
        }
        self.staged.drop_hungry(|_, read| read.link == link);
    }

    /// Tells every waiting puller that it waits for bytes, not for a stopped process, if that is due;
    /// whether it was.
    pub(super) fn send_waits(&mut self, now: Instant) -> bool {
        if self.next_wait.is_none_or(|at| now < at) {
            return false;
        }
        let mut waiting: BTreeMap<LinkId, Vec<u64>> = BTreeMap::new();
        for read in self.waiting() {
            waiting.entry(read.link).or_default().push(read.token);
        }
        let again = (!waiting.is_empty()).then(|| now + self.wait_interval());
        self.next_wait = again;
        for (link, tokens) in waiting {
            self.send(link, MessageKind::Wait, tokens_to_bytes(&tokens));
        }
        true
    }

    fn wait_interval(&self) -> std::time::Duration {
        self.config.stall_timeout / WAITS_PER_STALL
    }

    /// Somebody waits from now on, and will be told so.
    pub(super) fn will_wait(&mut self) {
        if self.next_wait.is_none() {
            self.next_wait = Some(self.clock.now() + self.wait_interval());
        }
    }

    /// Reads that wait here: for their bytes, or for a block.
    fn waiting(&self) -> impl Iterator<Item = &Parked> {
        let parked = self.regions.values().flat_map(|region| region.parked());
        parked.chain(self.staged.hungry())
    }

    pub(super) fn waiting_on(&self, link: LinkId) -> usize {
        self.waiting().filter(|read| read.link == link).count()
    }

    /// Answers a read that was held up, if its region is still there.
    pub(super) fn answer_now(&mut self, region: u64, read: Parked) {
        match self.regions.get(&region).map(|r| Arc::clone(&r.buffer)) {
            Some(buffer) => self.answer(region, &buffer, read),
            None => self.refuse(read.link, read.token, Reason::NotExposed),
        }
    }

    fn answer(&mut self, region: u64, buffer: &Arc<Buffer>, read: Parked) {
        if self.hold_data(region, read) {
            return;
        }
        if let Some(device) = buffer.device() {
            return self.answer_staged(region, device.clone(), read);
        }
        if !self.is_open(read.link) {
            return;
        }
        let Ok(served) = Served::of(buffer, read.range()) else {
            // It is written to: its owner withdraws it first, and is late with that or wrong.
            return self.refuse(read.link, read.token, Reason::NotExposed);
        };
        let piece = Parcel::Piece(read.token, served);
        let op = self.roads.send(read.link, piece);
        let link = read.link;
        self.ops.insert(op, OpKind::Data { link, region });
    }

    pub(super) fn refuse(&mut self, link: LinkId, token: u64, reason: Reason) {
        let refusal = Refusal { token, reason };
        self.send(link, MessageKind::Refusal, refusal.to_bytes());
    }
}

fn in_bounds(read: &Read, len: usize) -> Option<(usize, usize)> {
    let offset = usize::try_from(read.offset).ok()?;
    let wanted = usize::try_from(read.len).ok()?;
    let end = offset.checked_add(wanted)?;
    (end <= len).then_some((offset, wanted))
}
