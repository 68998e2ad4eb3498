//! How long something may take that no rule of the daemon watches.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// It may take so many times as long as it ever did, and at least this long.
const SLOWER: u32 = 5;
const LEAST: Duration = Duration::from_secs(10);

/// A bound that is learned from what was seen; until then it is what the job file allows.
#[derive(Debug)]
pub struct Bound {
    most: Duration,
    longest: Mutex<Option<Duration>>,
}

impl Bound {
    /// A bound of which nothing is known but that it is at most this.
    pub fn new(most: Duration) -> Self {
        Self {
            most,
            longest: Mutex::default(),
        }
    }

    /// What it may take now.
    pub fn limit(&self) -> Duration {
        match *self.longest() {
            Some(longest) => (longest * SLOWER).max(LEAST).min(self.most),
            None => self.most,
        }
    }

    /// It was done, in this time.
    pub fn took(&self, time: Duration) {
        let mut longest = self.longest();
        *longest = Some(longest.unwrap_or_default().max(time));
    }

    fn longest(&self) -> std::sync::MutexGuard<'_, Option<Duration>> {
        self.longest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_the_job_files_until_something_was_seen() {
        let seconds = Duration::from_secs;
        let bound = Bound::new(seconds(60));
        assert_eq!(bound.limit(), seconds(60));
        bound.took(seconds(1));
        assert_eq!(bound.limit(), seconds(10));
        bound.took(seconds(4));
        bound.took(seconds(1));
        assert_eq!(bound.limit(), seconds(20));
        bound.took(seconds(20));
        assert_eq!(bound.limit(), seconds(60));
    }
}
