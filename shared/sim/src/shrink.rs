//! Shrinking: the smallest schedule found that still breaks the same invariant.
use super::faults::{Schedule, Timed, Weather};
use super::search;
use super::world::Violation;
use robust_shared::core::{Mode, Policy};

/// Runs spent on one failure at most.
const MOST_RUNS: u32 = 600;

/// A smaller schedule with the violation it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// The schedule.
    pub schedule: Schedule,
    /// What it breaks.
    pub violation: Violation,
    /// Runs it took to find it.
    pub runs: u32,
}

struct Shrinker<F> {
    best: Schedule,
    violation: Violation,
    runs: u32,
    run: F,
}

/// Shrinks a schedule that fails; `None` if it does not.
pub fn shrink(schedule: &Schedule) -> Option<Shrunk> {
    shrink_with(schedule, |s| search::run(s).violation)
}

/// The same with another way of running a schedule.
pub fn shrink_with(
    schedule: &Schedule,
    run: impl Fn(&Schedule) -> Option<Violation>,
) -> Option<Shrunk> {
    let violation = run(schedule)?;
    let best = schedule.clone();
    let mut shrinker = Shrinker {
        best,
        violation,
        runs: 0,
        run,
    };
    while shrinker.pass() && shrinker.runs < MOST_RUNS {}
    Some(Shrunk {
        schedule: shrinker.best,
        violation: shrinker.violation,
        runs: shrinker.runs,
    })
}

impl<F: Fn(&Schedule) -> Option<Violation>> Shrinker<F> {
    /// One round of everything; whether anything became smaller.
    fn pass(&mut self) -> bool {
        let before = self.best.clone();
        self.drop_faults();
        self.calm_weather();
        self.reduce_shape();
        self.shorten();
        self.best != before
    }

    /// Keeps a candidate that breaks the same invariant.
    fn keep(&mut self, candidate: Schedule) -> bool {
        if self.runs >= MOST_RUNS || candidate == self.best || !candidate.shape.is_possible() {
            return false;
        }
        self.runs += 1;
        let found = (self.run)(&candidate);
        let same = found.filter(|v| v.invariant == self.violation.invariant);
        let Some(violation) = same else {
            return false;
        };
        (self.best, self.violation) = (candidate, violation);
        true
    }

    /// Halves, quarters, ... single ones; the time before what stays is kept.
    fn drop_faults(&mut self) {
        let mut chunk = self.best.faults.len().div_ceil(2);
        while chunk > 0 {
            let mut at = 0;
            while at < self.best.faults.len() {
                let mut candidate = self.best.clone();
                let end = (at + chunk).min(candidate.faults.len());
                let gone: u64 = candidate.faults.drain(at..end).map(|t| t.after_ms).sum();
                if let Some(next) = candidate.faults.get_mut(at) {
                    next.after_ms += gone;
                }
                if !self.keep(candidate) {
                    at += chunk;
                }
            }
            chunk /= 2;
        }
    }

    fn calm_weather(&mut self) {
        let calm: [fn(&mut Weather); 7] = [
            |w| w.message_ms = 0,
            |w| w.store_ms = 0,
            |w| w.duplicate_per_mille = 0,
            |w| w.tool_ms = 0,
            |w| w.turn_ms = 0,
            |w| w.tail_per_mille = 0,
            |w| w.late_per_mille = 0,
        ];
        for change in calm {
            let mut candidate = self.best.clone();
            change(&mut candidate.weather);
            self.keep(candidate);
        }
    }

    fn reduce_shape(&mut self) {
        let smaller: [fn(&mut Schedule); 13] = [
            |s| s.shape.nodes = s.shape.nodes.saturating_sub(1),
            |s| s.shape.spare = s.shape.spare.saturating_sub(1),
            |s| s.shape.far = false,
            |s| s.shape.hybrid = false,
            |s| s.shape.shared = false,
            |s| s.shape.policy = Policy::Role,
            |s| s.shape.mode = Mode::Async,
            |s| s.shape.steps = s.shape.steps.saturating_sub(1).max(1),
            |s| s.shape.ranks = s.shape.ranks.saturating_sub(1).max(1),
            |s| s.shape.rollouts = s.shape.rollouts.saturating_sub(1).max(1),
            |s| s.shape.agents = s.shape.agents.saturating_sub(1).max(1),
            |s| s.shape.prompts = 1,
            |s| s.shape.responses = s.shape.responses.saturating_sub(1).max(1),
        ];
        for change in smaller {
            let mut candidate = self.best.clone();
            change(&mut candidate);
            self.keep(candidate);
        }
    }

    fn shorten(&mut self) {
        let rounder: [fn(&mut Timed); 3] = [
            |t| t.on = None,
            |t| t.after_ms /= 2,
            |t| t.after_ms -= t.after_ms % 100,
        ];
        for at in 0..self.best.faults.len() {
            for change in rounder {
                let mut candidate = self.best.clone();
                change(&mut candidate.faults[at]);
                self.keep(candidate);
            }
        }
    }
}
