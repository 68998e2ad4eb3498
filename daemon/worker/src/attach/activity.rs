//! What the samples say of this process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use robust_proto::v1::ActivitySample;

use super::Counters;

/// Processor time of all threads so far.
pub(super) fn busy() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return Duration::ZERO;
    };
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

pub(super) fn sample(counters: &Counters) -> ActivitySample {
    ActivitySample {
        busy_us: u64::try_from(busy().as_micros()).unwrap_or(u64::MAX),
        tokens_total: counters.tokens_total.load(Ordering::Relaxed),
        running: counters.running.load(Ordering::Relaxed),
    }
}
