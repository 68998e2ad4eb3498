//! Everything the controller can want done.
use super::input::{Exit, StepMetrics};
use crate::core::ops::refusal::{Refusal, Reply};
use crate::core::roster::nodes::SlotRef;
use crate::fault::{At, Fault};
use crate::ids::{
    Generation, Incarnation, IncidentId, InstanceId, NodeId, Step, TrajectoryId, WeightVersion,
};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// One thing to do, in order. Outputs that follow a [`Output::Record`] may be acted on only once
/// that record (and [`super::Core::state`] with it) is durable, but for those that wait for none
/// ([`Output::waits_for_records`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Output {
    /// Start a process.
    Spawn {
        /// Place.
        id: InstanceId,
        /// Its fencing number.
        incarnation: Incarnation,
        /// The gang's fencing number (trainers; 0 otherwise).
        generation: Generation,
        /// Where.
        node: NodeId,
        /// The slot it occupies there.
        slot: SlotRef,
        /// The revision of the job file it reads; 0: the first.
        revision: u32,
    },
    /// Kill the whole process group, with SIGKILL.
    Kill {
        /// Place.
        id: InstanceId,
        /// Which life.
        incarnation: Incarnation,
        /// Where it runs, if it had a slot.
        node: Option<NodeId>,
        /// Why, for the log.
        reason: String,
    },
    /// Kill what a node that came back still runs of a life that is over (I-1).
    Fence {
        /// Where.
        node: NodeId,
        /// Which life.
        incarnation: Incarnation,
    },
    /// Ask a process to end gently; kill it after a grace. It is no fault, and its end is reported.
    Retire {
        /// Which life.
        incarnation: Incarnation,
    },
    /// Do to a living instance what its node can do.
    Strike {
        /// Which life.
        incarnation: Incarnation,
        /// What.
        fault: Fault,
    },
    /// Tell a role what it is to do to itself; the same number may come again. PullOrder by
    /// [`super::RoleEvent::FaultStruck`].
    Carry {
        /// Which life.
        incarnation: Incarnation,
        /// The fault's number.
        number: u64,
        /// What.
        fault: Fault,
        /// When; none: now.
        at: Option<At>,
        /// The present life of the instance that the fault is about too.
        peer: Option<Incarnation>,
    },
    /// Tell a role that a fault is not wanted any more.
    TakeBack {
        /// Which life.
        incarnation: Incarnation,
        /// The fault's number.
        number: u64,
    },
    /// Strike a node, or the leader.
    Afflict {
        /// Which node.
        node: NodeId,
        /// What.
        fault: Fault,
    },
    /// Answer to a [`super::Request`].
    Reply {
        /// The request.
        ticket: u64,
        /// What is done, or why nothing is.
        result: Result<Reply, Refusal>,
    },
    /// Probe the health of a rollout: generate one token.
    Probe {
        /// Which life.
        incarnation: Incarnation,
        /// How long it may take.
        timeout: Duration,
        /// It gets no traffic until it answers.
        suspect: bool,
    },
    /// Take stacks and states of a process that may be part of a hang, before anything of it is killed.
    /// PullOrder by [`super::RoleEvent::Evidence`].
    CollectEvidence {
        /// Which life.
        incarnation: Incarnation,
        /// For which incident.
        incident: IncidentId,
        /// It goes on working afterwards: nothing may stop it meanwhile, as a debugger does.
        gently: bool,
    },
    /// Restore every rank of the gang from the snapshot of `step` (0: the initial weights).
    Restore {
        /// Which gang.
        generation: Generation,
        /// Members in rank order.
        ranks: Vec<Incarnation>,
        /// The committed step.
        step: Step,
    },
    /// Run a training step on the gang: fetch the batch, old logprobs, advantages, update,
    /// snapshot. Repeated after a daemon restart; workers answer a repeated call from memory.
    TrainStep {
        /// Which gang.
        generation: Generation,
        /// Members in rank order.
        ranks: Vec<Incarnation>,
        /// The step.
        step: Step,
        /// The batch, in order.
        trajectories: Vec<TrajectoryId>,
    },
    /// Compute the old logprobs of these trajectories, which are a part of the step's batch, and keep
    /// them for its `TrainStep` by the same gang. PullOrder by [`super::GangEvent::Prepared`].
    Prepare {
        /// Which gang.
        generation: Generation,
        /// Members in rank order.
        ranks: Vec<Incarnation>,
        /// The step.
        step: Step,
        /// Finished trajectories of its batch, whole prompts.
        trajectories: Vec<TrajectoryId>,
    },
    /// Let every rank serve the version to pullers.
    Publish {
        /// Which gang.
        generation: Generation,
        /// Members in rank order.
        ranks: Vec<Incarnation>,
        /// The version.
        version: WeightVersion,
    },
    /// Tell a rollout to pull a version.
    AssignPull {
        /// The puller.
        puller: Incarnation,
        /// The version.
        version: WeightVersion,
        /// Which order to this incarnation it is: later ones have higher numbers. Its begin and its end are
        /// reported with it.
        order: u64,
        /// Who serves: all trainer ranks in rank order (each its shard), or one relay (everything).
        sources: Vec<Incarnation>,
        /// Whether the sources are trainer ranks.
        from_trainer: bool,
    },
    /// Have a hybrid engine stop computing and send its requests away. PullOrder by
    /// [`super::RoleEvent::Switched`]; commands to one engine are carried out one after the other.
    Pause {
        /// Which life.
        engine: Incarnation,
    },
    /// Have a hybrid engine go on.
    Resume {
        /// Which life.
        engine: Incarnation,
    },
    /// Hand a trajectory to an agent worker. Its stored turns, if any, go with it.
    Dispatch {
        /// The agent; it holds the lease until it finishes, returns it, or dies.
        agent: Incarnation,
        /// Which.
        trajectory: TrajectoryId,
        /// The lease's number: later leases of this trajectory have higher ones.
        lease: u64,
    },
    /// Take a trajectory away from an agent worker (its lease is void).
    Revoke {
        /// The agent.
        agent: Incarnation,
        /// Which.
        trajectory: TrajectoryId,
    },
    /// Answer to [`super::RoleEvent::RouteRequested`]. Given once a rollout is admitted.
    Route {
        /// The request.
        ticket: u64,
        /// The rollout to talk to.
        rollout: Incarnation,
    },
    /// Journal entry; see the type's doc for the durability rule.
    Record(Record),
    /// Something worth showing.
    Event(Event),
    /// The job is over; every role is to be ended gently, then by force.
    Finish {
        /// How it ended.
        outcome: Outcome,
    },
}

impl Output {
    /// Whether it may be acted on only once the records before it are durable.
    ///
    /// What looks only, and what ends a process on a verdict, need not wait: should the driver die before
    /// the verdict is on record, its next life finds the process gone, judges that and comes to the same
    /// restart, counted once (I-7). A disk that stands still must not let a gang hang on, nor let a
    /// rollout fail a probe that it was never sent (I-8). What begins, hands out or promises something
    /// waits.
    pub fn waits_for_records(&self) -> bool {
        match self {
            Output::Kill { .. } | Output::CollectEvidence { .. } | Output::Probe { .. } => false,
            // An end without a fault: unless that is on record, it would be taken for one.
            Output::Retire { .. } => true,
            Output::Spawn { .. }
            | Output::Fence { .. }
            | Output::Strike { .. }
            | Output::Carry { .. }
            | Output::TakeBack { .. }
            | Output::Afflict { .. }
            | Output::Reply { .. }
            | Output::Restore { .. }
            | Output::TrainStep { .. }
            | Output::Prepare { .. }
            | Output::Publish { .. }
            | Output::AssignPull { .. }
            | Output::Pause { .. }
            | Output::Resume { .. }
            | Output::Dispatch { .. }
            | Output::Revoke { .. }
            | Output::Route { .. }
            | Output::Record(_)
            | Output::Event(_)
            | Output::Finish { .. } => true,
        }
    }

    /// Which of these, of which the first waits for a record, may be acted on next. A kill stays behind the
    /// start of the very process that it ends: before it, it would end nothing.
    pub fn overtakes<'a>(queue: impl IntoIterator<Item = &'a Self>) -> Option<usize> {
        let mut starts = BTreeSet::new();
        queue.into_iter().position(|output| match output {
            Output::Spawn { incarnation, .. } => {
                starts.insert(*incarnation);
                false
            }
            Output::Kill { incarnation, .. } => !starts.contains(incarnation),
            other => !other.waits_for_records(),
        })
    }
}

/// What must be durable before its consequences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// An incarnation was issued.
    Issued {
        /// Place.
        id: InstanceId,
        /// Number.
        incarnation: Incarnation,
    },
    /// A step is committed: its snapshot is complete and these trajectories are consumed (I-3).
    Committed {
        /// The step.
        step: Step,
        /// Which gang did it.
        generation: Generation,
        /// Consumed by it.
        trajectories: Vec<TrajectoryId>,
        /// Its figures.
        metrics: StepMetrics,
        /// How they came to it, those that it is not trained on among them; none: a former build wrote it.
        #[serde(default)]
        provenance: Option<super::Provenance>,
    },
    /// A version was published for the first time.
    Published {
        /// The version.
        version: WeightVersion,
    },
    /// Everything generated for these trajectories is thrown away: stored turns, too. Whoever stores
    /// them takes their leases away before this is written.
    Discarded {
        /// Which.
        trajectories: Vec<TrajectoryId>,
    },
    /// A trajectory took engines along: it is handed out no more and its step is not trained on it,
    /// which consumes it with the rest of its batch. Whoever stores it takes its lease away before this
    /// is written; an end that came since counts no more.
    SetAside {
        /// Which.
        trajectory: TrajectoryId,
        /// The evidence: the engines that died, oldest first.
        engines: Vec<super::Taken>,
    },
    /// An operator took an engine out, or let it in again.
    Quarantined {
        /// Place.
        id: InstanceId,
        /// Whether it is out.
        out: bool,
    },
    /// A fault waits for its moment in the present life of a place, or in the start-up of a later one,
    /// or does not wait any more.
    Armed {
        /// Place.
        id: InstanceId,
        /// The fault's number.
        number: u64,
        /// Whether it waits.
        armed: bool,
    },
    /// An operator changed the job: a slot, a node, a count, or values by a new revision of the job
    /// file. It is in force, or planned, and survives the daemon.
    Revised {
        /// The newest revision.
        revision: u32,
    },
    /// An incident opened or closed.
    Incident(Box<crate::core::Incident>),
    /// A phase interval for the ETTR ledger.
    Interval(crate::ettr::Interval),
}

/// Something worth showing to an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Time,
    /// How grave.
    pub severity: Severity,
    /// Short kind, such as `restart`, `step`, `admitted`.
    pub kind: String,
    /// Whom it is about, if one.
    pub id: Option<InstanceId>,
    /// A sentence.
    pub text: String,
}

/// How grave an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Normal course.
    Info,
    /// Worth a look.
    Warn,
    /// A fault.
    Fault,
}

crate::wire::named! {
    Severity:
    /// In a word, as in the protocol.
    word {
        Info = "info",
        Warn = "warn",
        Fault = "fault",
    }
}

/// How the job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All steps done.
    Completed,
    /// An operator stopped it.
    Stopped,
    /// It could not go on.
    Failed {
        /// Why.
        reason: String,
    },
}

/// A process's end in words.
impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(c) => write!(f, "exit code {c}"),
            Exit::Signal(9) => write!(f, "killed by SIGKILL"),
            Exit::Signal(s) => write!(f, "killed by signal {s}"),
            Exit::Gone => write!(f, "gone"),
        }
    }
}
