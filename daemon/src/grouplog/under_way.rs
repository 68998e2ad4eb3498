//! How long a write has been waited for.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whether something that must become durable is under way, and since when. Cheap to clone; told and asked in different
/// threads, as the one that tells may hang with its disk.
#[derive(Clone, Debug, Default)]
pub struct UnderWay(Arc<Mutex<BTreeMap<u64, Instant>>>);

impl UnderWay {
    /// Something begins, and lasts until the value is dropped.
    #[must_use]
    pub fn begin(&self) -> Began {
        let mut all = self.all();
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        all.insert(number, Instant::now());
        drop(all);
        Began(self.clone(), number)
    }

    /// For how long the first of what is under way has lasted.
    #[must_use]
    pub fn lasts(&self) -> Option<Duration> {
        let all = self.all();
        let (_, began) = all.first_key_value()?;
        Some(began.elapsed())
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is under way.
#[derive(Debug)]
pub struct Began(UnderWay, u64);

impl Drop for Began {
    fn drop(&mut self) {
        self.0.all().remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_lasts_until_it_is_over() {
        let under_way = UnderWay::default();
        assert_eq!(under_way.lasts(), None);
        let first = under_way.clone().begin();
        let second = under_way.begin();
        drop(first);
        assert!(under_way.lasts().is_some());
        drop(second);
        assert_eq!(under_way.lasts(), None);
    }
}
