//! Fields of the messages that say one word of a closed set, read as that.
//!
//! Such a field is a string, and whoever shows it shows the string. Whoever decides by it asks the method of the field's
//! name, `status.state()`, and gets the variant of an enum, or none where the word is of another build or missing. The
//! sets are `robust_shared`'s; a test holds them against the comments of the `.proto` files.
use crate::v1;
use robust_shared::core::{
    Context, FaultKind, IncidentOutcome, NodeState, ProcessState, SetbackKind, Severity,
};
use robust_shared::ettr::{Cause, Slice};
use robust_shared::history::{Road, TransferKind};
use robust_shared::ids::Role;
use robust_shared::job::{EngineKind, EngineWeights, Mode, Needed, Policy, PublishAfter};
use robust_shared::phase::Phase;
use robust_shared::promises::Level;
use robust_shared::replicas::Spread;
use robust_shared::wire::{
    Alarm, AuditResult, CertifiedKind, FollowerState, HostingKind, InspectWay, InstanceState,
    JobState, PauseState, ProbeTarget, PullFault, ReplicaState, RotationStage, ServiceState,
    TestimonyState, TrajectoryState, Window, WitnessState, Word,
};

/// A field that says a word of a closed set.
#[derive(Clone, Debug)]
pub struct Field {
    /// The message's name.
    pub message: &'static str,
    /// The field's name in it.
    pub name: &'static str,
    /// All words of the set.
    pub words: Vec<&'static str>,
}

impl Field {
    fn of<W: Word>(message: &'static str, name: &'static str) -> Self {
        let words = W::ALL.iter().map(|one| one.word()).collect();
        Self {
            message,
            name,
            words,
        }
    }
}

macro_rules! fields {
    ($($message:ident { $($field:ident: $of:ty,)+ })+) => {
        $(impl v1::$message {$(
            /// What the field says, as one of the closed set; none: it is empty, or says a word of another build.
            pub fn $field(&self) -> Option<$of> {
                <$of as Word>::known(&self.$field)
            }
        )+})+

        /// All fields that say a word of a closed set.
        pub fn fields() -> Vec<Field> {
            vec![$($(Field::of::<$of>(stringify!($message), stringify!($field)),)+)+]
        }
    };
}

fields! {
    TrajectoriesRequest { state: TrajectoryState, }
    Trajectory { state: TrajectoryState, }
    Witness { state: WitnessState, }
    Setback { kind: SetbackKind, }
    StepTrajectory { state: TrajectoryState, }
    InjectRequest { role: Role, }
    ArmedFault { role: Role, }
    AuditEntry { result: AuditResult, }
    QuarantineRequest { role: Role, }
    NodeStatus { state: NodeState, }
    Pause { state: PauseState, }
    CauseTime { cause: Cause, }
    Lane { role: Role, }
    PhaseTime { phase: Phase, }
    TransferSum { kind: TransferKind, }
    PullsByRoad { road: Road, }
    Transfer { kind: TransferKind, road: Road, }
    RestartBudget { kind: FaultKind, }
    Status {
        mode: Mode,
        policy: Policy,
        state: JobState,
        context: Context,
        publish_after: PublishAfter,
    }
    TimeWindow { name: Window, }
    TimeSlice { name: Slice, }
    TimeStretch { slice: Slice, }
    Follower { state: FollowerState, }
    HostedRole { hosting: HostingKind, kind: EngineKind, weights: EngineWeights, }
    Promise { level: Level, }
    ServiceStatus { state: ServiceState, needed: Needed, }
    Alarm { kind: Alarm, }
    ReplicaStatus { state: ReplicaState, spread: Spread, }
    RoleStatus { role: Role, state: InstanceState, phase: Phase, pull_road: Road, }
    PhaseSpan { role: Role, phase: Phase, }
    Incident { role: Role, outcome: IncidentOutcome, }
    Testimony { role: Role, state: TestimonyState, }
    Event { severity: Severity, role: Role, }
    Report { mode: Mode, policy: Policy, state: JobState, }
    AuthorityReply { stage: RotationStage, }
    Certified { kind: CertifiedKind, }
    InspectRequest { what: InspectWay, }
    ProbeAnswer { what: ProbeTarget, }
    RoleEvidence { state: ProcessState, }
    PullProgress { road: Road, }
    PullError { kind: PullFault, }
}
