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

    /// Whether a trajectory of the prompt was in flight.
    fn is_of(&self, (batch, group): Prompt) -> bool {
        let key = |member| {
            let id = TrajectoryId {
                batch,
                group,
                member,
            };
            id.key()
        };
        let first = self.in_flight.range(key(0)..).next();
        first.is_some_and(|key| prompt(TrajectoryId::from_key(*key)) == (batch, group))
    }
}

/// Batch and number of a prompt.
type Prompt = (u64, u32);

fn prompt(id: TrajectoryId) -> Prompt {
    (id.batch, id.group)
}

/// From so many deaths on a trajectory is kept apart from others like it, or they would die together
/// for ever and nobody could tell who did it.
const SUSPECT: usize = 2;

/// Whoever is to blame for a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// The trajectory.
    pub id: TrajectoryId,
    /// It is blamed for its prompt: a trajectory of the same prompt was blamed before.
    pub for_prompt: bool,
}

/// With whom a trajectory may be on one engine, the strictest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Company {
    /// With everybody: nothing is known against it.
    Any,
    /// With everybody but suspects, for the death of both would not tell them apart. A request of it
    /// ended well since it was on dead engines, or others of its prompt were on them.
    NoSuspect,
    /// With nobody but those of whom nothing is known.
    Alone,
}

impl Company {
    /// Whether the two may be on one engine.
    pub fn bears(self, other: Self) -> bool {
        match self {
            Company::Any => true,
            Company::NoSuspect => other < Company::Alone,
            Company::Alone => other == Company::Any,
        }
    }
}

/// Trajectories that were in flight at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InFlight(BTreeSet<u64>);

impl InFlight {
    fn prompts(&self) -> impl Iterator<Item = Prompt> {
        let each = self
            .0
            .iter()
            .map(|key| prompt(TrajectoryId::from_key(*key)));
        each.collect::<BTreeSet<_>>().into_iter()
    }
}

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
    /// Batch and number of prompts of which a trajectory was blamed: the others of a prompt begin with
    /// the same tokens, and are suspected from then on.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    prompts: BTreeSet<Prompt>,
    /// Those of whom a request ended well since: they may be together with others.
    cleared: BTreeSet<u64>,
    #[serde(skip)]
    changed: Changed<()>,
}

impl Deaths {
    /// The trajectory that was in flight on `engines` engines when they died, the one that dies with
    /// these in flight among them, while no other was on all of those, and no other prompt by any of its
    /// trajectories: where all of a prompt kill engines, whoever was with one of them here and with
    /// another there is innocent. Only one that `may` be blamed. None where two explain deaths equally
    /// well: the next one tells.
    ///
    /// A suspect whose prompt was blamed before needs no death more than this one: each of them would cost as
    /// many engines as the first one did. Of several it is the first: one of them goes with each death.
    pub fn culprit(
        &self,
        now: &InFlight,
        engines: usize,
        may: impl Fn(TrajectoryId) -> bool,
    ) -> Option<Culprit> {
        let all = now.0.iter().map(|key| TrajectoryId::from_key(*key));
        let mut alike = all.filter(|id| self.is_of_blamed_prompt(*id) && self.is_suspect(*id));
        if let Some(id) = alike.find(|id| may(*id)) {
            return Some(Culprit {
                id,
                for_prompt: true,
            });
        }
        self.only_one_on_all(now, engines, may).map(|id| Culprit {
            id,
            for_prompt: false,
        })
    }

    fn only_one_on_all(
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
            let explains = |prompt: Prompt| before.iter().all(|d| d.is_of(prompt));
            let only_prompt = || !now.prompts().any(|p| p != prompt(id) && explains(p));
            if enough && may(id) && alone() && only_prompt() {
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
        self.prompts.insert(prompt(id));
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
        if self.all.is_empty() && self.prompts.is_empty() {
            return;
        }
        self.changed.note(());
        self.prompts.retain(|(of, _)| *of > batch.0);
        for death in &mut self.all {
            let open = |key: &u64| TrajectoryId::from_key(*key).batch > batch.0;
            death.in_flight.retain(open);
        }
        self.all.retain(|death| !death.in_flight.is_empty());
        self.tidy();
    }

    /// With whom a trajectory may be on one engine. `broken` engines broke it off a moment ago, and
    /// nobody knows yet whether they died of it: they count as if they had.
    pub fn company(&self, id: TrajectoryId, broken: impl FnOnce() -> usize) -> Company {
        let of_blamed = self.is_of_blamed_prompt(id);
        let known = match self.of(id.key()).count() {
            // It takes more than one to be suspected.
            0 => 0,
            known => known + broken(),
        };
        match known >= SUSPECT || of_blamed {
            true if self.cleared.contains(&id.key()) => Company::NoSuspect,
            true => Company::Alone,
            false if self.is_of_known_prompt(id) => Company::NoSuspect,
            false => Company::Any,
        }
    }

    /// Whether its prompt was on so many engines when they died that it explains them as a suspect does.
    fn is_of_known_prompt(&self, id: TrajectoryId) -> bool {
        let on = self.all.iter().filter(|d| d.is_of(prompt(id)));
        on.take(SUSPECT).count() == SUSPECT
    }

    /// Whether a trajectory is to be kept apart from others like it.
    fn is_suspect(&self, id: TrajectoryId) -> bool {
        self.company(id, || 0) == Company::Alone
    }

    fn is_of_blamed_prompt(&self, id: TrajectoryId) -> bool {
        self.prompts.contains(&prompt(id))
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
        let (all, prompts) = (&self.all, &self.prompts);
        let known = |key: &u64| {
            let id = TrajectoryId::from_key(*key);
            let of_prompt = prompts.contains(&prompt(id));
            of_prompt || all.iter().any(|d| d.in_flight.contains(key))
        };
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

    /// Each of a prompt of its own.
    fn t(member: u32) -> TrajectoryId {
        TrajectoryId {
            batch: 3,
            group: member,
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
        culprit.map(|blamed| blamed.id.member)
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
    fn who_was_cleared_bears_others_that_were_and_no_suspect_and_a_broken_stream_counts_as_a_death()
    {
        let mut deaths = Deaths::default();
        assert_eq!(deaths.company(t(1), || 9), Company::Any);
        died(&mut deaths, 1, &[1, 2]);
        assert_eq!(deaths.company(t(1), || 0), Company::Any);
        assert_eq!(deaths.company(t(1), || 1), Company::Alone);
        died(&mut deaths, 2, &[1, 2]);
        deaths.clear(t(2));
        let (suspect, cleared) = (deaths.company(t(1), || 0), deaths.company(t(2), || 0));
        assert!(!suspect.bears(suspect) && !suspect.bears(cleared) && !cleared.bears(suspect));
        assert!(cleared.bears(cleared) && suspect.bears(Company::Any));
        // Another of the prompt of one that was on both explains them as well.
        let alike = TrajectoryId { member: 9, ..t(1) };
        assert_eq!(deaths.company(alike, || 0), Company::NoSuspect);
        assert_eq!(deaths.company(t(3), || 0), Company::Any);
    }

    #[test]
    fn who_was_with_two_of_a_prompt_on_two_engines_is_not_blamed_for_what_the_prompt_explains() {
        let mut deaths = Deaths::default();
        let of_prompt = |member| TrajectoryId { member, ..t(1) };
        died(&mut deaths, 1, &[1, 2]);
        let now: InFlight = [of_prompt(7), t(2)].into_iter().collect();
        assert_eq!(deaths.culprit(&now, 2, |_| true), None);
        let now: InFlight = [t(1), of_prompt(7)].into_iter().collect();
        let culprit = deaths.culprit(&now, 2, |_| true);
        assert_eq!(culprit.map(|c| c.id), Some(t(1)));
    }

    #[test]
    fn one_of_a_prompt_of_which_another_was_blamed_is_blamed_for_one_death_unless_it_was_cleared() {
        let one = |group: u32, member: u32| TrajectoryId {
            batch: 3,
            group,
            member,
        };
        let mut deaths = Deaths::default();
        let blamed = |deaths: &Deaths, ids: &[TrajectoryId]| {
            let now: InFlight = ids.iter().copied().collect();
            let culprit = deaths.culprit(&now, 2, |_| true)?;
            Some((culprit.id, culprit.for_prompt))
        };
        let (next, other) = (one(0, 1), one(4, 1));
        assert_eq!(blamed(&deaths, &[next, other]), None);
        deaths.charge(one(0, 0));
        assert_eq!(blamed(&deaths, &[next, other]), Some((next, true)));
        assert_eq!(
            blamed(&deaths, &[next, one(0, 2), other]),
            Some((next, true))
        );
        assert!(deaths.is_suspect(next) && !deaths.is_suspect(other));
        deaths.clear(next);
        assert_eq!(blamed(&deaths, &[next, other]), None);
        deaths.consume(Step(3));
        assert_eq!(deaths, Deaths::default());
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
