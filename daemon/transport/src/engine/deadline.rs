//! Deadlines: nothing waits for a peer for ever.
//!
//! UCX reports no error for a stopped peer or a cut network, so progress is watched here. A
//! pause of this very process (stopped, starved, machine suspended) is no fault of its peers: the
//! clock used for deadlines leaves such pauses out.

use std::time::{Duration, Instant};

use super::Engine;
use super::link::{LinkEnd, LinkState};
use crate::road::LinkId;

/// A gap between two looks at the clock that only a pause of this process explains.
const PAUSE: Duration = Duration::from_millis(400);

/// Time as deadlines see it: without the pauses of this process.
pub(super) struct Clock {
    seen: Instant,
    paused: Duration,
    /// Until when the present sleep was meant to last.
    asleep_until: Option<Instant>,
}

impl Clock {
    pub fn new() -> Clock {
        Clock {
            seen: Instant::now(),
            paused: Duration::ZERO,
            asleep_until: None,
        }
    }

    /// The time of the last look.
    pub fn now(&self) -> Instant {
        self.seen.checked_sub(self.paused).unwrap_or(self.seen)
    }

    pub fn look(&mut self) {
        // A fuzz target says itself how time goes on.
        #[cfg(not(fuzzing))]
        self.look_at(Instant::now());
    }

    pub(super) fn look_at(&mut self, now: Instant) {
        let expected = self
            .asleep_until
            .take()
            .map_or(self.seen, |until| until.max(self.seen));
        let late = now.saturating_duration_since(expected);
        if late > PAUSE {
            // Whoever slept towards a deadline had no chance to see what came before it: half of that
            // time is left. Not all of it, or a machine that always wakes it late had none.
            self.paused += late + (expected - self.seen) / 2;
        }
        self.seen = now;
    }

    /// About to sleep for at most `limit`.
    pub fn sleeps(&mut self, limit: Duration) {
        self.asleep_until = Some(self.seen + limit);
    }
}

impl Engine {
    /// How long until something must be given up; none if nothing waits.
    pub(super) fn until_due(&self) -> Option<Duration> {
        let waits = self.next_wait.into_iter().chain(self.next_relief());
        let at = self.deadlines().map(|(_, at, _)| at).chain(waits).min();
        let due = at.map(|at| at.saturating_duration_since(self.clock.now()));
        // Callers are held against no pause of this process: a road looks what came first.
        let roads = self.roads.due();
        let roads = roads.map(|at| at.saturating_duration_since(Instant::now()));
        due.into_iter()
            .chain(roads)
            .chain(self.until_stopped())
            .min()
    }

    /// Ends every link on which something waited too long, and says who waits for us. True if there
    /// was anything to do.
    pub(super) fn check_deadlines(&mut self) -> bool {
        self.clock.look();
        let now = self.clock.now();
        let due: Vec<(LinkId, LinkEnd)> = self
            .deadlines()
            .filter(|(_, at, _)| *at <= now)
            .map(|(link, _, end)| (link, end))
            .collect();
        let ended = !due.is_empty();
        for (link, end) in due {
            self.end_link(link, end);
        }
        let waits = self.send_waits(now);
        let relieved = self.relieve_due(now);
        ended || waits || relieved
    }

    fn deadlines(&self) -> impl Iterator<Item = (LinkId, Instant, LinkEnd)> + '_ {
        let stall = self.config.stall_timeout;
        let connects = self.links.iter().filter_map(|(id, link)| match link.state {
            LinkState::Calling { deadline, .. } | LinkState::Called { deadline, .. } => {
                Some((*id, deadline, LinkEnd::ConnectTimeout))
            }
            _ => None,
        });
        let fetches = self.running_fetches();
        let notes = self.notes.values().filter(|note| note.is_sent());
        let notes = notes.map(|note| (note.link, note.since));
        let stalls = fetches.chain(notes).filter(|(link, _)| self.is_open(*link));
        let stalls = stalls.map(move |(link, since)| (link, since + stall, LinkEnd::Stalled));
        let stalls = connects.chain(stalls);
        let stalls = stalls.chain(self.held_up()).chain(self.hogs());
        stalls.chain(self.unbelieved())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_this_process_is_left_out_of_the_clock() {
        let mut clock = Clock::new();
        let start = clock.seen;
        clock.look_at(start + Duration::from_millis(100));
        assert_eq!(clock.now(), start + Duration::from_millis(100));
        clock.look_at(start + Duration::from_millis(5100));
        assert_eq!(clock.now(), start + Duration::from_millis(100));
    }

    #[test]
    fn a_pause_in_the_middle_of_a_sleep_leaves_half_of_it() {
        let mut clock = Clock::new();
        let start = clock.seen;
        clock.sleeps(Duration::from_secs(2));
        clock.look_at(start + Duration::from_secs(7));
        assert_eq!(clock.now(), start + Duration::from_secs(1));
    }

    #[test]
    fn a_sleep_that_was_asked_for_is_no_pause() {
        let mut clock = Clock::new();
        let start = clock.seen;
        clock.sleeps(Duration::from_secs(2));
        clock.look_at(start + Duration::from_secs(2));
        assert_eq!(clock.now(), start + Duration::from_secs(2));
    }
}
