//! Durations seen, as counts in buckets that grow by a fifth: bounded memory, however many.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Buckets grow by this factor, so a percentile is off by no more than it.
const GROWTH: f64 = 1.2;
/// From here on the past counts half: habits change.
const REMEMBERED: u32 = 1000;

/// A histogram of durations from a millisecond up; shorter ones share the first bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    buckets: BTreeMap<u16, u32>,
    count: u32,
}

impl Durations {
    /// One more.
    pub fn add(&mut self, took: Duration) {
        let ms = (took.as_secs_f64() * 1e3).max(1.0);
        // A century is bucket 154.
        let bucket = (ms.ln() / GROWTH.ln()).ceil() as u16;
        *self.buckets.entry(bucket).or_default() += 1;
        self.count += 1;
        if self.count > REMEMBERED {
            self.buckets.retain(|_, n| {
                *n /= 2;
                *n > 0
            });
            self.count = self.buckets.values().sum();
        }
    }

    /// What 99 of 100 were not longer than; none before `least` were seen.
    pub fn percentile_99(&self, least: f64) -> Option<Duration> {
        if f64::from(self.count) < least {
            return None;
        }
        let (mut beyond, above) = (self.count / 100, self.buckets.iter().rev());
        for (bucket, n) in above {
            if *n > beyond {
                return Some(Duration::from_secs_f64(GROWTH.powi((*bucket).into()) / 1e3));
            }
            beyond -= n;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_is_right_to_a_fifth_and_ignores_one_in_a_hundred() {
        let mut seen = Durations::default();
        for ms in 1..=199 {
            seen.add(Duration::from_millis(1000 + ms));
        }
        assert_eq!(seen.percentile_99(200.0), None);
        seen.add(Duration::from_secs(3600));
        let p99 = seen.percentile_99(200.0).map(|d| d.as_secs_f64());
        assert!(p99.is_some_and(|s| (1.2..1.45).contains(&s)), "{p99:?}");
    }

    #[test]
    fn memory_is_bounded_and_new_habits_win() {
        let mut seen = Durations::default();
        (0..5000).for_each(|_| seen.add(Duration::from_secs(100)));
        (0..20_000).for_each(|n| seen.add(Duration::from_millis(n)));
        assert!(seen.buckets.len() < 80 && seen.count <= REMEMBERED);
        (0..20_000).for_each(|_| seen.add(Duration::from_secs(1)));
        let p99 = seen.percentile_99(20.0).map(|d| d.as_secs_f64());
        assert!(p99.is_some_and(|s| (1.0..1.3).contains(&s)), "{p99:?}");
    }
}
