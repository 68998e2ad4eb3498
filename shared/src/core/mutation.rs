//! Seeded bugs: each is one guard of the core left out. Only with the feature `mutations`, which no
//! program has, can one be switched on; the fault search must find every one of them.
use super::CoreConfig;

/// A guard that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A step is committed whichever gang says that it is done.
    DropFence,
    /// A rollout is admitted while its weights are still on their way.
    AdmitUnverified,
    /// Failures in a row are not counted.
    ForgetBudget,
    /// A version is published before its step is on record.
    PublishBeforeCommit,
    /// A batch stays after its commit, and a repeated answer commits it again.
    ConsumeTwice,
    /// Requests go to a rollout that is being probed.
    RouteToSuspect,
    /// A restarted controller forgets what was published.
    VersionBack,
    /// A source serves one puller too many.
    SecondPuller,
    /// What an agent worker holds is handed to others as soon as its link breaks.
    LeaseTwice,
    /// An agent worker is judged while its tools run.
    KillInTool,
    /// A process is started before its number is on record.
    SkipRecord,
    /// What a dead agent worker held is not handed out again.
    KeepLeases,
    /// What was held when the job was stopped is not handed out when it goes on.
    ForgetResume,
    /// Requests go to rollouts whatever weights they have.
    StaleWeights,
    /// A probe without an answer has no consequence.
    ForgetProbe,
    /// A lost slot is used again.
    KeepLostSlot,
    /// A node that comes back goes on running what is over.
    ForgetStale,
    /// The last rollout gives its slot to a rank.
    TakeLastRollout,
    /// One that is to go is asked to end in the middle of its work.
    DropWork,
    /// A planned change of the gang does not wait for a step boundary.
    ChangeMidStep,
    /// A planned restart of the gang counts as the restart of one that failed.
    CountPlanned,
    /// A cordoned node is used.
    IgnoreCordon,
    /// What an operator was promised is not on record.
    ForgetRequest,
    /// A slot is free though one of the role is in it.
    ShareSlot,
    /// A relay pulls from one that pulls from it.
    PullInCircle,
    /// A puller counts as a relay before it said that it can be read.
    RelayUnready,
    /// A source counts as free while its puller still reads from it.
    FreeSourceEarly,
    /// The trainer gives away copies though relays have what is asked for.
    TrainerAgain,
    /// What ended too old is trained on.
    TrainStale,
    /// A paused job begins the next step.
    BeginPaused,
    /// What takes engines along is handed out again.
    PoisonIgnored,
    /// One engine that died is enough to blame whoever was alone on it.
    PoisonTakesInnocent,
    /// What an agent worker gives back is trained on, with no reward.
    TrainReturned,
    /// An agent worker may give back for ever.
    ForgetReturned,
    /// A new gang counts as serving what the one before it published.
    KeepServes,
    /// A step is begun while the engines have the ranks' slots.
    StepBeforeSlots,
    /// The gang is called while one of its ranks is not linked.
    CallHalfGang,
    /// A pull goes on from an engine that was replaced.
    KeepDeadSource,
    /// A pull goes on from a gang that was replaced.
    KeepTrainerPulls,
    /// What an agent worker gives back is handed out to nobody.
    LoseReturned,
    /// A restarted controller forgets that the job is paused.
    PauseLost,
    /// A restart ends a quarantine.
    QuarantineLost,
    /// A fault in the job's first step costs no more than any other.
    CheapFirstStep,
    /// The end of a process that was replaced counts against the one that replaced it.
    ExitOfFormer,
    /// Task restarts are not counted.
    UncountedTask,
    /// Whoever waits for a slot gets none when one is free.
    ForgetHomeless,
    /// A source that was passed over is not tried again.
    ForgetAvoided,
    /// Useful work does not end a row of one cause.
    CauseOutlivesWork,
    /// Of whatever a role dies, it counts as the same.
    OneCause,
    /// A cause that is met again after it restarted the task restarts it again.
    CauseWithoutEnd,
    /// A gang's hang stays with the rank that the rule named.
    RootIgnored,
    /// What follows from another fault counts against a budget, too.
    FoldedCounts,
    /// One fault cordons a node, however many it takes.
    CordonEarly,
    /// A node is cordoned for its faults though somebody there has no other place.
    CordonLastPlace,
}

impl Mutation {
    /// Every one.
    pub const ALL: [Mutation; 54] = [
        Mutation::DropFence,
        Mutation::AdmitUnverified,
        Mutation::ForgetBudget,
        Mutation::PublishBeforeCommit,
        Mutation::ConsumeTwice,
        Mutation::RouteToSuspect,
        Mutation::VersionBack,
        Mutation::SecondPuller,
        Mutation::LeaseTwice,
        Mutation::KillInTool,
        Mutation::SkipRecord,
        Mutation::KeepLeases,
        Mutation::ForgetResume,
        Mutation::StaleWeights,
        Mutation::ForgetProbe,
        Mutation::KeepLostSlot,
        Mutation::ForgetStale,
        Mutation::TakeLastRollout,
        Mutation::DropWork,
        Mutation::ChangeMidStep,
        Mutation::CountPlanned,
        Mutation::IgnoreCordon,
        Mutation::ForgetRequest,
        Mutation::ShareSlot,
        Mutation::PullInCircle,
        Mutation::RelayUnready,
        Mutation::FreeSourceEarly,
        Mutation::TrainerAgain,
        Mutation::TrainStale,
        Mutation::BeginPaused,
        Mutation::PoisonIgnored,
        Mutation::PoisonTakesInnocent,
        Mutation::TrainReturned,
        Mutation::ForgetReturned,
        Mutation::KeepServes,
        Mutation::StepBeforeSlots,
        Mutation::CallHalfGang,
        Mutation::KeepDeadSource,
        Mutation::KeepTrainerPulls,
        Mutation::LoseReturned,
        Mutation::PauseLost,
        Mutation::QuarantineLost,
        Mutation::CheapFirstStep,
        Mutation::ExitOfFormer,
        Mutation::UncountedTask,
        Mutation::ForgetHomeless,
        Mutation::ForgetAvoided,
        Mutation::CauseOutlivesWork,
        Mutation::OneCause,
        Mutation::CauseWithoutEnd,
        Mutation::RootIgnored,
        Mutation::FoldedCounts,
        Mutation::CordonEarly,
        Mutation::CordonLastPlace,
    ];
}

impl CoreConfig {
    /// Whether this guard is left out; a constant `false` without the feature.
    #[cfg(feature = "mutations")]
    pub(super) fn mutant(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Whether this guard is left out; a constant `false` without the feature.
    #[cfg(not(feature = "mutations"))]
    #[inline(always)]
    pub(super) const fn mutant(&self, _: Mutation) -> bool {
        false
    }
}
