//! From the job file's numbers to durations.
use std::time::Duration;

/// Seconds as a duration. What no duration can hold is zero (negative, not a number) or the longest
/// one; a validated job has neither.
pub(crate) fn seconds(value: f64) -> Duration {
    let edge = if value > 0.0 {
        Duration::MAX
    } else {
        Duration::ZERO
    };
    Duration::try_from_secs_f64(value).unwrap_or(edge)
}

/// Milliseconds as a duration.
pub(super) fn millis(value: u64) -> Duration {
    Duration::from_millis(value)
}
