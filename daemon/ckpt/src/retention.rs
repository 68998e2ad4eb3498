//! Which checkpoints stay: a pure rule over what is there.
use robust_shared::ids::Step;
use std::cmp::Ordering;

/// What stays. A checkpoint stays if one of the rules wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The newest so many; at least one.
    pub last: usize,
    /// Those of steps that this divides; 0: none for this.
    pub every: u64,
    /// The so many with the highest mean reward; of equal ones the newer.
    pub best: usize,
}

/// What the rule looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// The step.
    pub step: Step,
    /// Mean reward of its batch, where it is on record.
    pub reward: Option<f64>,
    /// An operator wants it to stay.
    pub pinned: bool,
    /// Its manifest can be read: training could go on from it.
    pub usable: bool,
}

impl Retention {
    /// Steps whose checkpoints need not stay, oldest first. One that is of no use takes nobody's place,
    /// and goes with what is older than the newest ones of use.
    pub fn surplus(&self, all: &[Known]) -> Vec<Step> {
        let mut known: Vec<&Known> = all.iter().collect();
        known.sort_by_key(|k| k.step);
        let mut newest = known.iter().rev().filter(|k| k.usable);
        let Some(oldest_of_last) = newest.nth(self.last.max(1) - 1).map(|k| k.step) else {
            return Vec::new();
        };
        let mut ranked: Vec<(f64, Step)> = known
            .iter()
            .filter_map(|k| Some((k.reward.filter(|r| !r.is_nan())?, k.step)))
            .collect();
        ranked.sort_by(|a, b| match b.0.total_cmp(&a.0) {
            Ordering::Equal => b.1.cmp(&a.1),
            by_reward => by_reward,
        });
        let best: Vec<Step> = ranked
            .iter()
            .take(self.best)
            .map(|(_, step)| *step)
            .collect();
        let stays = |k: &Known| {
            let multiple = self.every > 0 && k.step.0.is_multiple_of(self.every);
            k.pinned || multiple || best.contains(&k.step)
        };
        let old = known.into_iter().filter(|k| k.step < oldest_of_last);
        old.filter(|k| !stays(k)).map(|k| k.step).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn known(step: u64, reward: f64) -> Known {
        Known {
            step: Step(step),
            reward: Some(reward),
            pinned: false,
            usable: true,
        }
    }

    fn damaged(step: u64) -> Known {
        Known {
            reward: None,
            usable: false,
            ..known(step, 0.0)
        }
    }

    fn steps(rule: (usize, u64, usize), all: &[Known]) -> Vec<u64> {
        let (last, every, best) = rule;
        let rule = Retention { last, every, best };
        rule.surplus(all).iter().map(|s| s.0).collect()
    }

    #[test]
    fn each_rule_alone_keeps_what_it_names() {
        let all: Vec<_> = (1..=6)
            .map(|n| known(n * 10, f64::from(7 - n as u32)))
            .collect();
        assert_eq!(steps((2, 0, 0), &all), [10, 20, 30, 40]);
        assert_eq!(steps((1, 20, 0), &all), [10, 30, 50]);
        assert_eq!(
            steps((1, 0, 2), &all),
            [30, 40, 50],
            "10 and 20 had the best rewards"
        );
        let mut pinned = all.clone();
        pinned[2].pinned = true;
        assert_eq!(steps((1, 0, 0), &pinned), [10, 20, 40, 50]);
    }

    #[test]
    fn the_newest_stays_whatever_the_numbers_say() {
        assert_eq!(steps((0, 0, 0), &[known(1, 0.0), known(2, 0.0)]), [1]);
    }

    #[test]
    fn damaged_ones_take_nobodys_place_and_go_when_they_are_older_than_what_stays() {
        let mut all = vec![
            known(10, 0.0),
            damaged(20),
            damaged(30),
            known(40, 0.0),
            damaged(50),
        ];
        assert!(steps((3, 0, 0), &all).is_empty(), "only two are of use");
        assert_eq!(steps((1, 0, 0), &all), [10, 20, 30]);
        all.push(known(60, 0.0));
        assert_eq!(steps((2, 0, 0), &all), [10, 20, 30]);
        assert!(steps((1, 0, 0), &[damaged(1), damaged(2)]).is_empty());
    }

    #[test]
    fn a_step_without_a_reward_is_not_among_the_best() {
        let unknown = Known {
            reward: None,
            ..known(1, 0.0)
        };
        let nan = known(2, f64::NAN);
        assert_eq!(
            steps((1, 0, 1), &[unknown, nan, known(3, -1.0), known(4, -2.0)]),
            [1, 2]
        );
    }

    proptest! {
        #[test]
        fn nothing_the_rules_name_ever_goes(
            all in prop::collection::btree_map(
                0_u64..200,
                (any::<Option<i8>>(), any::<bool>(), any::<bool>()),
                0..40,
            ),
            last in 0_usize..6, every in 0_u64..7, best in 0_usize..4,
        ) {
            let all: Vec<_> = all
                .into_iter()
                .map(|(step, (reward, pinned, usable))| Known {
                    step: Step(step),
                    reward: reward.filter(|_| usable).map(f64::from),
                    pinned,
                    usable,
                })
                .collect();
            let gone = Retention { last, every, best }.surplus(&all);
            let stays: Vec<_> = all.iter().filter(|k| !gone.contains(&k.step)).collect();
            let of_use = |of: &[&Known]| of.iter().filter(|k| k.usable).count();
            let there = of_use(&all.iter().collect::<Vec<_>>());
            prop_assert!(of_use(&stays) >= last.max(1).min(there));
            for k in &all {
                let wanted = k.pinned || (every > 0 && k.step.0 % every == 0);
                prop_assert!(!(wanted && gone.contains(&k.step)));
            }
            let worst_kept = |n: usize| all.iter().filter(|k| k.reward.is_some()).count().min(n);
            prop_assert!(stays.iter().filter(|k| k.reward.is_some()).count() >= worst_kept(best));
        }
    }
}
