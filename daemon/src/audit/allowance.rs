//! How many lines somebody may cause who may cause nothing else.
use std::time::{Duration, Instant};

/// Lines at once, and in every such time one more.
const BURST: u32 = 20;
const EVERY: Duration = Duration::from_secs(3);

/// What is left.
#[derive(Debug)]
pub(super) struct Allowance {
    left: u32,
    /// Until when the time that passed is counted.
    counted: Instant,
    /// Since the last line.
    unlisted: u64,
}

impl Allowance {
    pub fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            counted: now,
            unlisted: 0,
        }
    }

    /// Whether there may be a line now: how many there were since the last one that had none.
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        let passed = now.saturating_duration_since(self.counted);
        let more = u32::try_from(passed.as_millis() / EVERY.as_millis()).unwrap_or(u32::MAX);
        self.counted += EVERY * more.min(BURST);
        if more >= BURST {
            self.counted = now;
        }
        self.left = self.left.saturating_add(more).min(BURST);
        if self.left == 0 {
            self.unlisted += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.unlisted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_all_the_time_causes_few_lines_and_the_rest_is_counted() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        for _ in 0..BURST {
            assert_eq!(allowance.take(start), Some(0));
        }
        for _ in 0..1000 {
            assert_eq!(allowance.take(start), None);
        }
        assert_eq!(allowance.take(start + EVERY), Some(1000));
        assert_eq!(allowance.take(start + EVERY), None);
        let much_later = start + Duration::from_secs(86_400);
        let listed = (0..100).filter(|_| allowance.take(much_later).is_some());
        assert_eq!(listed.count(), BURST as usize);
    }
}
