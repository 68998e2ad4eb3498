//! The ledger in parts, so that what is written down of it is what changed, however much it remembers.
//!
//! ```text
//!  sums      what all figures but the sliding ones are made of: always written when anything changed
//!  counted   what 16 seconds of the sliding window counted; one of only zeros is not written
//!  wasted    the same of the waste
//!  training  one training-bearing interval of the running step
//! ```
use super::window::{CHUNK, Ends};
use super::{Interval, Ledger, Rolled, Spent};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartKey {
    /// The sums; without them there is no ledger.
    Sums,
    /// So many times 16 seconds after time zero.
    Counted(u64),
    /// The same.
    Wasted(u64),
    /// The how-manieth since the step began.
    Training(u32),
}

/// The sums, and the ends of what the other parts are pieces of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    origin: Option<Time>,
    open: Option<Interval>,
    ended: Option<Time>,
    effective: f64,
    wasted: f64,
    steps_lost: u64,
    counted: Ends,
    counted_waste: Ends,
    training: u32,
    rolled: Rolled,
    rolled_before: Rolled,
    ahead: f64,
    /// None in what a former build wrote: its time is in no slice.
    #[serde(default)]
    spent: Spent,
}

/// What the seconds of a chunk counted.
pub type Seconds = [f64; CHUNK];

/// A part.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Part {
    /// Of [`PartKey::Sums`].
    Sums(Box<Sums>),
    /// Of [`PartKey::Counted`] and [`PartKey::Wasted`].
    Seconds(Seconds),
    /// Of [`PartKey::Training`].
    Training(Interval),
}

impl Ledger {
    /// The parts that changed since this was last asked, those that are no more without a value; all that
    /// it has if that is wanted, or if it was never asked.
    pub fn take_parts(&mut self, whole: bool) -> Vec<(PartKey, Option<Part>)> {
        let keys = match self.take_changed() {
            Some(keys) if !whole => keys,
            _ => self.keys(),
        };
        let with_part = |key| (key, self.part(key));
        keys.into_iter().map(with_part).collect()
    }

    /// The ledger of such parts, in the order of their keys; none where not all are there.
    pub fn from_parts(parts: impl IntoIterator<Item = (PartKey, Part)>) -> Option<Self> {
        let mut ledger = Self::default();
        let (mut sums, mut seconds) = (None, Vec::new());
        for (key, part) in parts {
            match (key, part) {
                (PartKey::Sums, Part::Sums(part)) => sums = Some(*part),
                (PartKey::Training(_), Part::Training(i)) => ledger.since_step.push(i),
                (key, Part::Seconds(part)) => seconds.push((key, part)),
                _ => {}
            }
        }
        let sums = sums?;
        ledger.counted.set_ends(sums.counted)?;
        ledger.counted_waste.set_ends(sums.counted_waste)?;
        for (key, part) in seconds {
            match key {
                PartKey::Counted(chunk) => ledger.counted.put_chunk(chunk, &part),
                PartKey::Wasted(chunk) => ledger.counted_waste.put_chunk(chunk, &part),
                PartKey::Sums | PartKey::Training(_) => {}
            }
        }
        let all = ledger.trainings() == sums.training;
        all.then_some(Self {
            origin: sums.origin,
            open: sums.open,
            ended: sums.ended,
            effective: sums.effective,
            wasted: sums.wasted,
            steps_lost: sums.steps_lost,
            rolled: sums.rolled,
            rolled_before: sums.rolled_before,
            ahead: sums.ahead,
            spent: sums.spent,
            ..ledger
        })
    }

    fn take_changed(&mut self) -> Option<Vec<PartKey>> {
        // Each is asked, whatever the others say: what was asked once is noted from then on.
        let (own, counted) = (self.changed.take(), self.counted.take_changed());
        let (wasted, mut keys) = (self.counted_waste.take_changed(), own?);
        keys.extend(counted?.into_iter().map(PartKey::Counted));
        keys.extend(wasted?.into_iter().map(PartKey::Wasted));
        Some(keys)
    }

    /// Every part that it has.
    fn keys(&self) -> Vec<PartKey> {
        let counted = self.counted.chunks().map(PartKey::Counted);
        let wasted = self.counted_waste.chunks().map(PartKey::Wasted);
        let training = (0..self.trainings()).map(PartKey::Training);
        let sums = std::iter::once(PartKey::Sums);
        sums.chain(counted).chain(wasted).chain(training).collect()
    }

    fn trainings(&self) -> u32 {
        u32::try_from(self.since_step.len()).unwrap_or(u32::MAX)
    }

    fn part(&self, key: PartKey) -> Option<Part> {
        match key {
            PartKey::Sums => Some(Part::Sums(Box::new(self.sums()))),
            PartKey::Counted(chunk) => self.counted.chunk(chunk).map(Part::Seconds),
            PartKey::Wasted(chunk) => self.counted_waste.chunk(chunk).map(Part::Seconds),
            PartKey::Training(at) => {
                let interval = self.since_step.get(at as usize);
                interval.copied().map(Part::Training)
            }
        }
    }

    fn sums(&self) -> Sums {
        Sums {
            origin: self.origin,
            open: self.open,
            ended: self.ended,
            effective: self.effective,
            wasted: self.wasted,
            steps_lost: self.steps_lost,
            counted: self.counted.ends(),
            counted_waste: self.counted_waste.ends(),
            training: self.trainings(),
            rolled: self.rolled,
            rolled_before: self.rolled_before,
            ahead: self.ahead,
            spent: self.spent.clone(),
        }
    }

    /// The sums are others.
    pub(super) fn note_sums(&mut self) {
        self.changed.note(PartKey::Sums);
    }

    /// One training-bearing interval more in the running step.
    pub(super) fn note_training(&mut self, interval: Interval) {
        self.changed.note(PartKey::Training(self.trainings()));
        self.since_step.push(interval);
    }

    /// Another step is the running one.
    pub(super) fn take_trainings(&mut self) -> Vec<Interval> {
        let keys = (0..self.trainings()).map(PartKey::Training);
        self.changed.note_all(keys);
        std::mem::take(&mut self.since_step)
    }
}
