//! What a run's recoveries were made of.
use robust_shared::core::Incident;
use robust_shared::ettr::{Cause, Interval, WINDOW};
use robust_shared::ids::Role;
use robust_shared::time::Time;
use std::time::Duration;

/// See the module's doc. Times are means of the trainer's faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Parts {
    /// Fault to verdict.
    pub detect_s: f64,
    /// Verdict to linked again.
    pub restart_s: f64,
    /// Linked to training again.
    pub reconnect_s: f64,
    /// Half of the recoveries took no longer.
    pub half_s: f64,
    /// Nine of ten took no longer.
    pub most_s: f64,
    /// The part of the time of recoveries in which rollouts generated.
    pub generating: f64,
}

impl Parts {
    pub(super) fn of<'a>(
        incidents: impl Iterator<Item = &'a Incident>,
        intervals: &[Interval],
    ) -> Self {
        let trainers = incidents.filter(|i| i.who.role == Role::Trainer && i.under.is_none());
        let trainers: Vec<_> = trainers.collect();
        let mean = |part: &dyn Fn(&Incident) -> Option<Duration>| {
            let took = trainers.iter().filter_map(|i| part(i));
            let took: Vec<f64> = took.map(|t| t.as_secs_f64()).collect();
            took.iter().sum::<f64>() / took.len().max(1) as f64
        };
        let mut totals: Vec<_> = trainers.iter().filter_map(|i| i.total()).collect();
        totals.sort_unstable();
        let within = |of_ten: usize| {
            let rank = (totals.len() * of_ten).div_ceil(10).max(1);
            totals.get(rank - 1).map_or(0.0, Duration::as_secs_f64)
        };
        let sum = |causes: &[Cause]| -> f64 {
            let of = intervals.iter().filter(|i| causes.contains(&i.cause));
            // A sum of nothing is minus nothing.
            of.map(Interval::seconds).sum::<f64>() + 0.0
        };
        let generating = sum(&[Cause::TrainerRecovers]);
        let all = generating + sum(&[Cause::Recovery, Cause::TaskRestart]);
        Self {
            detect_s: mean(&|i| Some(i.detect())),
            restart_s: mean(&Incident::restart),
            reconnect_s: mean(&Incident::reconnect),
            half_s: within(5),
            most_s: within(9),
            generating: if all == 0.0 { 0.0 } else { generating / all },
        }
    }
}

/// The lowest mean of five minutes, from that instant on.
pub(super) fn lowest(intervals: &[Interval], from: Time) -> f64 {
    let plain = || intervals.iter().filter(|i| !i.waste && i.to > from);
    let Some(end) = plain().map(|i| i.to).max() else {
        return 0.0;
    };
    let mean = |begin: Time| {
        let stop = begin + WINDOW;
        let overlap = |i: &Interval| {
            let (a, b) = (i.from.max(begin), i.to.min(stop));
            if a < b { b.since(a).as_secs_f64() } else { 0.0 }
        };
        plain().map(|i| i.value * overlap(i)).sum::<f64>() / WINDOW.as_secs_f64()
    };
    // It is lowest where a stretch begins in it or ends with it.
    let begins = plain().flat_map(|i| [i.from.max(from), Time(i.to.0.saturating_sub(micros()))]);
    let begins = begins.filter(|begin| *begin >= from && *begin + WINDOW <= end);
    begins.map(mean).fold(1.0, f64::min)
}

fn micros() -> u64 {
    u64::try_from(WINDOW.as_micros()).unwrap_or(u64::MAX)
}
