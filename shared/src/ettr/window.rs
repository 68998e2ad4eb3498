//! What each of the last seconds counted, for sliding means.
use crate::changed::Changed;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Microseconds in a second.
pub(super) const SECOND: u64 = 1_000_000;
/// Whole seconds kept: the history's 300 values each look back 300 s.
const KEPT_SECONDS: u64 = 601;

/// So many seconds are written down together.
pub(super) const CHUNK: usize = 16;

/// Counted microseconds within each whole second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    /// Oldest first; the last is of second `bucket_end - 1`.
    buckets: VecDeque<f64>,
    bucket_end: u64,
    /// Which times of [`CHUNK`] seconds are to be written down again.
    #[serde(skip)]
    changed: Changed<u64>,
}

/// The seconds that a window has: so many, before that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ends {
    seconds: u32,
    end: u64,
}

impl Window {
    /// Counts the time from `from` to `to`, which may lie before what was counted already.
    pub(super) fn add(&mut self, from: Time, to: Time, value: f64) {
        let (mut at, end) = (from.0, to.0);
        if self.bucket_end == 0 {
            self.bucket_end = at / SECOND;
        }
        // A window that was left alone for longer than it keeps starts with empty buckets.
        let horizon = (end / SECOND).saturating_sub(KEPT_SECONDS);
        if horizon > self.bucket_end {
            self.changed.note_all(self.chunks());
            self.buckets.clear();
            self.bucket_end = horizon;
        }
        let oldest = horizon.max(self.bucket_end.saturating_sub(KEPT_SECONDS));
        at = at.max(oldest * SECOND);
        while at < end && self.first() > at / SECOND {
            self.buckets.push_front(0.0);
            // It may have been written down before, when it was another's.
            self.changed.note(self.first() / CHUNK as u64);
        }
        while at < end {
            let second = at / SECOND;
            let until = ((second + 1) * SECOND).min(end);
            while self.bucket_end <= second {
                self.buckets.push_back(0.0);
                self.bucket_end += 1;
            }
            while self.buckets.len() as u64 > KEPT_SECONDS {
                // What is left of a chunk is right as it was written down.
                let gone = self.first();
                if (gone + 1).is_multiple_of(CHUNK as u64) {
                    self.changed.note(gone / CHUNK as u64);
                }
                self.buckets.pop_front();
            }
            let slot = usize::try_from(second.saturating_sub(self.first())).unwrap_or(usize::MAX);
            if let Some(bucket) = self.buckets.get_mut(slot) {
                *bucket += (until - at) as f64 * value;
                self.changed.note(second / CHUNK as u64);
            }
            at = until;
        }
    }

    /// What the seconds from the one that holds `begin` to the one before `end` counted, in
    /// microseconds.
    pub(super) fn sum(&self, begin: u64, end: u64) -> f64 {
        let index = |second: u64| {
            let at = usize::try_from(second.saturating_sub(self.first())).unwrap_or(usize::MAX);
            at.min(self.buckets.len())
        };
        let (from, to) = (index(begin / SECOND), index(end.div_ceil(SECOND)));
        match from < to {
            true => self.buckets.range(from..to).sum(),
            false => 0.0,
        }
    }

    /// The seconds that it has.
    pub(super) fn ends(&self) -> Ends {
        Ends {
            seconds: u32::try_from(self.buckets.len()).unwrap_or(u32::MAX),
            end: self.bucket_end,
        }
    }

    /// The chunks that it has seconds of.
    pub(super) fn chunks(&self) -> std::ops::Range<u64> {
        self.first() / CHUNK as u64..self.bucket_end.div_ceil(CHUNK as u64)
    }

    /// What the seconds of a chunk counted; none where it has none of them, or all counted nothing.
    pub(super) fn chunk(&self, chunk: u64) -> Option<[f64; CHUNK]> {
        let mut seconds = [0.0; CHUNK];
        for (second, counted) in (chunk * CHUNK as u64..).zip(&mut seconds) {
            let at = second.checked_sub(self.first());
            let bucket = at.and_then(|at| self.buckets.get(usize::try_from(at).ok()?));
            *counted = bucket.copied().unwrap_or_default();
        }
        (seconds != [0.0; CHUNK]).then_some(seconds)
    }

    /// Makes it have these seconds, which counted nothing; none: no window ever had them.
    pub(super) fn set_ends(&mut self, ends: Ends) -> Option<()> {
        let seconds = u64::from(ends.seconds);
        let possible = seconds <= KEPT_SECONDS.min(ends.end) && ends.end <= u64::MAX / SECOND;
        self.buckets = VecDeque::from(vec![0.0; possible.then_some(ends.seconds)? as usize]);
        self.bucket_end = ends.end;
        Some(())
    }

    /// The seconds of a chunk counted that; of those that it has not, nothing is kept.
    pub(super) fn put_chunk(&mut self, chunk: u64, seconds: &[f64; CHUNK]) {
        let first = chunk.saturating_mul(CHUNK as u64);
        for (at, counted) in (0..).zip(seconds) {
            let at = first.saturating_add(at).checked_sub(self.first());
            let at = at.and_then(|at| usize::try_from(at).ok());
            if let Some(bucket) = at.and_then(|at| self.buckets.get_mut(at)) {
                *bucket = *counted;
            }
        }
    }

    /// Chunks to be written down again; none: all of them.
    pub(super) fn take_changed(&mut self) -> Option<Vec<u64>> {
        self.changed.take()
    }

    fn first(&self) -> u64 {
        self.bucket_end - self.buckets.len() as u64
    }
}
