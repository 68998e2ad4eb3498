//! Effective training time ratio: an append-only ledger of intervals, and the
//! figures derived from it.
//!
//! ```text
//!  value 1.0    rollouts generate, or the trainer computes
//!  value R/(R+T) the trainer recovers and rollouts generate
//!  value 0      initialisation, task restart, and whatever blocks both
//!  waste        laid over the others afterwards: work whose result was thrown away
//! ```
//! ETTR is the integral of the plain intervals over the time since the job began; goodput is the
//! same minus the integral of the waste. Every closed interval also leaves the core as a journal
//! record, so all three can be computed again from the journal ([`totals`]).
mod curve;
mod parts;
mod spent;
mod window;

pub use curve::{Curve, Point};
pub use parts::{Part, PartKey, Seconds, Sums};
pub use spent::{Seen, Slice, Stretch, TimeSpent, WindowSpent};

use crate::changed::Changed;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use spent::Spent;
use std::time::Duration;
use window::{SECOND, Window};

/// Window of the sliding mean.
pub const WINDOW: Duration = Duration::from_secs(300);

/// Why an interval counts what it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Processes start; nothing has ever run.
    Initialisation,
    /// The trainer computes and rollouts generate.
    Both,
    /// Only the trainer computes.
    Training,
    /// Only rollouts generate.
    Generation,
    /// The trainer recovers while rollouts generate.
    TrainerRecovers,
    /// A recovery, and nothing else runs.
    Recovery,
    /// The whole task restarts.
    TaskRestart,
    /// The trainer's slots change hands, with neither training nor generation.
    ContextSwitch,
    /// An operator paused the job, with neither training nor generation.
    Paused,
    /// Weight sync, snapshot or waiting, with neither training nor generation.
    Blocked,
    /// Waste: a training step that has to be done again.
    StepRepeated,
    /// Waste: generation that has to be done again (policy `task`).
    GenerationRepeated,
}

crate::wire::named! {
    Cause:
    /// Its name in reports and JSON.
    name {
        Initialisation = "initialisation",
        Both = "both",
        Training = "training",
        Generation = "generation",
        TrainerRecovers = "trainer_recovers",
        Recovery = "recovery",
        TaskRestart = "task_restart",
        ContextSwitch = "context_switch",
        Paused = "paused",
        Blocked = "blocked",
        StepRepeated = "step_repeated",
        GenerationRepeated = "generation_repeated",
    }
}

impl Cause {
    /// Whether it lies over other intervals, and is subtracted.
    pub fn is_waste(self) -> bool {
        matches!(self, Cause::StepRepeated | Cause::GenerationRepeated)
    }
}

/// A stretch of time that counted the same throughout.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its begin.
    pub from: Time,
    /// Its end, exclusive.
    pub to: Time,
    /// What each of its instants counts, 0 to 1.
    pub value: f64,
    /// Why.
    pub cause: Cause,
    /// Whether it is subtracted from goodput instead of added to ETTR; it then lies over others.
    pub waste: bool,
}

impl Interval {
    /// Seconds it lasts.
    pub fn seconds(&self) -> f64 {
        self.to.since(self.from).as_secs_f64()
    }
}

/// The figures of a whole journal: (ETTR, goodput) between the first and last instant.
pub fn totals(intervals: &[Interval]) -> (f64, f64) {
    let plain = || intervals.iter().filter(|i| !i.waste);
    let (Some(from), Some(to)) = (plain().map(|i| i.from).min(), plain().map(|i| i.to).max())
    else {
        return (0.0, 0.0);
    };
    let span = to.since(from).as_secs_f64();
    if span == 0.0 {
        return (0.0, 0.0);
    }
    let sum = |waste: bool| -> f64 {
        intervals
            .iter()
            .filter(|i| i.waste == waste)
            .map(|i| i.value * i.seconds())
            .sum()
    };
    (sum(false) / span, (sum(false) - sum(true)).max(0.0) / span)
}

/// The ledger's running state: what the figures of this moment need, of bounded size. The intervals
/// themselves are in the journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    origin: Option<Time>,
    open: Option<Interval>,
    /// When it was closed, if nothing is open: the figures are those of that moment from then on.
    #[serde(default)]
    ended: Option<Time>,
    /// Counted seconds of all closed intervals.
    effective: f64,
    wasted: f64,
    /// Steps that were lost under way.
    #[serde(default)]
    steps_lost: u64,
    /// What the last seconds counted.
    #[serde(flatten)]
    counted: Window,
    /// And what of that was wasted, as far as it is known by now.
    #[serde(default)]
    counted_waste: Window,
    /// The training-bearing intervals since the running step began, for its waste.
    since_step: Vec<Interval>,
    /// Generation since the last commit: all of it is of batches that are not consumed.
    #[serde(default)]
    rolled: Rolled,
    /// Generation between the commit before and the last one, of which `ahead` is.
    #[serde(default)]
    rolled_before: Rolled,
    /// See `rolled_before`.
    #[serde(default)]
    ahead: f64,
    /// Where the time went, instant by instant.
    #[serde(default)]
    spent: Spent,
    /// Parts to be written down again, beside those of the windows.
    #[serde(skip)]
    changed: Changed<PartKey>,
}

/// Time in which engines generated, from some instant on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Rolled {
    from: Option<Time>,
    /// Counted seconds while only engines worked.
    alone: f64,
    /// Seconds beside a computing trainer, whose share is not theirs.
    beside: f64,
}

impl Rolled {
    fn add(&mut self, i: &Interval) {
        match i.cause {
            Cause::Both => self.beside += i.seconds(),
            Cause::Generation | Cause::TrainerRecovers => self.alone += i.value * i.seconds(),
            _ => return,
        }
        self.from.get_or_insert(i.from);
    }

    /// One interval from the first generation to `to` that counts as much as all of it.
    fn waste(&self, to: Time, share: f64, trainer_share: f64) -> Option<Interval> {
        let from = self.from.filter(|from| *from < to)?;
        let lost = (self.alone + self.beside * (1.0 - trainer_share)) * share;
        let value = lost / to.since(from).as_secs_f64();
        (value > 0.0).then_some(Interval {
            from,
            to,
            value,
            cause: Cause::GenerationRepeated,
            waste: true,
        })
    }
}

impl Ledger {
    /// States what every instant from `now` on counts. Returns the interval this closes, if it
    /// changed anything and was not empty.
    pub fn turn(&mut self, now: Time, value: f64, cause: Cause) -> Option<Interval> {
        self.origin.get_or_insert(now);
        if self
            .open
            .is_some_and(|o| o.value == value && o.cause == cause)
        {
            return None;
        }
        let closed = self.close(now);
        self.note_sums();
        self.ended = None;
        self.open = Some(Interval {
            from: now,
            to: now,
            value,
            cause,
            waste: false,
        });
        closed
    }

    /// Ends the open interval, as at the end of the job or when the daemon was away.
    pub fn close(&mut self, now: Time) -> Option<Interval> {
        let open = self.open.take()?;
        self.note_sums();
        self.ended = Some(now.max(open.from));
        let closed = Interval {
            to: now.max(open.from),
            ..open
        };
        self.spent.stop(closed.to);
        if closed.to == closed.from {
            return None;
        }
        self.effective += closed.value * closed.seconds();
        self.counted.add(closed.from, closed.to, closed.value);
        self.rolled.add(&closed);
        if matches!(closed.cause, Cause::Both | Cause::Training) && self.since_step.len() < 4096 {
            self.note_training(closed);
        }
        Some(closed)
    }

    /// A training step begins at `now`; what comes is wasted if it has to be done again.
    pub fn step_begins(&mut self, now: Time) -> Option<Interval> {
        let closed = self.cut(now);
        self.note_sums();
        self.take_trainings();
        closed
    }

    /// Ends the open interval and goes on with an equal one.
    fn cut(&mut self, now: Time) -> Option<Interval> {
        let (again, doing) = (self.open, self.spent.doing());
        let closed = self.close(now);
        self.open = again.map(|o| Interval { from: now, ..o });
        if let Some(slice) = doing.filter(|_| again.is_some()) {
            self.spent.turn(now, slice);
        }
        self.ended = self.ended.filter(|_| again.is_none());
        closed
    }

    /// The step since [`Self::step_begins`] was lost at `now`: the waste to journal, of which each
    /// instant costs the trainer's share where rollouts generated too, else everything.
    pub fn step_lost(&mut self, now: Time, trainer_share: f64) -> Vec<Interval> {
        self.note_sums();
        self.spent.settle(now);
        self.steps_lost += 1;
        let mut lost = self.take_trainings();
        if let Some(open) = self.open
            && matches!(open.cause, Cause::Both | Cause::Training)
            && now > open.from
        {
            lost.push(Interval { to: now, ..open });
        }
        for interval in &mut lost {
            interval.value = match interval.cause {
                Cause::Both => trainer_share,
                _ => 1.0,
            };
            interval.cause = Cause::StepRepeated;
            interval.waste = true;
        }
        self.waste(&lost);
        lost
    }

    /// The step was committed: nothing of it can be lost any more. Of what was generated since the
    /// last commit, the share `ahead` is of later batches. Returns the interval this closes.
    pub fn step_kept(&mut self, now: Time, ahead: f64) -> Option<Interval> {
        let closed = self.cut(now);
        self.note_sums();
        self.take_trainings();
        self.rolled_before = std::mem::take(&mut self.rolled);
        self.ahead = ahead;
        closed
    }

    /// What was generated for batches that are not consumed was lost at `now`: what to journal, the
    /// interval this closes first.
    pub fn generation_lost(&mut self, now: Time, trainer_share: f64) -> Vec<Interval> {
        let closed = self.cut(now);
        self.note_sums();
        let since = std::mem::take(&mut self.rolled);
        let before = std::mem::take(&mut self.rolled_before);
        let end = since.from.unwrap_or(now);
        let lost = [
            before.waste(end, self.ahead, trainer_share),
            since.waste(now, 1.0, trainer_share),
        ];
        let lost: Vec<_> = lost.into_iter().flatten().collect();
        self.waste(&lost);
        closed.into_iter().chain(lost).collect()
    }

    /// Takes in what turned out to be wasted.
    fn waste(&mut self, lost: &[Interval]) {
        for i in lost {
            self.wasted += i.value * i.seconds();
            self.counted_waste.add(i.from, i.to, i.value);
            self.spent.lay_over(i.from, i.to, i.value, Slice::Replayed);
        }
    }

    /// Says what every instant from `now` on is, after [`Self::turn`] was told what it counts.
    pub fn spend(&mut self, now: Time, slice: Slice) {
        if self.spent.turn(now, slice) {
            self.note_sums();
        }
    }

    /// What the present instant is; none while nothing is counted.
    pub fn doing(&self) -> Option<Slice> {
        self.spent.doing()
    }

    /// A fault that stops the trainer was found at `now`, and had struck before: what seemed to be work since then was
    /// time in which nobody had seen it.
    pub fn found(&mut self, struck: Time, now: Time) {
        self.note_sums();
        self.spent.settle(now);
        self.spent.lay_over(struck, now, 1.0, Slice::Detect);
    }

    /// Where the time went, as it is at `now`.
    pub fn spent(&self, now: Time) -> TimeSpent {
        let Some(origin) = self.origin else {
            return TimeSpent::default();
        };
        let now = self.ended.map_or(now, |ended| ended.min(now));
        self.spent.at(origin, now)
    }

    /// This ledger as if closed at `now`.
    fn settled(&self, now: Time) -> Ledger {
        let mut copy = self.clone();
        copy.close(now);
        copy
    }

    /// The figures at `now`.
    pub fn figures(&self, now: Time) -> Figures {
        let Some(origin) = self.origin else {
            return Figures::default();
        };
        let now = self.ended.map_or(now, |ended| ended.min(now));
        let ledger = self.settled(now);
        let span = now.since(origin).as_secs_f64();
        let over = |sum: f64| {
            if span > 0.0 {
                (sum / span).clamp(0.0, 1.0)
            } else {
                0.0
            }
        };
        let (history, goodput_history) = ledger.history(origin, now);
        let (sliding, goodput_sliding) = ledger.mean_until(origin, now.0);
        Figures {
            sliding,
            total: over(ledger.effective),
            goodput: over(ledger.effective - ledger.wasted),
            goodput_sliding,
            history,
            goodput_history,
            steps_repeated: ledger.steps_lost,
        }
    }

    fn history(&self, origin: Time, now: Time) -> (Vec<f64>, Vec<f64>) {
        let last = now.0 / SECOND;
        let first = (origin.0 / SECOND + 1).max((last + 1).saturating_sub(300));
        (first..=last)
            .map(|second| self.mean_until(origin, second * SECOND))
            .unzip()
    }

    /// Means over the window that ends at `end`, of ETTR and goodput; its begin is rounded to a whole
    /// second.
    fn mean_until(&self, origin: Time, end: u64) -> (f64, f64) {
        let window = u64::try_from(WINDOW.as_micros()).unwrap_or(u64::MAX);
        let begin = match end.checked_sub(window) {
            Some(b) if b > origin.0 => b / SECOND * SECOND,
            _ => origin.0,
        };
        if end <= begin {
            return (0.0, 0.0);
        }
        let mean = |sum: f64| (sum / (end - begin) as f64).clamp(0.0, 1.0);
        let sum = self.counted.sum(begin, end);
        (mean(sum), mean(sum - self.counted_waste.sum(begin, end)))
    }
}

/// ETTR at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Mean over the last five minutes.
    pub sliding: f64,
    /// Mean since the job began.
    pub total: f64,
    /// The same minus what was thrown away.
    pub goodput: f64,
    /// Goodput over the last five minutes, as far as is known by now what was thrown away.
    pub goodput_sliding: f64,
    /// The sliding mean at each of the last 300 whole seconds, oldest first.
    pub history: Vec<f64>,
    /// The same of goodput; it falls afterwards where work turns out to be lost.
    pub goodput_history: Vec<f64>,
    /// Training steps that were lost under way and done again.
    pub steps_repeated: u64,
}

#[cfg(test)]
mod tests;
