//! Engines that died while requests ran on them, and the trajectories that were in flight on each.
//!
//! Only those that no trajectory was blamed for, the last of them, and of each only trajectories whose
//! batch is still open: a consumed one is never in flight again.
use crate::changed::Changed;
use crate::core::recover::budget::FaultKind;
use crate::core::recover::cause::Fingerprint;
use crate::ids::{Incarnation, IncidentId, InstanceId, Step, TrajectoryId};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

/// Deaths remembered, unless a rule needs more: the state is written with every record.
const KEPT: usize = 32;

/// An engine that a trajectory took along: the evidence against it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Its place.
    pub who: InstanceId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// When the verdict fell.
    pub at: Time,
    /// How it ended, as its incident says.
    pub how: String,
    /// Its incident.
    pub incident: IncidentId,
}

/// The death of an engine with requests in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// Whose.
    pub engine: Taken,
    /// The budget that it counts against.
    pub kind: FaultKind,
    /// What it came of, which is counted, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Fingerprint>,
    /// Keys of the trajectories in flight.
    in_flight: BTreeSet<u64>,
}

impl Death {
    /// Of an engine, with what was in flight on it.
    pub fn new(
        engine: Taken,
        kind: FaultKind,
        cause: Option<Fingerprint>,
        in_flight: InFlight,
    ) -> Self {
        Self {
            engine,
            kind,
            cause,
            in_flight: in_flight.0,
        }
    }
}

/// From so many deaths on a trajectory is suspected: no other suspect goes to the engine that it is on,
/// or they would die together for ever and nobody could tell who did it.
const SUSPECT: usize = 2;

/// Trajectories that were in flight at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InFlight(BTreeSet<u64>);

impl FromIterator<TrajectoryId> for InFlight {
    fn from_iter<I: IntoIterator<Item = TrajectoryId>>(all: I) -> Self {
        Self(all.into_iter().map(TrajectoryId::key).collect())
    }
}

/// What is remembered of deaths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deaths {
    /// Oldest first.
    all: VecDeque<Death>,
    /// Those of whom a request ended well since: they may be together with others.
    cleared: BTreeSet<u64>,
    #[serde(skip)]
    changed: Changed<()>,
}

impl Deaths {
    /// The trajectory that was in flight on `engines` engines when they died, the one that dies with
    /// these in flight among them, while no other was on all of those. Only one that `may` be blamed.
    /// None where two explain deaths equally well: the next one tells.
    pub fn culprit(
        &self,
        now: &InFlight,
        engines: usize,
        may: impl Fn(TrajectoryId) -> bool,
    ) -> Option<TrajectoryId> {
        let mut found: Vec<(usize, TrajectoryId)> = Vec::new();
        for &key in &now.0 {
            let id = TrajectoryId::from_key(key);
            let before: Vec<&Death> = self.of(key).collect();
            let enough = before.len() + 1 >= engines;
            let on_all = |other: &u64| before.iter().all(|d| d.in_flight.contains(other));
            let alone = || !now.0.iter().any(|other| *other != key && on_all(other));
            if enough && may(id) && alone() {
                found.push((before.len(), id));
            }
        }
        found.sort_unstable();
        match found.as_slice() {
            [] => None,
            [.., (next, _), (most, _)] if next == most => None,
            [.., (_, id)] => Some(*id),
        }
    }

    /// Takes out the deaths that a trajectory is blamed for.
    pub fn charge(&mut self, id: TrajectoryId) -> Vec<Death> {
        self.changed.note(());
        let key = id.key();
        let (charged, left) = std::mem::take(&mut self.all)
            .into_iter()
            .partition(|d: &Death| d.in_flight.contains(&key));
        self.all = left;
        self.tidy();
        Vec::from(charged)
    }

    /// Remembers a death; `engines` are what a rule looks at.
    pub fn add(&mut self, death: Death, engines: usize) {
        self.changed.note(());
        while self.all.len() >= KEPT.max(engines) {
            self.all.pop_front();
        }
        self.cleared.retain(|key| !death.in_flight.contains(key));
        self.all.push_back(death);
    }

    /// Forgets trajectories that are consumed, and deaths that nobody else can be blamed for.
    pub fn consume(&mut self, batch: Step) {
        if self.all.is_empty() {
            return;
        }
        self.changed.note(());
        for death in &mut self.all {
            let open = |key: &u64| TrajectoryId::from_key(*key).batch > batch.0;
            death.in_flight.retain(open);
        }
        self.all.retain(|death| !death.in_flight.is_empty());
        self.tidy();
    }

    /// Whether a trajectory is to be kept apart from others like it.
    pub fn is_suspect(&self, id: TrajectoryId) -> bool {
        let key = id.key();
        !self.cleared.contains(&key) && self.of(key).count() >= SUSPECT
    }

    /// A request of it ended well.
    pub fn clear(&mut self, id: TrajectoryId) {
        if self.is_suspect(id) {
            self.changed.note(());
            self.cleared.insert(id.key());
        }
    }

    /// Whether it changed since this was last asked.
    pub(in crate::core) fn take_changed(&mut self) -> bool {
        self.changed
            .take()
            .is_none_or(|changed| !changed.is_empty())
    }

    fn tidy(&mut self) {
        let all = &self.all;
        let known = |key: &u64| all.iter().any(|d| d.in_flight.contains(key));
        self.cleared.retain(known);
    }

    fn of(&self, key: u64) -> impl Iterator<Item = &Death> {
        self.all.iter().filter(move |d| d.in_flight.contains(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Role;

    fn t(member: u32) -> TrajectoryId {
        TrajectoryId {
            batch: 3,
            group: 0,
            member,
        }
    }

    fn with(members: &[u32]) -> InFlight {
        members.iter().copied().map(t).collect()
    }

    fn died(deaths: &mut Deaths, number: u64, members: &[u32]) {
        let engine = Taken {
            who: InstanceId {
                role: Role::Rollout,
                index: 0,
            },
            incarnation: Incarnation(number),
            at: Time(number),
            how: "killed by SIGKILL".to_owned(),
            incident: IncidentId(number),
        };
        deaths.add(Death::new(engine, FaultKind::Exit, None, with(members)), 2);
    }

    fn blamed(deaths: &Deaths, members: &[u32]) -> Option<u32> {
        let culprit = deaths.culprit(&with(members), 2, |_| true);
        culprit.map(|id| id.member)
    }

    #[test]
    fn the_only_one_on_all_of_them_is_blamed_and_of_two_the_next_death_tells() {
        let mut deaths = Deaths::default();
        assert_eq!(blamed(&deaths, &[1]), None, "one death says nothing");
        died(&mut deaths, 1, &[1, 2, 3]);
        assert_eq!(blamed(&deaths, &[1, 7, 8]), Some(1));
        assert_eq!(blamed(&deaths, &[1, 2, 8]), None);
        died(&mut deaths, 2, &[1, 2, 8]);
        assert_eq!(blamed(&deaths, &[1, 2]), None);
        assert_eq!(blamed(&deaths, &[2, 3]), Some(2));
    }

    #[test]
    fn one_that_may_not_be_blamed_still_speaks_for_the_others() {
        let mut deaths = Deaths::default();
        died(&mut deaths, 1, &[1, 2]);
        let all_but = |done: u32| move |id: TrajectoryId| id.member != done;
        assert_eq!(deaths.culprit(&with(&[1, 2]), 2, all_but(2)), None);
        assert_eq!(deaths.culprit(&with(&[1]), 2, all_but(1)), None);
    }

    #[test]
    fn two_that_explain_deaths_equally_well_are_both_spared() {
        let mut deaths = Deaths::default();
        died(&mut deaths, 1, &[1]);
        died(&mut deaths, 2, &[2]);
        assert_eq!(blamed(&deaths, &[1, 2]), None);
        died(&mut deaths, 3, &[1, 2]);
        assert_eq!(blamed(&deaths, &[1, 7]), Some(1));
    }

    #[test]
    fn who_was_on_two_of_them_is_a_suspect_until_a_request_of_his_ends_well() {
        let mut deaths = Deaths::default();
        died(&mut deaths, 1, &[1, 2]);
        assert!(!deaths.is_suspect(t(1)));
        died(&mut deaths, 2, &[1, 2, 3]);
        let suspects = |deaths: &Deaths| [1, 2, 3].map(|n| deaths.is_suspect(t(n)));
        assert_eq!(suspects(&deaths), [true, true, false]);
        deaths.clear(t(1));
        deaths.clear(t(3));
        assert_eq!(suspects(&deaths), [false, true, false]);
        died(&mut deaths, 3, &[1]);
        assert_eq!(suspects(&deaths), [true, true, false]);
    }

    #[test]
    fn what_is_charged_or_consumed_is_forgotten_and_no_more_than_a_bound_is_kept() {
        let mut deaths = Deaths::default();
        died(&mut deaths, 1, &[1, 2]);
        died(&mut deaths, 2, &[3]);
        let charged = deaths.charge(t(1));
        let lives: Vec<u64> = charged.iter().map(|d| d.engine.incarnation.0).collect();
        assert_eq!(lives, [1]);
        assert_eq!(blamed(&deaths, &[2]), None, "its death is explained");
        deaths.consume(Step(2));
        assert_eq!(blamed(&deaths, &[3]), Some(3));
        deaths.consume(Step(3));
        assert_eq!(deaths, Deaths::default());
        for number in 0..100 {
            died(&mut deaths, number, &[1]);
        }
        assert_eq!(deaths.all.len(), KEPT);
    }
}
