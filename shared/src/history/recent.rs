//! The phases of the last minutes, one by one: what a timeline shows.
//!
//! Pages keep the whole run in bounded room and so have to be coarse; this is exact, and short. Spans
//! are numbered in the order in which they ended, so that who follows asks for those after the last
//! one it has.
use crate::ids::{Incarnation, InstanceId, Role, Step};
use crate::phase::Phase;
use crate::time::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a span is kept after its end.
pub const RECENT: Duration = Duration::from_mins(15);
/// Spans kept of all instances, which with many of them is what bounds the time: some 15 MiB.
const SPANS: usize = 200_000;

/// A stretch of time that an instance was in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseSpan {
    /// Whose.
    pub id: InstanceId,
    /// Which life.
    pub incarnation: Incarnation,
    /// The phase.
    pub phase: Phase,
    /// The step it worked on.
    pub step: Step,
    /// Since when.
    pub from: Time,
    /// Until when.
    pub to: Time,
}

/// What an instance does now.
#[derive(Clone, Debug)]
struct Present {
    incarnation: Incarnation,
    phase: Phase,
    step: Step,
    from: Time,
}

/// How long a rank's steps take.
#[derive(Clone, Debug, Default)]
struct Pace {
    life: Incarnation,
    /// When it last came into each phase, and for which step.
    begun: BTreeMap<Phase, (Step, Time)>,
    last: Option<Duration>,
}

/// The last phases of every instance.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    /// The number of the oldest span that is kept.
    first: u64,
    over: VecDeque<PhaseSpan>,
    present: BTreeMap<InstanceId, Present>,
    paces: BTreeMap<InstanceId, Pace>,
}

impl Recent {
    /// This life of an instance is in that phase from now on. Said twice it counts once.
    pub fn enter(
        &mut self,
        now: Time,
        id: InstanceId,
        incarnation: Incarnation,
        (phase, step): (Phase, Step),
    ) {
        let same = |p: &Present| (p.incarnation, p.phase, p.step) == (incarnation, phase, step);
        if self.present.get(&id).is_some_and(same) {
            return;
        }
        self.leave(now, id);
        let present = Present {
            incarnation,
            phase,
            step,
            from: now,
        };
        self.present.insert(id, present);
        if id.role == Role::Trainer {
            let pace = self.paces.entry(id).or_default();
            pace.enter(now, incarnation, (phase, step));
        }
    }

    /// Its process ended.
    pub fn leave(&mut self, now: Time, id: InstanceId) {
        let Some(present) = self.present.remove(&id) else {
            return;
        };
        // What is older goes first, also while nothing is asked for.
        let old = |s: &PhaseSpan| now.since(s.to) > RECENT;
        while self.over.len() >= SPANS || self.over.front().is_some_and(old) {
            self.over.pop_front();
            self.first += 1;
        }
        self.over.push_back(PhaseSpan {
            id,
            incarnation: present.incarnation,
            phase: present.phase,
            step: present.step,
            from: present.from,
            to: now,
        });
    }

    /// The number that the next span to end will have.
    pub fn next(&self) -> u64 {
        self.first + self.over.len() as u64
    }

    /// The number of the first span kept that ended after `time`.
    pub fn after(&self, time: Time) -> u64 {
        self.first + self.over.partition_point(|s| s.to <= time) as u64
    }

    /// Those kept from this number on, in the order in which they ended.
    pub fn from(&self, number: u64) -> impl ExactSizeIterator<Item = &PhaseSpan> {
        let skipped = number
            .saturating_sub(self.first)
            .min(self.over.len() as u64);
        self.over.range(skipped as usize..)
    }

    /// What everyone is at, as if it ended now.
    pub fn present(&self, now: Time) -> impl Iterator<Item = PhaseSpan> {
        self.present.iter().map(move |(id, p)| PhaseSpan {
            id: *id,
            incarnation: p.incarnation,
            phase: p.phase,
            step: p.step,
            from: p.from,
            to: now,
        })
    }

    /// How long the last whole step of a rank took: from a phase of it to the same phase of the next.
    pub fn step_took(&self, id: InstanceId) -> Option<Duration> {
        self.paces.get(&id)?.last
    }
}

impl Pace {
    fn enter(&mut self, now: Time, life: Incarnation, (phase, step): (Phase, Step)) {
        if self.life != life {
            *self = Self {
                life,
                ..Self::default()
            };
        }
        if let Some((before, since)) = self.begun.insert(phase, (step, now))
            && before.0 + 1 == step.0
        {
            self.last = Some(now.since(since));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANK: InstanceId = InstanceId {
        role: Role::Trainer,
        index: 1,
    };
    const ENGINE: InstanceId = InstanceId {
        role: Role::Rollout,
        index: 0,
    };

    fn at(ms: u64) -> Time {
        Time(9_000_000 + ms * 1_000)
    }

    fn enter(recent: &mut Recent, ms: u64, id: InstanceId, phase: Phase, step: u64) {
        recent.enter(at(ms), id, Incarnation(4), (phase, Step(step)));
    }

    fn shown(spans: impl Iterator<Item = impl std::borrow::Borrow<PhaseSpan>>) -> Vec<String> {
        let line = |s: &PhaseSpan| {
            let ms = |t: Time| t.since(at(0)).as_millis();
            format!("{} {} {}-{}", s.id, s.phase.name(), ms(s.from), ms(s.to))
        };
        spans.map(|s| line(s.borrow())).collect()
    }

    #[test]
    fn spans_follow_each_other_and_are_told_once_to_who_asks_from_the_last() {
        let mut recent = Recent::default();
        enter(&mut recent, 0, RANK, Phase::Update, 1);
        enter(&mut recent, 10, ENGINE, Phase::Generating, 1);
        enter(&mut recent, 30, RANK, Phase::Publish, 1);
        let known = recent.next();
        assert_eq!(shown(recent.from(0)), ["trainer-1 update 0-30"]);
        enter(&mut recent, 35, RANK, Phase::Publish, 1);
        recent.leave(at(50), ENGINE);
        recent.leave(at(55), ENGINE);
        assert_eq!(shown(recent.from(known)), ["rollout-0 generating 10-50"]);
        assert_eq!(shown(recent.present(at(60))), ["trainer-1 publish 30-60"]);
        assert_eq!((recent.after(at(29)), recent.after(at(30))), (0, 1));
        assert_eq!(recent.from(99).len(), 0);
    }

    #[test]
    fn the_same_phase_of_another_step_or_life_is_a_span_of_its_own() {
        let mut recent = Recent::default();
        enter(&mut recent, 0, ENGINE, Phase::Generating, 1);
        enter(&mut recent, 10, ENGINE, Phase::Generating, 2);
        let next = (Phase::Generating, Step(2));
        recent.enter(at(20), ENGINE, Incarnation(5), next);
        assert_eq!(recent.from(0).len(), 2);
    }

    #[test]
    fn what_is_old_goes_and_numbers_stay() {
        let mut recent = Recent::default();
        enter(&mut recent, 0, ENGINE, Phase::Idle, 1);
        enter(&mut recent, 10, ENGINE, Phase::Generating, 1);
        let later = 20 + RECENT.as_millis() as u64;
        enter(&mut recent, later, ENGINE, Phase::Idle, 2);
        assert_eq!((recent.next(), recent.from(0).len()), (2, 1));
        assert_eq!(recent.from(2).len(), 0);
        assert_eq!(recent.after(at(0)), 1, "the first that is kept");
    }

    #[test]
    fn with_very_many_the_oldest_go() {
        let mut recent = Recent::default();
        let all = SPANS as u64 + 5;
        for n in 0..all {
            enter(&mut recent, n / 1_000, ENGINE, Phase::Generating, n);
        }
        assert_eq!((recent.next(), recent.from(0).len()), (all - 1, SPANS));
    }

    #[test]
    fn a_step_takes_from_a_phase_of_it_to_the_same_of_the_next_in_one_life() {
        let mut recent = Recent::default();
        enter(&mut recent, 0, RANK, Phase::AwaitBatch, 1);
        enter(&mut recent, 40, RANK, Phase::Update, 1);
        assert_eq!(recent.step_took(RANK), None);
        enter(&mut recent, 100, RANK, Phase::AwaitBatch, 2);
        assert_eq!(recent.step_took(RANK), Some(Duration::from_millis(100)));
        enter(&mut recent, 160, RANK, Phase::Update, 2);
        assert_eq!(recent.step_took(RANK), Some(Duration::from_millis(120)));
        let again = (Phase::AwaitBatch, Step(3));
        recent.enter(at(900), RANK, Incarnation(5), again);
        assert_eq!(recent.step_took(RANK), None, "a new life has made no step");
    }
}
