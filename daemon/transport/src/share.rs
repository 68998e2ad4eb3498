//! How much of a core's time moving bytes may take while something computes beside it.
//!
//! ```text
//!   work │████│    │████│    │██████████│███    share 0.5 until here, then all of it
//!   rest │    │████│    │████│
//! ```
//! An engine that generates shares its machine with the thread that brings it the next version, or serves the
//! present one to others: with its cores, their caches and the memory behind them. So a thread counts the
//! processor time that it used, and rests for as long as makes that the part it may have. Where nothing
//! computes it takes all it can get.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Shorter rests are not taken one by one: a sleep of the kernel's is not much shorter.
const LEAST: Duration = Duration::from_millis(1);
/// The longest rest. Commands, and peers' questions whether this process lives, wait for its end.
const MOST: Duration = Duration::from_millis(10);
/// What is owed beyond this is forgotten.
const OWED_MOST: Duration = Duration::from_secs(1);
/// The least part: so that a piece takes no longer than a stall timeout.
const LEAST_PART: f64 = 0.05;

/// The part that threads of one process may have, now. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Share(Arc<AtomicU32>);

impl Share {
    /// From now on moving bytes takes at most this part of a core, 0.05 to 1; 1: as much as it can get.
    pub fn set(&self, part: f64) {
        let kept = 1.0 - part.clamp(LEAST_PART, 1.0);
        self.0.store((kept * 1000.0) as u32, Ordering::Relaxed);
    }

    /// For a thread that keeps to it.
    pub fn duty(&self) -> Duty {
        Duty {
            share: self.clone(),
            counted: None,
            owed: Duration::ZERO,
        }
    }

    /// How long to rest for so much work.
    fn rest_after(&self, work: Duration) -> Duration {
        let kept = f64::from(self.0.load(Ordering::Relaxed)) / 1000.0;
        work.mul_f64(kept / (1.0 - kept))
    }

    fn is_all(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// One thread's account.
#[derive(Debug)]
pub struct Duty {
    share: Share,
    /// This thread's processor time that is accounted for; none while it may have all.
    counted: Option<Duration>,
    owed: Duration,
}

impl Duty {
    /// After some work of this thread: rests, if that is due by now, and says so. It may owe more afterwards.
    pub fn rest(&mut self) -> bool {
        if self.share.is_all() {
            (self.counted, self.owed) = (None, Duration::ZERO);
            return false;
        }
        let used = processor_time();
        let work = used.saturating_sub(self.counted.replace(used).unwrap_or(used));
        self.owed += self.share.rest_after(work);
        if self.owed < LEAST {
            return false;
        }
        let began = Instant::now();
        std::thread::sleep(self.owed.min(MOST));
        // It may have been longer: that counts, too.
        self.owed = self.owed.saturating_sub(began.elapsed()).min(OWED_MOST);
        true
    }

    /// The same until nothing is owed, for a thread that nobody waits for.
    pub fn rest_fully(&mut self) {
        while self.rest() {}
    }
}

/// What this thread has used so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_makes_work_the_part_that_it_may_have() {
        let (share, work) = (Share::default(), Duration::from_millis(6));
        assert_eq!(share.rest_after(work), Duration::ZERO);
        for (part, rest) in [(0.5, 6), (0.75, 2), (0.25, 18), (1.0, 0), (7.0, 0)] {
            share.set(part);
            assert_eq!(share.rest_after(work).as_millis(), rest, "{part}");
        }
        share.set(0.0);
        assert_eq!(
            share.rest_after(work).as_millis(),
            114,
            "never nothing at all"
        );
    }

    #[test]
    fn a_long_piece_of_work_is_rested_for_in_full() {
        let share = Share::default();
        share.set(0.25);
        let mut duty = share.duty();
        duty.rest();
        let used = processor_time();
        while processor_time() - used < Duration::from_millis(12) {
            std::hint::spin_loop();
        }
        let began = Instant::now();
        duty.rest_fully();
        assert!(began.elapsed() >= Duration::from_millis(35));
        assert!(duty.owed < LEAST);
    }

    #[test]
    fn a_thread_rests_while_its_share_is_a_part_and_forgets_what_it_owes_when_it_is_all() {
        let share = Share::default();
        let mut duty = share.duty();
        let work = |used: Duration| {
            let begin = processor_time();
            while processor_time() - begin < used {
                std::hint::spin_loop();
            }
        };
        duty.rest();
        assert!(duty.counted.is_none());
        share.set(0.5);
        duty.rest();
        work(Duration::from_millis(4));
        let began = Instant::now();
        duty.rest();
        assert!(
            began.elapsed() >= Duration::from_millis(4),
            "a rest as long as the work"
        );
        work(Duration::from_micros(200));
        duty.rest();
        assert!(duty.owed > Duration::ZERO, "too short a rest is owed");
        share.set(1.0);
        duty.rest();
        assert_eq!(duty.owed, Duration::ZERO);
    }
}
