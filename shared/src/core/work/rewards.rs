//! The mean rewards of the last steps, for whoever watches.
use crate::changed::Changed;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::VecDeque;

/// So many are kept, for the console.
const KEPT: usize = 300;

/// The rewards of the last steps, oldest first. Each has a number, one more than the one before it, which
/// it keeps for as long as it is kept: the entry under which it is stored is written once.
#[derive(Clone, Debug, Default)]
pub struct Rewards {
    all: VecDeque<f64>,
    /// The number of the oldest.
    first: u64,
    changed: Changed<u64>,
}

impl Rewards {
    /// A step's, the newest.
    pub fn push(&mut self, reward: f64) {
        if self.all.len() == KEPT {
            self.changed.note(self.first);
            self.all.pop_front();
            self.first += 1;
        }
        self.changed.note(self.first + self.all.len() as u64);
        self.all.push_back(reward);
    }

    /// The newest.
    pub fn last(&self) -> Option<f64> {
        self.all.back().copied()
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = f64> {
        self.all.iter().copied()
    }

    /// The one of a number.
    pub(in crate::core) fn get(&self, number: u64) -> Option<f64> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.all.get(at).copied()
    }

    /// The numbers of all of them.
    pub(in crate::core) fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.all.len() as u64
    }

    /// Numbers of those that came or went since this was last asked; none: all of them.
    pub(in crate::core) fn take_changed(&mut self) -> Option<Vec<u64>> {
        self.changed.take()
    }
}

/// Equal are those that remember the same, whatever the numbers.
impl PartialEq for Rewards {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

/// In the order of their numbers.
impl FromIterator<(u64, f64)> for Rewards {
    fn from_iter<I: IntoIterator<Item = (u64, f64)>>(numbered: I) -> Self {
        let mut rewards = Self::default();
        for (number, reward) in numbered {
            if rewards.all.is_empty() {
                rewards.first = number;
            }
            rewards.all.push_back(reward);
        }
        rewards
    }
}

impl Serialize for Rewards {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Rewards {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let all = VecDeque::<f64>::deserialize(from)?;
        Ok((0..).zip(all).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_comes_when_all_places_are_taken_costs_two_entries_whatever_is_kept() {
        let mut rewards = Rewards::default();
        (0..KEPT).for_each(|n| rewards.push(n as f64));
        assert_eq!(rewards.take_changed(), None);
        rewards.push(-1.0);
        let kept = KEPT as u64;
        assert_eq!(rewards.take_changed(), Some(vec![0, kept]));
        assert_eq!((rewards.get(0), rewards.get(kept)), (None, Some(-1.0)));
        let numbered = rewards.numbers().zip(rewards.iter());
        assert_eq!(numbered.collect::<Rewards>(), rewards);
    }
}
