//! Real time for the core: monotonic, anchored once to the Unix epoch.
use robust_shared::time::Time;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Turns instants into the core's time. A stepped system clock does not move it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Time,
    start: Instant,
}

impl Clock {
    /// A clock that agrees with the system's now, and is never before `not_before` (the latest time
    /// a previous life of the daemon recorded).
    pub fn starting_after(not_before: Time) -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let base = Time::default() + unix;
        Self {
            base: base.max(not_before),
            start: Instant::now(),
        }
    }

    /// Now.
    pub fn now(&self) -> Time {
        self.base + self.start.elapsed()
    }

    /// When an instant of this process was.
    pub fn at(&self, instant: Instant) -> Time {
        self.base + instant.saturating_duration_since(self.start)
    }

    /// How long until `at`; zero when it has passed.
    pub fn until(&self, at: Time) -> Duration {
        at.since(self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_what_an_earlier_life_recorded() {
        let future = Clock::starting_after(Time::default()).now() + Duration::from_secs(3600);
        assert!(Clock::starting_after(future).now() >= future);
    }
}
