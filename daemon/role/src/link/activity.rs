//! What the samples say of this process.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use robust_proto::v1::ActivitySample;

use super::Counters;

/// Whose processor time the samples report: this process's, unless the work is done elsewhere.
/// Clones share it.
#[derive(Clone)]
pub struct Busy(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Busy {
    /// The samples ask `total` for the processor time used so far. It counts what ended processes
    /// used, too: a total that falls back counts as idle until it has caught up. It is called on
    /// the link's runtime with every sample, so it must not wait.
    pub fn told_by(total: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(total))
    }
}

impl Default for Busy {
    fn default() -> Self {
        Self::told_by(of_this_process)
    }
}

impl std::fmt::Debug for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Busy").finish_non_exhaustive()
    }
}

/// Who counts the callers that were turned away.
#[derive(Default)]
pub struct Refused(OnceLock<Box<dyn Fn() -> u64 + Send + Sync>>);

impl Refused {
    /// The samples ask `count` from now on; the first one that is told stays.
    pub fn told_by(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(count));
    }

    fn count(&self) -> u64 {
        self.0.get().map_or(0, |count| count())
    }
}

impl std::fmt::Debug for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Refused").field(&self.count()).finish()
    }
}

/// Processor time of all threads so far.
fn of_this_process() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return Duration::ZERO;
    };
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

pub(super) fn sample(busy: &Busy, counters: &Counters) -> ActivitySample {
    ActivitySample {
        busy_us: u64::try_from((busy.0)().as_micros()).unwrap_or(u64::MAX),
        tokens_total: counters.tokens_total.load(Ordering::Relaxed),
        running: counters.running.load(Ordering::Relaxed),
        tool_failures: counters.tool_failures.load(Ordering::Relaxed),
        callers_refused: counters.refused.count(),
    }
}
