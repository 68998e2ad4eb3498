//! How often UCX is asked while bytes stream in.
//!
//! Asked without a pause, this thread takes every segment off its socket as it comes. The kernel then
//! wakes it, and acknowledges, for each one; on one machine the source's thread does that work, in the
//! middle of its sending. Asked at intervals it finds more at once, and both spend less on each byte.

use std::time::{Duration, Instant};

/// Pieces under way that make a stream; shorter fetches are not to wait.
const STREAM: usize = super::fetch::WINDOW / 2;
/// From one look to the next: time for about a tenth of a piece at the best rates over loopback.
const GATHER: Duration = Duration::from_micros(15);
/// Looks without a find before sleeping.
pub(super) const IDLE_LOOKS: u32 = 4;

/// When UCX was last asked.
pub(super) struct Pace(Instant);

impl Pace {
    pub fn new() -> Pace {
        Pace(Instant::now())
    }

    /// With so many pieces under way, lets bytes gather; whether they are a stream. Gives way to
    /// whoever else wants the core meanwhile; the shortest sleep is longer.
    pub fn gather(&mut self, under_way: usize) -> bool {
        let streams = under_way >= STREAM;
        if streams {
            while self.0.elapsed() < GATHER {
                std::thread::yield_now();
            }
            self.0 = Instant::now();
        }
        streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stream_is_let_gather() {
        let mut pace = Pace::new();
        assert!(!pace.gather(STREAM - 1));
        pace.gather(STREAM);
        let looked = pace.0;
        assert!(pace.gather(STREAM));
        assert!(pace.0 - looked >= GATHER);
    }
}
