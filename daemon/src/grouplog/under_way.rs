//! How long a write has been waited for.
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Whether something that must become durable is under way, and since when. Cheap to clone; told and asked in different
/// threads, as the one that tells may hang with its disk.
#[derive(Clone, Debug, Default)]
pub struct UnderWay(Arc<Mutex<Option<Instant>>>);

impl UnderWay {
    /// Something begins, and lasts until the value is dropped. One at a time.
    #[must_use]
    pub fn begin(&self) -> Began {
        self.set(Some(Instant::now()));
        Began(self.clone())
    }

    /// For how long what is under way has lasted.
    #[must_use]
    pub fn lasts(&self) -> Option<Duration> {
        let began = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        began.map(|began| began.elapsed())
    }

    fn set(&self, began: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = began;
    }
}

/// What is under way.
#[derive(Debug)]
pub struct Began(UnderWay);

impl Drop for Began {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_lasts_until_it_is_over() {
        let under_way = UnderWay::default();
        assert_eq!(under_way.lasts(), None);
        let began = under_way.clone().begin();
        assert!(under_way.lasts().is_some());
        drop(began);
        assert_eq!(under_way.lasts(), None);
    }
}
