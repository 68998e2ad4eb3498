//! Lemons: machines on which more fails than on others (the word is the field's: arXiv 2410.21680).
//! Each has the faults of its own that were found there; the older one is, the less it counts.
//!
//! ```text
//!  a fault of the node's own ──► remembered with the node ──┬─► of free slots those of nodes with fewer
//!        │                                                  │   are taken first
//!        │ its cause is met on another node too, or a       └─► `restart.cordon_after`, and twice as many
//!        ▼ trajectory is to blame for it                        as the middle one of the others:
//!   it counts no more                                           everybody there would have another place ──┬─► cordoned
//!                                                                                                 else ──► said only
//!  cordoned by itself ──┬── somebody has no other place ──► used again
//!                       └── `robustctl uncordon` ─────────► used again, its faults are forgotten
//! ```
//! A fault is a node's own where the process that failed, or its machine, is what it comes from. What an
//! operator injected, what follows from another fault, what a trajectory is to blame for, and a hang of
//! which nobody is known to be the root are no node's. What strikes several processes of a machine at once
//! counts once ([`AT_ONCE`]).
//!
//! What is stored are instants; what they count is worked out in whole numbers whenever it is asked, so that
//! it is the same on every machine and after every restart. A fault counts 1,000 thousandths at first and
//! half as many after each half-life (`restart.cordon_half_life_s`), in a straight line between.
use crate::core::recover::cause::Fingerprint;
use crate::ids::IncidentId;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// What a fault counts at first.
const WHOLE: u64 = 1000;

/// So many of the newest are remembered: the state is written with every record, and no more are needed to
/// tell a lemon.
const KEPT: usize = 16;

/// Faults of one node within this time are one: a machine that fails takes several processes along, and its
/// own loss is found as much later (`detect.node_lost.window_s`).
const AT_ONCE: Duration = Duration::from_secs(5);

/// One fault of a node's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFault {
    /// When it was found.
    pub at: Time,
    /// The incident that tells of it; 0: none was opened.
    pub incident: IncidentId,
    /// What it came of, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Fingerprint>,
    /// The same was met on another node: it is the program's, and does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub common: bool,
}

/// What is remembered of a node's faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Oldest first.
    seen: VecDeque<NodeFault>,
    /// It is cordoned because of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) cordoned: bool,
    /// What fails there until then an operator's fault is to blame for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) drill_until: Option<Time>,
}

impl Faults {
    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the node is cordoned because of them.
    pub fn cordoned(&self) -> bool {
        self.cordoned
    }

    /// Those that count, oldest first.
    pub fn own(&self) -> impl DoubleEndedIterator<Item = &NodeFault> {
        self.seen.iter().filter(|fault| !fault.common)
    }

    /// When the last one was found that counts.
    pub fn last(&self) -> Option<Time> {
        self.own().next_back().map(|fault| fault.at)
    }

    /// What they count now, in thousandths.
    pub fn weight(&self, now: Time, half_life: Duration) -> u64 {
        self.own()
            .map(|f| decayed(now.since(f.at), half_life))
            .sum()
    }

    /// The same in whole faults, as it is shown.
    pub fn count(&self, now: Time, half_life: Duration) -> u32 {
        whole(self.weight(now, half_life))
    }

    /// Whether an operator's fault explains what fails there now.
    pub fn is_drill(&self, now: Time) -> bool {
        self.drill_until.is_some_and(|until| now < until)
    }

    /// Whether one found now is another one than the last.
    pub(super) fn is_news(&self, now: Time) -> bool {
        let last = self.seen.back().map(|fault| fault.at);
        last.is_none_or(|at| now.since(at) >= AT_ONCE)
    }

    pub(super) fn add(&mut self, fault: NodeFault) {
        if self.seen.len() == KEPT {
            self.seen.pop_front();
        }
        self.seen.push_back(fault);
    }

    pub(super) fn has(&self, cause: Fingerprint) -> bool {
        self.seen.iter().any(|fault| fault.cause == Some(cause))
    }

    /// Those of this cause are the program's.
    pub(super) fn is_common(&mut self, cause: Fingerprint) {
        let of_it = |fault: &&mut NodeFault| fault.cause == Some(cause);
        for fault in self.seen.iter_mut().filter(of_it) {
            fault.common = true;
        }
    }

    /// What this incident tells of was not the node's. Returns whether that is news.
    pub(super) fn take_back(&mut self, incident: IncidentId) -> bool {
        let before = self.seen.len();
        self.seen.retain(|fault| fault.incident != incident);
        self.seen.len() < before
    }
}

/// Thousandths as whole faults, to the nearest.
pub fn whole(weight: u64) -> u32 {
    u32::try_from((weight + WHOLE / 2) / WHOLE).unwrap_or(u32::MAX)
}

/// What a fault of that age counts.
fn decayed(age: Duration, half_life: Duration) -> u64 {
    let half_life = half_life.as_micros().max(1);
    let (halves, rest) = (age.as_micros() / half_life, age.as_micros() % half_life);
    // After ten of them less than a thousandth is left.
    let at_first = match u32::try_from(halves) {
        Ok(halves) if halves < u64::BITS => WHOLE >> halves,
        _ => 0,
    };
    let lost = u128::from(at_first) * rest / (2 * half_life);
    at_first - u64::try_from(lost).unwrap_or(at_first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn fault(at: Time, cause: Option<u64>) -> NodeFault {
        NodeFault {
            at,
            incident: IncidentId(at.0),
            cause: cause.map(Fingerprint),
            common: false,
        }
    }

    #[test]
    fn a_fault_counts_half_as_much_after_each_half_life_and_nothing_in_the_end() {
        let after = |hours: u32| decayed(HOUR * hours, HOUR * 6);
        assert_eq!(after(0), 1000);
        assert_eq!(after(3), 750);
        assert_eq!(after(6), 500);
        assert_eq!(after(12), 250);
        assert_eq!((after(60), after(66)), (0, 0));
        assert_eq!(decayed(Duration::MAX, Duration::ZERO), 0);
        let falls = (0..70).map(after).collect::<Vec<_>>();
        assert!(
            falls.is_sorted_by(|older, newer| older >= newer),
            "{falls:?}"
        );
    }

    #[test]
    fn what_is_shown_is_what_counts_to_the_nearest_whole_fault() {
        let mut faults = Faults::default();
        let start = Time(1);
        for at in 0..3 {
            faults.add(fault(start + HOUR * at, None));
        }
        let count = |hours: u32| faults.count(start + HOUR * hours, HOUR * 24);
        assert_eq!(
            (count(2), count(10), count(30), count(24 * 7)),
            (3, 2, 1, 0)
        );
        assert_eq!(faults.last(), Some(start + HOUR * 2));
    }

    #[test]
    fn only_the_newest_are_remembered_and_what_comes_at_once_is_one() {
        let mut faults = Faults::default();
        for at in 0..40 {
            let now = Time(0) + AT_ONCE * at;
            assert!(faults.is_news(now));
            faults.add(fault(now, None));
            assert!(!faults.is_news(now + AT_ONCE / 2));
        }
        assert_eq!(faults.own().count(), KEPT);
        assert_eq!(faults.last(), Some(Time(0) + AT_ONCE * 39));
    }

    #[test]
    fn what_another_is_to_blame_for_counts_no_more() {
        let mut faults = Faults::default();
        for (at, cause) in [(1, Some(7)), (2, None), (3, Some(7))] {
            faults.add(fault(Time(at), cause));
        }
        faults.is_common(Fingerprint(7));
        assert_eq!(faults.own().count(), 1);
        assert!(faults.has(Fingerprint(7)));
        assert!(faults.take_back(IncidentId(2)));
        assert!(!faults.take_back(IncidentId(2)));
        assert_eq!((faults.own().count(), faults.last()), (0, None));
    }
}
