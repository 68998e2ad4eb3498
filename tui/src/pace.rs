//! When the job will be done: the steps that are left, each as long as the median of those that were seen last.
//!
//! ```text
//!  ETA = (steps wanted - steps done) x median(wall time of the last 20 steps seen)
//! ```
//! The wall time of a step is that from its commit back to the one before, so recoveries between them are in it; a
//! median lets a few of those pass without moving it. What of the step under way is done already is not counted off.
use robust_proto::v1;
use robust_shared::median::median;
use std::collections::VecDeque;

/// So many steps count.
const STEPS: usize = 20;

/// The wall times of the steps that were seen last.
#[derive(Debug, Default)]
pub struct Pace {
    /// Seconds, oldest first.
    seen: VecDeque<f64>,
    /// The newest of those steps.
    step: u64,
}

impl Pace {
    /// Takes in a status: a step that it saw committed counts once.
    pub fn observe(&mut self, status: &v1::Status) {
        if status.step < self.step {
            // A job that went back to an earlier checkpoint begins anew.
            *self = Pace::default();
        }
        let is_new = status.step > self.step && status.step_seconds > 0.0;
        if !is_new {
            return;
        }
        self.step = status.step;
        self.seen.push_back(status.step_seconds);
        if self.seen.len() > STEPS {
            self.seen.pop_front();
        }
    }

    /// Seconds until the last step; none: nobody knows how many there are or how long one takes, or the job stands
    /// still because an operator wants it to.
    pub fn eta_s(&self, status: &v1::Status) -> Option<f64> {
        let left = status.steps_total.checked_sub(status.step)?;
        if left == 0 || status.pause.is_some() {
            return None;
        }
        Some(left as f64 * self.median()?)
    }

    fn median(&self) -> Option<f64> {
        median(&mut self.seen.iter().copied().collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(step: u64, step_seconds: f64) -> v1::Status {
        v1::Status {
            step,
            step_seconds,
            steps_total: 100,
            ..Default::default()
        }
    }

    fn seen(steps: &[(u64, f64)]) -> Pace {
        let mut pace = Pace::default();
        for (step, seconds) in steps {
            pace.observe(&at(*step, *seconds));
        }
        pace
    }

    #[test]
    fn one_step_that_took_a_recovery_along_does_not_move_it() {
        let pace = seen(&[(1, 10.0), (2, 10.0), (3, 600.0), (4, 10.0), (5, 10.0)]);
        assert_eq!(pace.eta_s(&at(40, 10.0)), Some(600.0));
    }

    #[test]
    fn a_step_counts_once_however_many_statuses_tell_of_it() {
        let pace = seen(&[(1, 10.0), (2, 30.0), (2, 30.0), (2, 30.0), (3, 10.0)]);
        assert_eq!(pace.eta_s(&at(90, 10.0)), Some(100.0));
    }

    #[test]
    fn new_habits_win_after_twenty_steps() {
        let steps: Vec<(u64, f64)> = (1..=40)
            .map(|step| (step, if step <= 20 { 100.0 } else { 1.0 }))
            .collect();
        assert_eq!(seen(&steps).eta_s(&at(40, 1.0)), Some(60.0));
    }

    #[test]
    fn where_it_cannot_be_known_nothing_is_said() {
        let pace = seen(&[(1, 10.0)]);
        let endless = v1::Status {
            steps_total: 0,
            ..at(5, 10.0)
        };
        let paused = v1::Status {
            pause: Some(v1::Pause::default()),
            ..at(5, 10.0)
        };
        for status in [endless, paused, at(100, 10.0)] {
            assert_eq!(pace.eta_s(&status), None);
        }
        assert_eq!(Pace::default().eta_s(&at(5, 0.0)), None, "no step was seen");
    }
}
