//! One instance: the life of its present process and what is known of it.
use crate::core::detect::agent_unable::GivenBack;
use crate::core::gang::context::Turn;
use crate::core::input::Sample;
use crate::core::ops::armed::Armed;
use crate::core::recover::budget::Strikes;
use crate::core::recover::cause::Causes;
use crate::core::roster::nodes::SlotRef;
use crate::core::weights::{Holder, read_former};
use crate::ids::{Generation, Incarnation, IncidentId, InstanceId, Step};
use crate::phase::Phase;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Where the present process of an instance is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// Nothing was ever started.
    None,
    /// A restart waits for its backoff.
    Waiting {
        /// When it is due.
        until: Time,
    },
    /// There is no slot for it.
    Homeless,
    /// Told to start.
    Spawning {
        /// When it counts as overdue.
        until: Time,
    },
    /// The process runs and has not linked.
    Starting {
        /// When it counts as overdue.
        until: Time,
    },
    /// Linked; it can be commanded.
    Attached,
    /// Its link broke; it may link again.
    Unlinked {
        /// When it counts as lost.
        until: Time,
    },
}

/// What the probes of an engine said. While some failed in a row it is suspect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Probes in a row that failed.
    pub failures: u32,
    /// A probe is under way; then it counts as failed.
    pub asked: Option<Time>,
    /// When the next one is due.
    pub next: Time,
}

/// A verdict fell; the process is killed when its evidence is in, or late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condemned {
    /// The incident opened for it.
    pub incident: IncidentId,
    /// When the evidence is waited for no longer.
    pub until: Time,
    /// Wait between the kill and the new life.
    #[serde(default)]
    pub wait: Duration,
}

/// Why the process of a place was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restarted {
    /// When.
    pub at: Time,
    /// In words.
    pub why: String,
    /// The incident it was part of; none: it was planned.
    pub incident: Option<IncidentId>,
}

/// So many reasons are kept.
const REASONS_KEPT: usize = 8;

/// Most of what is rarely so is not so: it is left out of what is written down.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One place of the job and its present process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// Its place.
    pub id: InstanceId,
    /// The present life's fencing number.
    pub incarnation: Incarnation,
    /// The gang's fencing number (trainers).
    pub generation: Generation,
    /// Where it is in its life.
    pub life: Life,
    /// The slot it occupies.
    #[serde(default, skip_serializing_if = "is_default")]
    pub slot: Option<SlotRef>,
    /// It gets nothing new, and its place is gone when it has nothing left to do.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retiring: bool,
    /// It gets nothing new, and starts in another slot when it has nothing left to do.
    #[serde(default, skip_serializing_if = "is_default")]
    pub moving: bool,
    /// The life before and its slot: what is heard of it late concerns that slot still.
    #[serde(default, skip_serializing_if = "is_default")]
    pub before: Option<(Incarnation, SlotRef)>,
    /// Its process, or 0.
    pub pid: u32,
    /// What it is doing.
    pub phase: Phase,
    /// The step it works on.
    pub phase_step: Step,
    /// Since when.
    pub phase_since: Time,
    /// The last sample.
    pub sample: Sample,
    /// When it came.
    pub sampled_at: Time,
    /// The last time it was seen busy (at least 2% of its accelerator, or of a core where it has
    /// none, between two samples).
    pub active_at: Time,
    /// The last time it used any processor time at all.
    pub moved_at: Time,
    /// The last time its token count grew, or its load began.
    pub tokens_at: Time,
    /// Tokens generated a second.
    pub tokens_per_s: f64,
    /// Cores used.
    pub cpu: f64,
    /// Tokens of its earlier lives.
    pub tokens_before: u64,
    /// Failures of its earlier lives' tools.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tool_failures_before: u64,
    /// Callers that its earlier lives turned away.
    #[serde(default, skip_serializing_if = "is_default")]
    pub callers_refused_before: u64,
    /// Restarts since the job began.
    pub restarts: u32,
    /// Times its process was replaced without a fault.
    #[serde(default, skip_serializing_if = "is_default")]
    pub replaced: u32,
    /// Why its last lives ended, oldest first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restarted: VecDeque<Restarted>,
    /// Failures in a row without useful work between them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub strikes: Strikes,
    /// The same, cause by cause.
    #[serde(default, skip_serializing_if = "is_default")]
    pub causes: Causes,
    /// Anything heard or seen of it last: the instant a fault counts from.
    pub last_sign: Time,
    /// When an injected fault struck this life.
    pub struck: Option<Time>,
    /// Injected faults that wait for their moment in this life, or for the start-up of a later one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub armed: Vec<Armed>,
    /// Agent worker: what it gave back since it last finished a trajectory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub given_back: GivenBack,
    /// Rollout: it is being probed until then, and gets no traffic.
    pub suspect: Option<Time>,
    /// Engine: what its probes said.
    #[serde(default, skip_serializing_if = "is_default")]
    pub health: Health,
    /// Engine: an operator took it out; restarts do not end that.
    #[serde(default, skip_serializing_if = "is_default")]
    pub quarantined: bool,
    /// Trainer: time in phases without exchange, in the step under way.
    #[serde(default, skip_serializing_if = "is_default")]
    pub alone: Duration,
    /// Trainer: steps in a row in which that was too long.
    #[serde(default, skip_serializing_if = "is_default")]
    pub slow_steps: u32,
    /// It was said that its phase takes too long.
    #[serde(default, skip_serializing_if = "is_default")]
    pub overrun: bool,
    /// Pullers' reports that its chunks are corrupt.
    #[serde(default, skip_serializing_if = "is_default")]
    pub corrupt_reports: u32,
    /// Lives that found its chunks to be corrupt.
    #[serde(default, skip_serializing_if = "is_default")]
    pub corrupt_to: BTreeSet<Incarnation>,
    /// Sources whose chunks it found corrupt, and nobody else did.
    #[serde(default, skip_serializing_if = "is_default")]
    pub corrupt_sources: BTreeSet<Incarnation>,
    /// A verdict fell and its kill is due.
    pub condemned: Option<Condemned>,
    /// Hybrid: whether it has its slot.
    #[serde(default, skip_serializing_if = "is_default")]
    pub turn: Turn,
    /// Hybrid: a life before that was to end while it had its slot, and until when its end is waited
    /// for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub leaving: Option<(Incarnation, Time)>,
    /// What an earlier build stored here of the weights that it has; taken out when it is read.
    #[serde(flatten, skip_serializing, deserialize_with = "read_former")]
    pub former: Option<Box<Holder>>,
}

impl Instance {
    /// A place where nothing runs yet.
    pub fn new(id: InstanceId) -> Self {
        Self {
            id,
            incarnation: Incarnation(0),
            generation: Generation(0),
            life: Life::None,
            slot: None,
            retiring: false,
            moving: false,
            before: None,
            pid: 0,
            phase: Phase::Init,
            phase_step: Step(0),
            phase_since: Time(0),
            sample: Sample::default(),
            sampled_at: Time(0),
            active_at: Time(0),
            moved_at: Time(0),
            tokens_at: Time(0),
            tokens_per_s: 0.0,
            cpu: 0.0,
            tokens_before: 0,
            tool_failures_before: 0,
            callers_refused_before: 0,
            restarts: 0,
            replaced: 0,
            restarted: VecDeque::new(),
            strikes: Strikes::default(),
            causes: Causes::default(),
            last_sign: Time(0),
            struck: None,
            armed: Vec::new(),
            given_back: GivenBack::default(),
            suspect: None,
            health: Health::default(),
            quarantined: false,
            alone: Duration::ZERO,
            slow_steps: 0,
            overrun: false,
            corrupt_reports: 0,
            corrupt_to: BTreeSet::new(),
            corrupt_sources: BTreeSet::new(),
            condemned: None,
            turn: Turn::default(),
            leaving: None,
            former: None,
        }
    }

    /// The next life of this place: everything known of the old process is forgotten (I-1).
    pub fn reborn(&mut self, incarnation: Incarnation, generation: Generation, now: Time) {
        let slot = self.slot.take();
        *self = Self {
            incarnation,
            generation,
            phase_since: now,
            active_at: now,
            moved_at: now,
            tokens_at: now,
            last_sign: now,
            tokens_before: self.tokens_before + self.sample.tokens_total,
            tool_failures_before: self.tool_failures_before + self.sample.tool_failures,
            callers_refused_before: self.callers_refused_before + self.sample.callers_refused,
            restarts: self.restarts,
            replaced: self.replaced,
            restarted: std::mem::take(&mut self.restarted),
            strikes: std::mem::take(&mut self.strikes),
            causes: std::mem::take(&mut self.causes),
            quarantined: self.quarantined,
            retiring: self.retiring,
            leaving: self.leaving,
            armed: std::mem::take(&mut self.armed)
                .into_iter()
                .filter(|armed| armed.after.is_some())
                .collect(),
            before: match (self.incarnation, &slot) {
                (Incarnation(0), _) | (_, None) => self.before.take(),
                (life, Some(slot)) => match self.before.take_if(|(old, _)| *old == life) {
                    Some(noted) => Some(noted),
                    None => Some((life, slot.clone())),
                },
            },
            slot,
            ..Self::new(self.id)
        };
    }

    /// It is to run in another slot, or nowhere yet. A process that it has goes on where it is.
    pub fn move_to(&mut self, slot: Option<SlotRef>) {
        let left = std::mem::replace(&mut self.slot, slot);
        if let Some(left) = left.filter(|_| self.incarnation.0 != 0) {
            self.before = Some((self.incarnation, left));
        }
    }

    /// Nothing runs there, and it has no slot.
    pub fn wait_for_slot(&mut self) {
        (self.life, self.slot) = (Life::Homeless, None);
    }

    /// Nothing runs there, and nothing will.
    pub fn vacate(&mut self) {
        (self.life, self.slot, self.retiring) = (Life::None, None, true);
    }

    /// The daemon was away: its link is gone, and may come again until then.
    pub fn rejoin(&mut self, now: Time, grace: Time) {
        match &mut self.life {
            Life::Attached => self.life = Life::Unlinked { until: grace },
            Life::Spawning { until } | Life::Starting { until } | Life::Unlinked { until } => {
                *until = grace;
            }
            Life::None | Life::Waiting { .. } | Life::Homeless => {}
        }
        self.suspect = None;
        (self.health.asked, self.health.failures) = (None, 0);
        (self.sampled_at, self.active_at) = (Time(0), now);
        (self.moved_at, self.tokens_at) = (now, now);
    }

    /// It did useful work: what fails from now on is not in a row with what failed before.
    pub fn succeeded(&mut self) {
        self.strikes.clear();
        self.causes.clear();
    }

    /// Whether anything is counted against it.
    pub fn has_failed(&self) -> bool {
        !self.strikes.is_empty() || !self.causes.is_empty()
    }

    /// Its process is about to be replaced.
    pub fn note_restart(&mut self, restarted: Restarted) {
        match restarted.incident {
            Some(_) => self.restarts += 1,
            None => self.replaced += 1,
        }
        if self.restarted.len() == REASONS_KEPT {
            self.restarted.pop_front();
        }
        self.restarted.push_back(restarted);
    }

    /// Whether it gets nothing new.
    pub fn going(&self) -> bool {
        self.retiring || self.moving
    }

    /// Whether a process may exist for it.
    pub fn has_process(&self) -> bool {
        !matches!(
            self.life,
            Life::None | Life::Waiting { .. } | Life::Homeless
        )
    }

    /// Whether it can be commanded.
    pub fn attached(&self) -> bool {
        self.life == Life::Attached
    }

    /// Whether the process linked at least once in this life.
    pub fn was_attached(&self) -> bool {
        matches!(self.life, Life::Attached | Life::Unlinked { .. })
    }

    /// Its process linked.
    pub fn greet(&mut self, now: Time) {
        self.life = Life::Attached;
        // What was heard of it before its link broke says nothing of what it does now.
        (self.last_sign, self.active_at) = (now, now);
    }

    /// Enters a phase; a repeated report changes nothing.
    pub fn enter(&mut self, phase: Phase, step: Step, now: Time) {
        self.last_sign = now;
        if (self.phase, self.phase_step) == (phase, step) {
            return;
        }
        if phase == Phase::Generating {
            self.tokens_at = now;
        }
        if matches!(self.phase, Phase::RefLogprob | Phase::OldLogprob) {
            self.alone += now.since(self.phase_since);
        }
        self.overrun = false;
        (self.phase, self.phase_step, self.phase_since) = (phase, step, now);
    }

    /// Takes a sample: activity, token rate and figures for status.
    pub fn measure(&mut self, sample: Sample, now: Time) {
        let first = self.sampled_at == Time(0);
        let elapsed = now.since(self.sampled_at).as_secs_f64();
        let used = sample.busy.saturating_sub(self.sample.busy);
        // The paper's rule is zero activity; a waiting process still wakes for its heartbeat,
        // hence a small share instead of none.
        let share_of = |used: Duration| match first || elapsed <= 0.0 {
            true => 1.0,
            false => used.as_secs_f64() / elapsed,
        };
        let share = share_of(used);
        // A rank that hangs in a collective spins: the accelerator knows better where there is one.
        let active = match (sample.accelerator, self.sample.accelerator) {
            // One that goes back was counted by a daemon that is gone: it says nothing yet.
            (Some(now), Some(before)) => now.checked_sub(before).map_or(1.0, share_of),
            _ => share,
        };
        if first || active >= IDLE_SHARE {
            self.active_at = now;
        }
        if first || used > Duration::ZERO {
            self.moved_at = now;
            self.last_sign = now;
        }
        let tokens = sample.tokens_total.saturating_sub(self.sample.tokens_total);
        let load_began = self.sample.running == 0 && sample.running > 0;
        if first || tokens > 0 || load_began {
            self.tokens_at = now;
        }
        if !first && elapsed > 0.0 {
            let blend = (elapsed / 2.0).min(1.0);
            self.tokens_per_s += blend * (tokens as f64 / elapsed - self.tokens_per_s);
            self.cpu += blend * (share - self.cpu);
        }
        // A process taken over by a restarted daemon may report less at first: counters never go
        // back within a life.
        let tokens_total = sample.tokens_total.max(self.sample.tokens_total);
        self.sample = Sample {
            tokens_total,
            tool_failures: sample.tool_failures.max(self.sample.tool_failures),
            callers_refused: sample.callers_refused.max(self.sample.callers_refused),
            busy: sample.busy.max(self.sample.busy),
            ..sample
        };
        self.sampled_at = now;
    }
}

/// Below this share of its accelerator or of a core between two samples a process counts as idle.
pub const IDLE_SHARE: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Role;

    #[test]
    fn a_rank_that_spins_without_its_accelerator_is_idle_but_not_stopped() {
        let at = |s: u64| Time(s * 1_000_000);
        let id = InstanceId {
            role: Role::Trainer,
            index: 0,
        };
        let mut rank = Instance::new(id);
        for s in 1..=10 {
            let sample = Sample {
                busy: Duration::from_secs(s),
                accelerator: Some(Duration::from_secs(s.min(4))),
                ..Sample::default()
            };
            rank.measure(sample, at(s));
        }
        assert_eq!((rank.active_at, rank.moved_at), (at(4), at(10)));
        assert!(rank.cpu > 0.5, "{}", rank.cpu);
    }
}
