//! Group-relative advantages (GRPO).
//!
//! "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models"
//! (arXiv:2402.03300), section 4.1.2, outcome supervision: of a group of responses to one prompt
//! with rewards `r_1..r_G`, every token of response `i` gets
//! `A_i = (r_i - mean(r)) / std(r)`. The group takes the place of a value model.

use std::collections::BTreeMap;

/// Added to the standard deviation, as verl and TRL do, so that a group whose rewards hardly differ
/// does not get huge advantages.
pub const STD_EPS: f64 = 1e-6;

/// Why rewards have no advantages.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GrpoError {
    /// Groups of one response have no one to be compared with.
    #[error("groups of {0} responses: an advantage needs at least 2")]
    GroupSize(usize),
    /// The rewards do not make whole groups.
    #[error("{rewards} rewards are no whole number of groups of {group_size}")]
    NotWhole {
        /// Rewards given.
        rewards: usize,
        /// Responses per group.
        group_size: usize,
    },
    /// Not every reward has its group.
    #[error("{rewards} rewards with {groups} groups")]
    Groups {
        /// Rewards given.
        rewards: usize,
        /// Groups given.
        groups: usize,
    },
    /// A reward is NaN or infinite.
    #[error("reward {index} is {value}")]
    NotFinite {
        /// Its place.
        index: usize,
        /// Its value.
        value: f64,
    },
}

/// How many groups rewards make, and how many of those have the same reward for each response: they teach nothing.
pub fn flat_groups(rewards: &[f64], groups: &[u32]) -> (u32, u32) {
    let mut seen: BTreeMap<u32, (f64, bool)> = BTreeMap::new();
    for (reward, group) in rewards.iter().zip(groups) {
        let (first, flat) = seen.entry(*group).or_insert((*reward, true));
        *flat &= first == reward;
    }
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let flat = seen.values().filter(|(_, flat)| *flat).count();
    (count(seen.len()), count(flat))
}

/// One advantage per reward. Consecutive `group_size` rewards are a group; within it the advantages
/// have mean 0 and (but for [`STD_EPS`]) standard deviation 1, with Bessel's correction as in the
/// common implementations. A group of equal rewards gets zeros: it teaches nothing.
pub fn advantages(rewards: &[f64], group_size: usize) -> Result<Vec<f64>, GrpoError> {
    if group_size < 2 {
        return Err(GrpoError::GroupSize(group_size));
    }
    if !rewards.len().is_multiple_of(group_size) {
        return Err(GrpoError::NotWhole {
            rewards: rewards.len(),
            group_size,
        });
    }
    all_finite(rewards)?;
    Ok(rewards.chunks(group_size).flat_map(of_group).collect())
}

/// One advantage per reward, of groups of any size: consecutive rewards of the same group are one.
/// A group may lack responses that were set aside, which then count in no mean; of one response that
/// is left alone nothing is learned.
pub fn advantages_by<G: PartialEq>(rewards: &[f64], groups: &[G]) -> Result<Vec<f64>, GrpoError> {
    if rewards.len() != groups.len() {
        let (rewards, groups) = (rewards.len(), groups.len());
        return Err(GrpoError::Groups { rewards, groups });
    }
    all_finite(rewards)?;
    let (mut found, mut from) = (Vec::with_capacity(rewards.len()), 0);
    for group in groups.chunk_by(PartialEq::eq) {
        let to = from + group.len();
        found.extend(of_group(&rewards[from..to]));
        from = to;
    }
    Ok(found)
}

fn all_finite(rewards: &[f64]) -> Result<(), GrpoError> {
    match rewards.iter().enumerate().find(|(_, r)| !r.is_finite()) {
        Some((index, &value)) => Err(GrpoError::NotFinite { index, value }),
        None => Ok(()),
    }
}

fn of_group(rewards: &[f64]) -> Vec<f64> {
    // Exactly: a mean's rounding error divided by STD_EPS would be an advantage.
    if rewards.iter().all(|&r| r == rewards[0]) {
        return vec![0.0; rewards.len()];
    }
    let mean = rewards.iter().sum::<f64>() / rewards.len() as f64;
    let squares = rewards.iter().map(|r| (r - mean).powi(2)).sum::<f64>();
    let std = (squares / (rewards.len() - 1) as f64).sqrt();
    rewards
        .iter()
        .map(|r| (r - mean) / (std + STD_EPS))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn advantages_are_relative_to_the_own_group() {
        let got = advantages(&[1.0, 0.0, 0.0, 0.0, 5.0, 5.0, 5.0, 5.0], 4).unwrap();
        let expected = [1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 0.0, 0.0];
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-5, "{got} {expected}");
        }
    }

    #[test]
    fn rewards_that_make_no_groups_are_refused() {
        let text = |rewards: &[f64], size| advantages(rewards, size).unwrap_err().to_string();
        assert_eq!(
            text(&[1.0], 1),
            "groups of 1 responses: an advantage needs at least 2"
        );
        assert_eq!(
            text(&[1.0; 3], 2),
            "3 rewards are no whole number of groups of 2"
        );
        assert_eq!(text(&[1.0, f64::NAN], 2), "reward 1 is NaN");
        assert_eq!(advantages(&[], 8), Ok(vec![]));
    }

    #[test]
    fn one_that_is_left_out_counts_in_no_mean_and_one_that_is_alone_teaches_nothing() {
        let whole = advantages(&[1.0, 0.0, 0.0, 1.0, 0.0, 2.0], 3).unwrap();
        let rewards = [1.0, 0.0, 0.0, 1.0, 0.0, 2.0, 0.7];
        let got = advantages_by(&rewards, &[0, 0, 0, 1, 1, 1, 4]).unwrap();
        assert_eq!((&got[..6], got[6]), (&whole[..], 0.0));
        let two = advantages_by(&[1.0, 2.0, 0.0], &[0, 1, 1]).unwrap();
        assert_eq!((two[0], two[1] + two[2]), (0.0, 0.0));
        assert!(two[1] > 0.7);
        let text = advantages_by(&[1.0], &[0, 0]).unwrap_err().to_string();
        assert_eq!(text, "1 rewards with 2 groups");
        let nan = advantages_by(&[f64::NAN], &[0]).unwrap_err().to_string();
        assert_eq!(nan, "reward 0 is NaN");
    }

    proptest! {
        #[test]
        fn a_group_has_mean_zero_and_unit_spread_or_is_all_zero(
            rewards in prop::collection::vec(-10.0..10.0_f64, 8)
        ) {
            let got = advantages(&rewards, 8).unwrap();
            let mean = got.iter().sum::<f64>() / 8.0;
            let variance = got.iter().map(|a| a * a).sum::<f64>() / 7.0;
            prop_assert!(mean.abs() < 1e-6);
            prop_assert!((variance - 1.0).abs() < 1e-2 || variance < 1.0);
        }

        #[test]
        fn equal_rewards_teach_nothing(reward in any::<f64>(), size in 2_usize..9) {
            prop_assume!(reward.is_finite());
            prop_assert!(advantages(&vec![reward; size], size).unwrap().iter().all(|&a| a == 0.0));
        }
    }
}
