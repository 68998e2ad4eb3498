//! Everything the controller remembers. What changed of it is persisted with every record (`entries`).
use super::entries::LastTaken;
use super::output::Outcome;
use crate::core::detect::durations::PhaseDurations;
use crate::core::gang::Gang;
use crate::core::ops::orders::Orders;
use crate::core::recover::Recover;
use crate::core::roster::Roster;
use crate::core::weights::Weights;
use crate::core::work::Work;
use crate::ids::{Generation, Incarnation, Role, Step, WeightVersion};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The whole memory of the controller. Serialisable; [`super::Core::restore`] goes on from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub(super) job: JobState,
    pub(super) started_at: Time,
    /// The latest time given.
    pub(super) last_now: Time,
    pub(super) next_generation: Generation,
    pub(super) committed: Step,
    #[serde(flatten)]
    pub(super) weights: Weights,
    pub(super) gang: Gang,
    #[serde(flatten)]
    pub(super) orders: Orders,
    #[serde(flatten)]
    pub(super) roster: Roster,
    #[serde(flatten)]
    pub(super) work: Work,
    #[serde(flatten)]
    pub(super) recover: Recover,
    pub(super) ledger: crate::ettr::Ledger,
    pub(super) committed_at: Option<Time>,
    pub(super) step_duration: Duration,
    /// The number of the next armed fault.
    #[serde(default)]
    pub(super) next_fault: u64,
    /// How long phases took, by role.
    #[serde(default)]
    pub(super) durations: PhaseDurations,
    /// Roles of which an instance ever attached: their start-up code works.
    pub(super) proven: Vec<Role>,
    /// Whether a gang was ever restored: the trainer's programs come up.
    #[serde(default)]
    pub(super) restored: bool,
    #[serde(skip)]
    pub(super) last_taken: LastTaken,
}

/// Where the job is in its life.
///
/// ```text
///       Start
///  new ──────► running ──┬── last step committed and published ──► over: completed
///   ▲                    ├── Stop ───────────────────────────────► over: stopped
///   │                    └── no restart can help, budget spent ──► over: failed      (I-7)
///   └── a job that was stopped is gone on with
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// Never started.
    New,
    /// Under way.
    Running,
    /// Ended.
    Over(Outcome),
}

impl JobState {
    /// Why it failed, or nothing.
    pub fn reason(&self) -> &str {
        match self {
            JobState::Over(Outcome::Failed { reason }) => reason,
            _ => "",
        }
    }
}

impl State {
    /// The memory of a job that was never started.
    pub(super) fn new(config: &super::CoreConfig) -> Self {
        Self {
            roster: Roster::new(config),
            ..Self::empty()
        }
    }

    /// The memory of a job without places and nodes.
    pub(super) fn empty() -> Self {
        Self {
            job: JobState::New,
            started_at: Time(0),
            last_now: Time(0),
            next_generation: Generation(1),
            committed: Step(0),
            weights: Weights::default(),
            gang: Gang::default(),
            orders: Orders::default(),
            roster: Roster::default(),
            work: Work::default(),
            recover: Recover::default(),
            ledger: crate::ettr::Ledger::default(),
            committed_at: None,
            step_duration: Duration::ZERO,
            next_fault: 1,
            durations: PhaseDurations::default(),
            proven: Vec::new(),
            restored: false,
            last_taken: LastTaken::default(),
        }
    }

    /// The memory of a job of which only a checkpoint is left: nothing of it runs any more, and what
    /// was generated for later batches is generated again. Generations go on after the one that made
    /// the checkpoint, incarnations after `seen`, so that nobody of before passes for somebody (I-1).
    /// The step's version counts as published: whoever saw it must not see an older one (I-4).
    pub fn at_checkpoint(
        config: &super::CoreConfig,
        committed: Step,
        generation: Generation,
        seen: Incarnation,
    ) -> Self {
        let published = (committed > Step(0)).then_some(WeightVersion(committed.0));
        let mut state = Self {
            committed,
            weights: Weights::put_back(published, 0, []),
            next_generation: generation.next(),
            ..Self::new(config)
        };
        state.roster.number_from(seen.next());
        state
    }

    /// A stopped job to be gone on with: every process of it has ended, so all places are empty and
    /// nothing is leased; what was committed, stored, issued and published stays. Others are as is.
    ///
    /// Whether it was read or is a copy of what was: nothing that is derived from it is known.
    pub(super) fn resumed(mut self, config: &super::CoreConfig) -> Self {
        // It may be a copy: whoever goes on from it writes all of it down first.
        self.last_taken = LastTaken::default();
        self.weights = self.weights.resumed(self.roster.take_former());
        self.roster = self.roster.resumed(config);
        self.work.requests.derived_anew();
        if !matches!(self.job, JobState::Over(Outcome::Stopped)) {
            return self;
        }
        // Open batches keep their shape, so ranks that do not divide them come when those are consumed, as
        // they would have if nobody had stopped the job.
        let ranks = match self.work.requests.table().divides(config.ranks) {
            true => config.ranks,
            false => self.roster.instances().count(Role::Trainer),
        };
        let mut begins = config.clone();
        begins.set_count(Role::Trainer, ranks);
        if begins.hybrids > 0 {
            begins.set_count(Role::Hybrid, ranks);
        }
        let fresh = Self::new(&begins);
        self.job = fresh.job;
        self.roster.begin_anew(&begins);
        self.weights.forget_engines();
        // Nothing counts any more of what failed before: an operator looked at it in between.
        self.gang = fresh.gang;
        self.orders.begin_anew(config.ranks, ranks != config.ranks);
        self.recover.begin_anew();
        if !config.mutant(super::Mutation::ForgetResume) {
            self.work.requests.return_leases(self.last_now);
        }
        self
    }

    /// The newest revision of the job file that was accepted; 0: the first.
    pub fn revision(&self) -> u32 {
        self.orders.revision()
    }

    /// How many instances the job has.
    pub fn instances(&self) -> usize {
        self.roster.instances().iter().count()
    }

    /// The life that runs in the slot in which this one ran before it.
    pub fn successor(&self, life: Incarnation) -> Option<Incarnation> {
        self.roster.instances().successor(life)
    }

    /// The last committed step.
    pub fn committed(&self) -> Step {
        self.committed
    }

    /// How the job ended, if it did.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.job {
            JobState::Over(outcome) => Some(outcome),
            _ => None,
        }
    }
}
