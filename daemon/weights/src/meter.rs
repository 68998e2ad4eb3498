//! How fast.
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Span over which the rate is taken.
const SPAN: Duration = Duration::from_secs(1);

/// The rate of late.
pub(crate) struct Meter {
    /// When how many bytes had come, over the last [`SPAN`].
    marks: VecDeque<(Instant, u64)>,
}

impl Meter {
    pub fn new(now: Instant) -> Self {
        Self {
            marks: VecDeque::from([(now, 0)]),
        }
    }

    /// By now so many bytes have come in all: the rate in bytes per second.
    pub fn mark(&mut self, now: Instant, bytes: u64) -> u64 {
        self.marks.push_back((now, bytes));
        // The mark at or before the span's begin stays: the rate is taken from there.
        while self.marks.len() > 2 && now.duration_since(self.marks[1].0) >= SPAN {
            self.marks.pop_front();
        }
        let (from, before) = self.marks[0];
        let seconds = now.duration_since(from).as_secs_f64();
        let bytes = bytes.saturating_sub(before) as f64;
        if seconds > 0.0 {
            (bytes / seconds) as u64
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_second() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(meter.mark(start, 0), 0);
        assert_eq!(meter.mark(at(100), 1000), 10_000);
        for tenth in 2..=30 {
            meter.mark(at(tenth * 100), 1000 + tenth * 10);
        }
        assert_eq!(meter.mark(at(3010), 1301), 100);
    }
}
