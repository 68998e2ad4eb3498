//! What tests that play a whole job see of a controller beyond its [`super::View`], and the small job that they play.
//! Everything here is read only, and has the name of what it tells, not of where it lies: the parts stay free to change.
//!
//! Only under test and with the feature `inspect`, which the tests of `robust-sim` have and no program.
use super::gang::Stage;
use super::gang::context::Turn;
use super::roster::instance::Instance;
use super::{Context, Core, CoreConfig, Mode, OwnLoop, RuleSet, Sample, SlotRef, Strikes};
use crate::ids::{Generation, Incarnation, InstanceId, Role, Step, WeightVersion};
use crate::time::Time;
use std::time::Duration;

/// A job of three rollouts, two ranks and two agent workers, with batches of eight. The windows of its rules are short
/// enough for tests, and wide enough for samples that come every 250 ms.
pub fn small(mode: Mode, steps: u64) -> CoreConfig {
    CoreConfig {
        mode,
        steps,
        ahead: if mode == Mode::Sync { 0 } else { 1 },
        switch_at: if mode == Mode::Sync { 1.0 } else { 0.5 },
        prompts: 2,
        responses: 4,
        agent_concurrency: 8,
        rules: quick_rules(),
        evidence_timeout: Duration::from_secs(1),
        ..CoreConfig::default()
    }
}

/// The same job with a trainer whose loop is its own: without agents, without a last step, and without engines where
/// nothing is published.
pub fn own_loop(own: OwnLoop) -> CoreConfig {
    CoreConfig {
        own_loop: Some(own),
        agents: 0,
        rollouts: if own.publishes { 2 } else { 0 },
        steps: u64::MAX,
        ..small(Mode::Async, 0)
    }
}

/// A loop that says nothing.
pub const SILENT: OwnLoop = OwnLoop {
    commits: false,
    publishes: false,
    keeps_state: false,
};
/// One that commits and publishes, with its state kept by the job.
pub const KEPT: OwnLoop = OwnLoop {
    commits: true,
    publishes: true,
    keeps_state: true,
};
/// The same, keeping its state itself.
pub const OWN_STATE: OwnLoop = OwnLoop {
    keeps_state: false,
    ..KEPT
};

/// The rules of [`small`].
pub fn quick_rules() -> RuleSet {
    let ms = Duration::from_millis;
    RuleSet::default().with(|r| {
        r.trainer_idle.window.set(ms(3000));
        r.rollout_silent.window.set(ms(2000));
        r.rollout_silent.probe_timeout.set(ms(1000));
        r.agent_silent.window.set(ms(4000));
        r.attach_overdue.window.set(ms(10_000));
    })
}

/// See the module's doc. What is asked of an instance that is not there is answered as of one of which nothing is known.
#[derive(Clone, Copy, Debug)]
pub struct Inspect<'a>(&'a Core);

impl Core {
    /// A closer look.
    pub fn inspect(&self) -> Inspect<'_> {
        Inspect(self)
    }
}

/// The trainer, its steps, and what was decided.
impl Inspect<'_> {
    /// The gang's number.
    pub fn generation(&self) -> Generation {
        self.0.s.gang.generation()
    }

    /// The step that the gang is told to train; none: it does something else.
    pub fn training(&self) -> Option<Step> {
        match self.0.s.gang.stage() {
            Stage::Training(step) => Some(step),
            _ => None,
        }
    }

    /// Whose turn the trainer's slots are.
    pub fn context(&self) -> Context {
        self.0.s.gang.context()
    }

    /// Faults of the gang in the step that it is in.
    pub fn faults_in_step(&self) -> u32 {
        self.0.s.gang.faults_in_step()
    }

    /// Restarts of the whole task that count against its budget.
    pub fn task_restarts(&self) -> u32 {
        self.0.s.recover.task_restarts()
    }

    /// Whether a restart or an update of a role, one instance after the other, is under way.
    pub fn is_rolling(&self) -> bool {
        !self.0.s.orders.rolling().is_empty()
    }

    /// The revision of the job file that a role's processes read; 0: the first.
    pub fn revision_of(&self, role: Role) -> u32 {
        self.0.revision_of(role)
    }

    /// The number that the next process is given.
    pub fn next_incarnation(&self) -> Incarnation {
        self.0.s.roster.next_incarnation()
    }

    /// Whether nothing of a step's batch is left to generate.
    pub fn is_generated(&self, batch: Step) -> bool {
        self.0.s.work.requests.table().complete(batch).is_some()
    }

    /// The longest that any phase of any role usually takes: what 99 of 100 were not longer than; none was left yet.
    pub fn longest_phase(&self) -> Option<Duration> {
        let all = self.0.s.durations.iter();
        all.filter_map(|(_, seen)| seen.percentile_99(1.0)).max()
    }
}

/// Instances, slots and requests.
impl<'a> Inspect<'a> {
    /// The lives in the places of a role, in order; 0 where there is none.
    pub fn lives(&self, role: Role) -> Vec<Incarnation> {
        let of_role = self.0.s.roster.instances().role(role);
        of_role.map(Instance::incarnation).collect()
    }

    fn place(&self, id: InstanceId) -> Option<&'a Instance> {
        self.0.s.roster.instances().get(id)
    }

    /// Until when the evidence for a verdict on it is waited for; none: there is no verdict.
    pub fn condemned_until(&self, id: InstanceId) -> Option<Time> {
        Some(self.place(id)?.condemned()?.until)
    }

    /// Faults of it that count against budgets.
    pub fn strikes(&self, id: InstanceId) -> Option<&'a Strikes> {
        self.place(id).map(Instance::strikes)
    }

    /// Probes in a row that an engine failed.
    pub fn failed_probes(&self, id: InstanceId) -> u32 {
        self.place(id).map_or(0, |i| i.health().failures)
    }

    /// Its last sample.
    pub fn sample(&self, id: InstanceId) -> Sample {
        self.place(id).map(|i| *i.sample()).unwrap_or_default()
    }

    /// Whether a hybrid engine generates what it is given, as far as it was told.
    pub fn rolls(&self, id: InstanceId) -> bool {
        self.place(id).is_some_and(|i| i.turn() == Turn::Rolls)
    }

    /// Whether a hybrid engine was told to pause, and did.
    pub fn is_paused(&self, id: InstanceId) -> bool {
        self.place(id).is_some_and(|i| i.turn() == Turn::Paused)
    }

    /// Whether an engine was told to pull, and is not done.
    pub fn pulls(&self, id: InstanceId) -> bool {
        self.0.s.weights.of(id).pull().is_some()
    }

    /// Whether it was told to pull from the trainer's ranks, and is not done.
    pub fn pulls_from_trainer(&self, id: InstanceId) -> bool {
        let pull = self.0.s.weights.of(id).pull();
        pull.is_some_and(|pull| pull.from_trainer)
    }

    /// Instances of a role that get requests.
    pub fn serving(&self, role: Role) -> u32 {
        self.0.s.index_now().counts(role).serves
    }

    /// Whether something may run in a slot.
    pub fn is_usable(&self, slot: &SlotRef) -> bool {
        self.0.s.roster.nodes().usable(slot)
    }

    /// Requests that an engine was given and that are not over.
    pub fn requests_at(&self, engine: Incarnation) -> u32 {
        self.0.s.work.rollouts.running(engine)
    }

    /// One of those, by its number.
    pub fn request_at(&self, engine: Incarnation) -> Option<u64> {
        self.0.s.work.rollouts.table().of(engine)
    }

    /// Whether the request of this number waits or is served.
    pub fn has_request(&self, ticket: u64) -> bool {
        self.0.s.work.rollouts.table().get(ticket).is_some()
    }

    /// The request that is given an engine next, by its number; none waits.
    pub fn next_request(&self) -> Option<u64> {
        let next = self.0.s.work.rollouts.table().next_waiting((0, 0));
        next.map(|(_, _, ticket)| ticket)
    }

    /// The newest version of the engines that get requests.
    pub fn newest_served(&self) -> Option<WeightVersion> {
        self.0.s.work.rollouts.newest_served()
    }
}
