//! Durations seen, as counts in buckets that grow by a fifth: bounded memory, however many.
use crate::changed::Changed;
use crate::ids::Role;
use crate::phase::Phase;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
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

    /// What half of them were not longer than, to the middle of a bucket; none where none was seen.
    pub fn median(&self) -> Option<Duration> {
        let (mut seen, half) = (0, self.count.div_ceil(2));
        for (bucket, n) in &self.buckets {
            seen += n;
            if seen >= half {
                let ms = GROWTH.powf(f64::from(*bucket) - 0.5);
                return Some(Duration::from_secs_f64(ms / 1e3));
            }
        }
        None
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

/// How long phases took, by role.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PhaseDurations {
    all: BTreeMap<(Role, Phase), Durations>,
    changed: Changed<(Role, Phase)>,
}

impl PhaseDurations {
    /// One more.
    pub fn add(&mut self, role: Role, phase: Phase, took: Duration) {
        self.changed.note((role, phase));
        self.all.entry((role, phase)).or_default().add(took);
    }

    /// Those of a role's phase; none if it was never left.
    pub fn get(&self, role: Role, phase: Phase) -> Option<&Durations> {
        self.all.get(&(role, phase))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = ((Role, Phase), &Durations)> {
        self.all.iter().map(|(key, seen)| (*key, seen))
    }

    /// Those that changed since this was last asked; none: all of them.
    pub(in crate::core) fn take_changed(&mut self) -> Option<Vec<(Role, Phase)>> {
        self.changed.take()
    }
}

impl FromIterator<((Role, Phase), Durations)> for PhaseDurations {
    fn from_iter<I: IntoIterator<Item = ((Role, Phase), Durations)>>(all: I) -> Self {
        Self {
            all: all.into_iter().collect(),
            changed: Changed::default(),
        }
    }
}

/// A list: JSON has no keys of two parts.
impl Serialize for PhaseDurations {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.all.iter())
    }
}

impl<'de> Deserialize<'de> for PhaseDurations {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let list = Vec::<((Role, Phase), Durations)>::deserialize(from)?;
        Ok(list.into_iter().collect())
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
    fn the_median_is_right_to_a_fifth_and_one_that_hangs_does_not_move_it() {
        assert_eq!(Durations::default().median(), None);
        let mut seen = Durations::default();
        (0..20).for_each(|_| seen.add(Duration::from_secs(3)));
        seen.add(Duration::from_secs(3600));
        let median = seen.median().map(|d| d.as_secs_f64());
        assert!(
            median.is_some_and(|s| (2.5..3.6).contains(&s)),
            "{median:?}"
        );
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
