//! The connection to the daemon of one context: when it is made, when it counts as lost, when it is tried again.
//!
//! ```text
//!            begin                status
//!   due ───────────► under way ───────────► live ──┐
//!    ▲                   │                   │ └───┘ status
//!    │ 1, 2, 4 .. 30 s   │ an error, or 15 s without a status
//!    └─────── lost ◄─────┴───────────────────┘
//! ```

/// Between the first attempts; twice as long after each that fails.
const RETRY_MS: u64 = 1_000;
/// And at most.
const RARELY_MS: u64 = 30_000;
/// A daemon that says nothing for so long is taken for gone: what it accepted is no answer.
const SILENT_MS: u64 = 15_000;

/// The connection to one daemon.
#[derive(Debug, Default)]
pub struct Link {
    /// Of the present connection; what an older one still tells is dropped.
    number: u64,
    state: State,
    /// Attempts that failed since the last status.
    failed: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// It was never tried.
    #[default]
    Due,
    /// It is there, or being made; the last sign of it, in Unix ms.
    UnderWay(u64),
    /// It is made again then, in Unix ms.
    Lost(u64),
}

impl Link {
    /// The number of the connection that is to be made now, if one is.
    pub fn begin(&mut self, now: u64) -> Option<u64> {
        let is_due = match self.state {
            State::Due => true,
            State::Lost(at) => at <= now,
            State::UnderWay(_) => false,
        };
        is_due.then(|| {
            self.number += 1;
            self.state = State::UnderWay(now);
            self.number
        })
    }

    /// Whether this is the present connection.
    pub fn is(&self, number: u64) -> bool {
        self.number == number && matches!(self.state, State::UnderWay(_))
    }

    /// A status came.
    pub fn heard(&mut self, now: u64) {
        (self.state, self.failed) = (State::UnderWay(now), 0);
    }

    /// It is gone, or was not made.
    pub fn lost(&mut self, now: u64) {
        let wait = RETRY_MS << self.failed.min(5);
        self.failed += 1;
        self.state = State::Lost(now + wait.min(RARELY_MS));
    }

    /// Seconds without a status after which it is taken for gone; none: it is not, or it is known to be.
    pub fn silent_s(&self, now: u64) -> Option<u64> {
        match self.state {
            State::UnderWay(last) if now.saturating_sub(last) > SILENT_MS => Some(SILENT_MS / 1000),
            _ => None,
        }
    }

    /// One that is lost is tried at once.
    pub fn hurry(&mut self) {
        if matches!(self.state, State::Lost(_)) {
            self.state = State::Due;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_refuses_is_tried_ever_more_rarely_and_one_that_answered_soon_again() {
        let mut link = Link::default();
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(link.begin(now).is_some());
            assert_eq!(link.begin(now), None, "one at a time");
            link.lost(now);
            let lost = now;
            while link.begin(now).is_none() {
                now += 500;
            }
            waits.push((now - lost) / 1000);
            link.lost(now);
            link.hurry();
        }
        assert_eq!(waits, [1, 4, 16, 30, 30, 30, 30, 30]);
        assert!(link.begin(now).is_some());
        link.heard(now);
        link.lost(now);
        assert!(
            link.begin(now + 1_000).is_some(),
            "it was there a moment ago"
        );
    }

    #[test]
    fn one_that_accepts_and_says_nothing_is_lost_and_what_it_says_later_is_dropped() {
        let mut link = Link::default();
        let first = link.begin(0);
        assert_eq!(link.silent_s(15_000), None);
        assert_eq!(link.silent_s(15_001), Some(15));
        link.lost(15_001);
        assert_eq!(link.silent_s(60_000), None, "it is known");
        assert!(!link.is(1));
        let second = link.begin(16_001);
        assert_eq!((first, second), (Some(1), Some(2)));
        assert!(link.is(2) && !link.is(1));
    }
}
