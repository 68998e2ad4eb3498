//! The figures of committed steps, as far as this console knows them: the last one comes with each status, those before
//! and between are asked for.
use robust_proto::v1::{Status, StepLine};
use std::collections::BTreeMap;

/// Steps kept: as many as the daemon tells at once.
const KEPT: usize = 2_000;

/// Of one job.
#[derive(Debug, Default)]
pub struct Steps {
    lines: BTreeMap<u64, StepLine>,
    /// Up to here nothing is asked for any more; none: nothing was told yet.
    told: Option<u64>,
}

impl Steps {
    /// Takes in a status.
    pub fn observe(&mut self, status: &Status) {
        let Some(line) = status.last_step else {
            return;
        };
        // Steps behind it were undone: they are trained again, and may come out otherwise.
        self.lines.split_off(&line.step);
        self.lines.insert(line.step, line);
        self.told = self.told.map(|told| told.min(line.step));
        self.forget_old();
    }

    /// Takes in what was asked for.
    pub fn told(&mut self, lines: Vec<StepLine>) {
        for line in lines {
            self.lines.entry(line.step).or_insert(line);
        }
        self.forget_old();
        // Of what is missing still, the daemon has nothing.
        self.told = Some(self.newest().unwrap_or(0));
    }

    /// The daemon is of an older build, which cannot be asked.
    pub fn never_told(&mut self) {
        self.told = Some(u64::MAX);
    }

    /// The step whose followers are to be asked for, 0 for the newest of all: nothing was told yet, or some were committed between two statuses.
    pub fn lacking(&self) -> Option<u64> {
        let Some(told) = self.told else {
            return Some(0);
        };
        let mut before = told;
        for step in self.lines.range(told..).map(|(step, _)| *step) {
            if step > before + 1 {
                // Of a gap that is longer than what is kept only the end is wanted.
                let is_long = step - before > KEPT as u64;
                return Some(if is_long { 0 } else { before });
            }
            before = step;
        }
        None
    }

    /// The first one known.
    pub fn oldest(&self) -> Option<u64> {
        self.lines.keys().next().copied()
    }

    /// The last one.
    pub fn newest(&self) -> Option<u64> {
        self.lines.keys().next_back().copied()
    }

    /// One of them.
    pub fn get(&self, step: u64) -> Option<&StepLine> {
        self.lines.get(&step)
    }

    fn forget_old(&mut self) {
        while self.lines.len() > KEPT {
            self.lines.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64) -> StepLine {
        StepLine {
            step,
            reward: step as f64,
            ..StepLine::default()
        }
    }

    fn at(step: u64) -> Status {
        Status {
            last_step: Some(line(step)),
            ..Status::default()
        }
    }

    fn known(steps: &Steps) -> Vec<u64> {
        steps.lines.keys().copied().collect()
    }

    #[test]
    fn the_past_is_asked_for_once_and_what_was_missed_between_two_statuses_later() {
        let mut steps = Steps::default();
        assert_eq!(steps.lacking(), Some(0));
        steps.observe(&at(5));
        assert_eq!(steps.lacking(), Some(0));
        steps.told((1..=5).map(line).collect());
        assert_eq!(
            (known(&steps), steps.lacking()),
            (vec![1, 2, 3, 4, 5], None)
        );
        steps.observe(&at(6));
        assert_eq!(steps.lacking(), None);
        steps.observe(&at(9));
        assert_eq!(steps.lacking(), Some(6));
        steps.told(vec![line(7), line(8), line(9), line(10)]);
        assert_eq!((steps.newest(), steps.lacking()), (Some(10), None));
    }

    #[test]
    fn after_a_long_absence_the_newest_steps_are_asked_for() {
        let mut steps = Steps::default();
        steps.told((1..=5).map(line).collect());
        let far = 5 + KEPT as u64;
        steps.observe(&at(far));
        assert_eq!(steps.lacking(), Some(5));
        let mut steps = Steps::default();
        steps.told((1..=5).map(line).collect());
        steps.observe(&at(far + 1));
        assert_eq!(steps.lacking(), Some(0), "the newest");
    }

    #[test]
    fn what_the_daemon_does_not_have_is_not_asked_for_again() {
        let mut steps = Steps::default();
        steps.observe(&at(7));
        steps.told(vec![line(7)]);
        assert_eq!(steps.lacking(), None, "steps 1 to 6 are not on record");
        steps.observe(&at(9));
        steps.told(vec![line(9)]);
        assert_eq!((known(&steps), steps.lacking()), (vec![7, 9], None));
        let mut old = Steps::default();
        old.never_told();
        old.observe(&at(3));
        assert_eq!(old.lacking(), None);
    }

    #[test]
    fn steps_that_were_undone_are_gone_until_they_are_committed_again() {
        let mut steps = Steps::default();
        steps.told((1..=10).map(line).collect());
        let again = StepLine {
            reward: -1.0,
            ..line(8)
        };
        steps.observe(&Status {
            last_step: Some(again),
            ..Status::default()
        });
        assert_eq!((steps.newest(), steps.lacking()), (Some(8), None));
        assert_eq!(steps.get(8).map(|line| line.reward), Some(-1.0));
        steps.observe(&at(9));
        assert_eq!((steps.newest(), steps.lacking()), (Some(9), None));
    }

    #[test]
    fn the_oldest_of_too_many_go() {
        let mut steps = Steps::default();
        steps.told((1..=KEPT as u64 + 5).map(line).collect());
        assert_eq!((steps.oldest(), known(&steps).len()), (Some(6), KEPT));
    }
}
