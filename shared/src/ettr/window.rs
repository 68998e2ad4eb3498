//! What each of the last seconds counted, for sliding means.
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Microseconds in a second.
pub(super) const SECOND: u64 = 1_000_000;
/// Whole seconds kept: the history's 300 values each look back 300 s.
const KEPT_SECONDS: u64 = 601;

/// Counted microseconds within each whole second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    /// Oldest first; the last is of second `bucket_end - 1`.
    buckets: VecDeque<f64>,
    bucket_end: u64,
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
            self.buckets.clear();
            self.bucket_end = horizon;
        }
        let oldest = horizon.max(self.bucket_end.saturating_sub(KEPT_SECONDS));
        at = at.max(oldest * SECOND);
        while at < end && self.first() > at / SECOND {
            self.buckets.push_front(0.0);
        }
        while at < end {
            let second = at / SECOND;
            let until = ((second + 1) * SECOND).min(end);
            while self.bucket_end <= second {
                self.buckets.push_back(0.0);
                self.bucket_end += 1;
            }
            while self.buckets.len() as u64 > KEPT_SECONDS {
                self.buckets.pop_front();
            }
            let slot = usize::try_from(second.saturating_sub(self.first())).unwrap_or(usize::MAX);
            if let Some(bucket) = self.buckets.get_mut(slot) {
                *bucket += (until - at) as f64 * value;
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

    fn first(&self) -> u64 {
        self.bucket_end - self.buckets.len() as u64
    }
}
