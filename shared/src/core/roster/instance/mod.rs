//! One instance: the life of its present process and what is known of it.
mod engine;
mod kind;
mod life;
pub(in crate::core) mod measured;
mod reads;
mod work;

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

use kind::{Agent, Engine, Kind, Place, Rank};

/// Where the present process of an instance is in its life.
///
/// ```text
///               Spawn           Spawned          Attached
///  none ──┬──► spawning ──────► starting ──────► attached ◄──────► unlinked
///         │       │ SpawnFailed    │ overdue,       │ Exited,         │ grace over,
///         │       │                │ Exited         │ verdict         │ Exited
///         │       └────────────────┴───┬────────────┴─────────────────┘
///         │                            ▼
///         ├──────────────────── waiting: for its backoff, which is mostly none
///         │                            │ no slot is free for it
///         └────── a slot is free ─── homeless
/// ```
/// Each way to *spawning* is a new incarnation, and whatever an older one still says is dropped at the
/// `door` (I-1). A place that is to go is *none* for good when it has nothing left to do. That a verdict fell
/// ([`Condemned`]), that it is suspect, or that it is to go, are marks upon these states.
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
    /// Its place, and what only instances of its role have.
    #[serde(flatten)]
    place: Place,
    /// The present life's fencing number.
    incarnation: Incarnation,
    /// The gang's fencing number (trainers).
    generation: Generation,
    /// Where it is in its life.
    life: Life,
    /// The slot it occupies.
    #[serde(default, skip_serializing_if = "is_default")]
    slot: Option<SlotRef>,
    /// It gets nothing new, and its place is gone when it has nothing left to do.
    #[serde(default, skip_serializing_if = "is_default")]
    retiring: bool,
    /// It gets nothing new, and starts in another slot when it has nothing left to do.
    #[serde(default, skip_serializing_if = "is_default")]
    moving: bool,
    /// The life before and its slot: what is heard of it late concerns that slot still.
    #[serde(default, skip_serializing_if = "is_default")]
    before: Option<(Incarnation, SlotRef)>,
    /// Its process, or 0.
    pid: u32,
    /// What it is doing.
    phase: Phase,
    /// The step it works on.
    phase_step: Step,
    /// Since when.
    phase_since: Time,
    /// The last sample.
    sample: Sample,
    /// When it came.
    sampled_at: Time,
    /// The last time it was seen busy (at least 2% of its accelerator, or of a core where it has
    /// none, between two samples).
    active_at: Time,
    /// The last time it used any processor time at all.
    moved_at: Time,
    /// The last time its token count grew, or its load began.
    tokens_at: Time,
    /// Tokens generated a second.
    tokens_per_s: f64,
    /// Cores used.
    cpu: f64,
    /// Tokens of its earlier lives.
    tokens_before: u64,
    /// Failures of its earlier lives' tools.
    #[serde(default, skip_serializing_if = "is_default")]
    tool_failures_before: u64,
    /// Callers that its earlier lives turned away.
    #[serde(default, skip_serializing_if = "is_default")]
    callers_refused_before: u64,
    /// Restarts since the job began.
    restarts: u32,
    /// Times its process was replaced without a fault.
    #[serde(default, skip_serializing_if = "is_default")]
    replaced: u32,
    /// Why its last lives ended, oldest first.
    #[serde(default, skip_serializing_if = "is_default")]
    restarted: VecDeque<Restarted>,
    /// Failures in a row without useful work between them.
    #[serde(default, skip_serializing_if = "is_default")]
    strikes: Strikes,
    /// The same, cause by cause.
    #[serde(default, skip_serializing_if = "is_default")]
    causes: Causes,
    /// Anything heard or seen of it last: the instant a fault counts from.
    last_sign: Time,
    /// When an injected fault struck this life.
    struck: Option<Time>,
    /// An operator's fault struck this life, whether it ends it or not.
    #[serde(default, skip_serializing_if = "is_default")]
    drilled: bool,
    /// Injected faults that wait for their moment in this life, or for the start-up of a later one.
    #[serde(default, skip_serializing_if = "is_default")]
    armed: Vec<Armed>,
    /// It was said that its phase takes too long.
    #[serde(default, skip_serializing_if = "is_default")]
    overrun: bool,
    /// Pullers' reports that its chunks are corrupt.
    #[serde(default, skip_serializing_if = "is_default")]
    corrupt_reports: u32,
    /// Lives that found its chunks to be corrupt.
    #[serde(default, skip_serializing_if = "is_default")]
    corrupt_to: BTreeSet<Incarnation>,
    /// A verdict fell and its kill is due.
    condemned: Option<Condemned>,
    /// What an earlier build stored here of the weights that it has; taken out when it is read.
    #[serde(flatten, skip_serializing, deserialize_with = "read_former")]
    former: Option<Box<Holder>>,
}

impl Instance {
    /// A place where nothing runs yet.
    pub fn new(id: InstanceId) -> Self {
        Self {
            place: Place {
                id,
                kind: Kind::of(id.role),
            },
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
            drilled: false,
            armed: Vec::new(),
            overrun: false,
            corrupt_reports: 0,
            corrupt_to: BTreeSet::new(),
            condemned: None,
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
            retiring: self.retiring,
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
            place: Place {
                id: self.place.id,
                kind: self.place.kind.reborn(),
            },
            ..Self::new(self.place.id)
        };
    }
}

/// What only instances of one role have; none: it is of another.
impl Instance {
    fn rank(&self) -> Option<&Rank> {
        match &self.place.kind {
            Kind::Rank(rank) => Some(rank),
            Kind::Engine(_) | Kind::Agent(_) => None,
        }
    }

    fn rank_mut(&mut self) -> Option<&mut Rank> {
        match &mut self.place.kind {
            Kind::Rank(rank) => Some(rank),
            Kind::Engine(_) | Kind::Agent(_) => None,
        }
    }

    fn engine(&self) -> Option<&Engine> {
        match &self.place.kind {
            Kind::Engine(engine) => Some(engine),
            Kind::Rank(_) | Kind::Agent(_) => None,
        }
    }

    fn engine_mut(&mut self) -> Option<&mut Engine> {
        match &mut self.place.kind {
            Kind::Engine(engine) => Some(engine),
            Kind::Rank(_) | Kind::Agent(_) => None,
        }
    }

    fn agent_mut(&mut self) -> Option<&mut Agent> {
        match &mut self.place.kind {
            Kind::Agent(agent) => Some(agent),
            Kind::Rank(_) | Kind::Engine(_) => None,
        }
    }
}
