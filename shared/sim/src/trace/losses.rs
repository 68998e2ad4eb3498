//! Where the time went: each stretch of the ledger that did not count in full, by what the ledger says of it
//! and by the cause in the trace of the incident that was open then.
//!
//! A stretch belongs to the incidents that were open in it: to those of the trainer or of everything where
//! there are such, because the others cost the job nothing by themselves; in equal parts where there are
//! several. Work that was thrown away belongs to those that were open when it was.
use robust_shared::ettr::{Cause, Interval};
use robust_shared::time::Time;
use serde::Serialize;
use std::collections::BTreeMap;

/// An incident's time, and what it came of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Open {
    pub from: Time,
    pub to: Time,
    /// It stops the trainer, or everything.
    pub stops: bool,
    /// Of the trace.
    pub cause: String,
}

/// What something cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    /// What.
    pub cause: String,
    /// Hours of the job.
    pub hours: f64,
}

/// Of which nobody in the trace is the cause.
const START: &str = "start of the job";
const PIPELINE: &str = "no fault: weights, snapshots, waiting";
const UNKNOWN: &str = "after faults that are over";

/// Seconds that a stretch did not count.
fn lost(interval: &Interval) -> f64 {
    match interval.waste {
        true => interval.value * interval.seconds(),
        false => (1.0 - interval.value) * interval.seconds(),
    }
}

/// By what the ledger says.
pub(super) fn by_kind(intervals: &[Interval]) -> Vec<Loss> {
    let mut sums = BTreeMap::new();
    for interval in intervals {
        *sums.entry(interval.cause.name().to_owned()).or_insert(0.0) += lost(interval);
    }
    ranked(sums)
}

/// By what the trace says.
pub(super) fn by_cause(intervals: &[Interval], incidents: &[Open]) -> Vec<Loss> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for interval in intervals {
        let lost = lost(interval);
        if lost == 0.0 {
            continue;
        }
        match interval.cause {
            Cause::Initialisation => *sums.entry(START.into()).or_default() += lost,
            Cause::StepRepeated | Cause::GenerationRepeated => {
                share(
                    &mut sums,
                    lost,
                    incidents,
                    thrown_away(incidents, interval.to),
                );
            }
            Cause::TrainerRecovers | Cause::Recovery | Cause::TaskRestart => {
                let whole = interval.to.since(interval.from).as_secs_f64();
                for (from, to) in pieces(interval, incidents) {
                    let part = to.since(from).as_secs_f64() / whole;
                    share(&mut sums, lost * part, incidents, from);
                }
            }
            Cause::Both
            | Cause::Training
            | Cause::Generation
            | Cause::ContextSwitch
            | Cause::Paused
            | Cause::Blocked => *sums.entry(PIPELINE.into()).or_default() += lost,
        }
    }
    ranked(sums)
}

/// When work was thrown away that had been done by then: with the next verdict that stops the trainer, or with
/// the next of all.
fn thrown_away(incidents: &[Open], done: Time) -> Time {
    let next = |stops: bool| {
        let after = incidents
            .iter()
            .filter(move |i| i.from >= done && (i.stops || !stops));
        after.map(|i| i.from).min()
    };
    next(true).or_else(|| next(false)).unwrap_or(done)
}

/// A stretch cut where an incident begins or ends.
fn pieces(interval: &Interval, incidents: &[Open]) -> Vec<(Time, Time)> {
    let edges = incidents.iter().flat_map(|i| [i.from, i.to]);
    let inside = edges.filter(|at| interval.from < *at && *at < interval.to);
    let mut cuts: Vec<_> = inside.chain([interval.from, interval.to]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|w| (w[0], w[1])).collect()
}

/// Gives a loss to whoever is open at that instant.
fn share(sums: &mut BTreeMap<String, f64>, lost: f64, incidents: &[Open], at: Time) {
    let open = |stops: bool| {
        let open = incidents
            .iter()
            .filter(move |i| i.from <= at && at < i.to && (i.stops || !stops));
        open.map(|i| i.cause.as_str()).collect::<Vec<_>>()
    };
    let mut causes = open(true);
    if causes.is_empty() {
        causes = open(false);
    }
    if causes.is_empty() {
        causes.push(UNKNOWN);
    }
    let each = lost / causes.len() as f64;
    for cause in causes {
        *sums.entry(cause.to_owned()).or_default() += each;
    }
}

/// The largest first.
fn ranked(sums: BTreeMap<String, f64>) -> Vec<Loss> {
    let losses = sums.into_iter().filter(|(_, s)| *s > 0.0);
    let mut losses: Vec<_> = losses
        .map(|(cause, s)| Loss {
            cause,
            hours: s / 3600.0,
        })
        .collect();
    losses.sort_by(|a, b| b.hours.total_cmp(&a.hours));
    losses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(from: u64, to: u64, value: f64, cause: Cause) -> Interval {
        Interval {
            from: Time(from * 3_600_000_000),
            to: Time(to * 3_600_000_000),
            value,
            cause,
            waste: cause.is_waste(),
        }
    }

    fn open(from: u64, to: u64, stops: bool, cause: &str) -> Open {
        Open {
            from: Time(from * 3_600_000_000),
            to: Time(to * 3_600_000_000),
            stops,
            cause: cause.to_owned(),
        }
    }

    fn hours(losses: &[Loss], cause: &str) -> f64 {
        let found = losses.iter().find(|loss| loss.cause == cause);
        found.map_or(0.0, |loss| loss.hours)
    }

    #[test]
    fn a_stretch_belongs_to_the_incidents_of_the_trainer_that_are_open_in_it() {
        let intervals = [
            interval(0, 1, 0.0, Cause::Initialisation),
            interval(1, 10, 1.0, Cause::Both),
            interval(10, 14, 0.75, Cause::TrainerRecovers),
            interval(8, 10, 0.5, Cause::StepRepeated),
            interval(14, 16, 0.0, Cause::TaskRestart),
        ];
        let incidents = [
            open(5, 20, false, "a rollout's"),
            open(10, 12, true, "gpu"),
            open(11, 14, true, "switch"),
        ];
        let losses = by_cause(&intervals, &incidents);
        assert_eq!(hours(&losses, START), 1.0);
        // 10 to 11 alone, 11 to 12 shared; and the work that was lost when it began.
        assert_eq!(hours(&losses, "gpu"), 0.25 + 0.125 + 1.0);
        assert_eq!(hours(&losses, "switch"), 0.125 + 0.5);
        assert_eq!(hours(&losses, "a rollout's"), 2.0, "nothing else was open");
        let kinds = by_kind(&intervals);
        assert_eq!(hours(&kinds, "trainer_recovers"), 1.0);
        let all = |losses: &[Loss]| losses.iter().map(|l| l.hours).sum::<f64>();
        assert_eq!(all(&kinds), all(&losses), "both account for all of it");
    }
}
