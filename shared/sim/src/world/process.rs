//! One virtual process of a role.
use super::ailment::Ailment;
use super::machines::SpawnOrder;
use robust_shared::core::SlotRef;
use robust_shared::ids::{Generation, InstanceId, Role, Step, TrajectoryId, WeightVersion};
use robust_shared::phase::Phase;
use robust_shared::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Parts of a version: each can be read by others when it was verified.
pub(super) const PARTS: u32 = 4;

/// How a process comes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// It links when its start is over.
    #[default]
    Fine,
    /// It hangs before it links.
    Mute,
    /// It ends with this code instead of linking.
    Dies(i32),
    /// The system refuses to start it.
    Refused,
    /// It ends of this cause instead of linking.
    Says(Ailment),
    /// It links, and ends of this cause a moment later.
    Ails(Ailment),
}

impl Start {
    /// Whether it comes to link.
    pub fn links(self) -> bool {
        matches!(self, Start::Fine | Start::Ails(_))
    }
}

/// What an agent worker knows of a trajectory it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Turns that are stored.
    pub stored: u32,
    /// The weights of the turn that is not stored yet.
    pub oldest: Option<WeightVersion>,
    /// A tool runs for it.
    pub in_tool: bool,
    /// Tells its present holding from an earlier one of the same trajectory.
    pub serial: u64,
}

/// What the daemon tells a process over its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Pull(Transfer),
    Dispatch(TrajectoryId, Work),
    Revoke(TrajectoryId),
}

/// A pull as the puller does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub serial: u64,
    /// The number of the order that is answered.
    pub order: u64,
    pub version: WeightVersion,
    pub sources: Vec<robust_shared::ids::Incarnation>,
    pub from_trainer: bool,
    /// The last sign of life of its source.
    pub moved_at: Time,
}

/// One process: what it really is, whatever anybody believes of it.
#[derive(Clone, Debug)]
pub struct Proc {
    /// Its place.
    pub id: InstanceId,
    /// Its slot.
    pub slot: SlotRef,
    /// Which of the world's nodes it runs on.
    pub(super) machine: usize,
    /// Stopped with its node.
    pub(super) frozen: bool,
    /// The controller wants it to end, or gave it up.
    pub(super) over: bool,
    /// The gang's number (trainers).
    pub generation: Generation,
    /// Not ended.
    pub alive: bool,
    /// The controller was told that it ended.
    pub(super) end_heard: bool,
    /// Stopped (SIGSTOP): uses nothing, answers nothing.
    pub stopped: bool,
    /// Busy with nothing for ever: wakes, but no work comes along and no probe is answered.
    pub wedged: bool,
    /// Everything takes so many times longer.
    pub slow: u32,
    /// How it comes up.
    pub start: Start,
    /// Its link is open.
    pub linked: bool,
    /// Since when its link is as it is.
    pub linked_at: Time,
    /// When its process was started.
    pub spawned_at: Time,
    /// It cannot link before this time.
    pub cut_until: Time,
    /// Rollout: what it verified and serves.
    pub version: Option<WeightVersion>,
    /// Rollout: what is in its other buffer, and how many parts of it.
    pub(super) spare: Option<(WeightVersion, u32)>,
    /// Rollout: what it serves arrives damaged.
    pub corrupt: bool,
    /// Trainer: the step its state is at.
    pub step: Option<Step>,
    /// What it is doing.
    pub phase: Phase,
    /// Agent worker: what it holds.
    pub held: BTreeMap<TrajectoryId, Work>,
    /// Rollout: requests running.
    pub requests: u32,
    /// Tokens generated.
    pub tokens: u64,
    /// Processor time used.
    pub busy: Duration,
    /// A call to it failed though it lives.
    pub raised: bool,
    /// Agent worker: until when its tool works at nothing; 0: it always did.
    pub(super) tool_broken: Time,
    /// When it recovered by itself from whatever it had; 0: never had anything.
    pub(super) well_at: Time,
    /// Hybrid: it computes nothing and sends requests away.
    pub paused: bool,
    /// When the last command to pause or go on is read.
    pub(super) switch_at: Time,
    pub(super) link: u64,
    pub(super) heard_at: Time,
    pub(super) told_at: Time,
    pub(super) inbox: VecDeque<Order>,
    pub(super) pulling: Option<Transfer>,
}

impl Proc {
    /// A process that was just started.
    pub(super) fn new(machine: usize, order: &SpawnOrder, start: Start, now: Time) -> Self {
        Self {
            id: order.id,
            slot: order.slot.clone(),
            machine,
            frozen: false,
            end_heard: false,
            over: false,
            generation: order.generation,
            alive: true,
            stopped: false,
            wedged: false,
            slow: 1,
            start,
            linked: false,
            linked_at: now,
            spawned_at: now,
            cut_until: Time(0),
            version: None,
            spare: None,
            corrupt: false,
            step: None,
            phase: Phase::Init,
            held: BTreeMap::new(),
            requests: 0,
            tokens: 0,
            busy: Duration::ZERO,
            raised: false,
            tool_broken: Time(0),
            well_at: Time(0),
            paused: false,
            switch_at: now,
            link: 0,
            heard_at: Time(0),
            told_at: Time(0),
            inbox: VecDeque::new(),
            pulling: None,
        }
    }

    /// Whether it is stopped, alone or with its node.
    pub fn halted(&self) -> bool {
        self.stopped || self.frozen
    }

    /// Whether it does anything at all.
    pub fn works(&self) -> bool {
        self.alive && !self.halted()
    }

    /// Whether its work comes along. A rank hangs in its computation, elsewhere it has none.
    pub fn serves(&self) -> bool {
        let hangs = match self.id.role {
            Role::Trainer => self.wedged && self.phase.is_trainer_compute(),
            _ => self.wedged,
        };
        self.works() && !hangs
    }

    /// How many parts of a version others can read from it; none: it has no buffer of it.
    pub(super) fn holds(&self, version: WeightVersion) -> Option<u32> {
        let spare = self.spare.filter(|(v, _)| *v == version);
        match self.version == Some(version) {
            true => Some(PARTS),
            false => spare.map(|(_, parts)| parts),
        }
    }
}
