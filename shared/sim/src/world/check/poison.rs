//! Trajectories that are set aside, held against what really was on the engines that died.
use super::super::World;
use robust_shared::core::Taken;
use robust_shared::ids::{Incarnation, TrajectoryId};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of engines that died, and of whoever was blamed.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Poisoning {
    /// What really ran on engines when they ended.
    died_with: BTreeMap<Incarnation, BTreeSet<TrajectoryId>>,
    set_aside: BTreeSet<TrajectoryId>,
}

impl Poisoning {
    /// An engine ended.
    pub fn died(&mut self, engine: Incarnation, with: BTreeSet<TrajectoryId>) {
        self.died_with.insert(engine, with);
    }

    /// Whether a trajectory was set aside.
    pub fn is_set_aside(&self, t: TrajectoryId) -> bool {
        self.set_aside.contains(&t)
    }

    /// How many of a batch were set aside.
    pub fn of_batch(&self, batch: u64) -> usize {
        self.set_aside.iter().filter(|t| t.batch == batch).count()
    }
}

impl World {
    /// A trajectory is set aside durably: on evidence, once, and not after its step. Where another of its
    /// prompt was before, one engine is evidence enough, whoever else was on it.
    pub(super) fn check_set_aside(&mut self, t: TrajectoryId, engines: &[Taken]) {
        let alike = |other: &TrajectoryId| (other.batch, other.group) == (t.batch, t.group);
        let for_prompt = self.checker.poisoning.set_aside.iter().any(alike);
        let least = match self.core.config().poison_after() {
            engines if for_prompt => engines.min(1),
            engines => engines,
        };
        self.must(least > 0 && engines.len() >= least, "poison", || {
            format!("{t} is set aside after {} deaths", engines.len())
        });
        let poisoning = &mut self.checker.poisoning;
        let known = |e: &Taken| poisoning.died_with.get(&e.incarnation);
        let sets: Vec<_> = engines.iter().filter_map(known).collect();
        let on_all = |other: &&TrajectoryId| sets.iter().all(|set| set.contains(other));
        let mut all = sets.first().into_iter().flat_map(|set| set.iter());
        let other = all.find(|other| **other != t && on_all(other)).copied();
        let complete = sets.len() == engines.len();
        let again = !poisoning.set_aside.insert(t);
        let alone = !complete || other.is_none();
        self.must(for_prompt || alone, "poison", || {
            format!("{t} is set aside, and {other:?} was on all of those too")
        });
        let over = t.batch <= self.checker.committed.0;
        self.must(!again && !over, "I-3", || {
            format!("{t} is set aside after it was consumed, or twice")
        });
        for engine in engines {
            self.checker.verdicts.charge(engine);
        }
        self.stored.remove(&t);
        self.daemon.leases.remove(&t);
    }
}
