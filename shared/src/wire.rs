//! Closed sets of words: what a field of the protocol can say, as enums of record.
//!
//! On the wire and in JSON such a field is a string, so that builds of different ages understand each other: an older
//! console shows the state that a newer daemon has, word for word, and a field keeps its type. Here each set is an enum.
//! Whoever writes such a field writes [`Word::word`] of a variant; whoever decides by such a field reads it once with
//! [`Word::known`], and what another build says beyond the set stays the text that it is. `proto/tests/words.rs` holds
//! every set against the comment of its field in the `.proto` files.
//!
//! An enum that says more than a word lies with its owner (`Role`, `Phase`, `NodeState`, ...) and gets its words from
//! `named!`; those that are words and nothing else are in this module.

/// One of a closed set of words.
pub trait Word: Copy + Eq + 'static {
    /// All of the set, in the order in which they are listed.
    const ALL: &'static [Self];

    /// As it is on the wire and in JSON.
    fn word(self) -> &'static str;

    /// The one of this word; none where it is not of the set, as of a newer build.
    fn known(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.word() == text)
    }
}

/// Gives the variants of an enum their words, with a method of this name that says them.
macro_rules! named {
    ($of:ident: $(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal,)+ }) => {
        impl $of {
            $(#[$doc])*
            pub fn $name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl $crate::wire::Word for $of {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn word(self) -> &'static str {
                self.$name()
            }
        }
    };
}
pub(crate) use named;

/// Declares an enum of words.
macro_rules! words {
    ($($(#[$doc:meta])* $of:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $of {
            $($(#[$about])* $variant,)+
        }

        named! {
            $of:
            /// As it is on the wire and in JSON.
            word { $($variant = $word,)+ }
        }

        impl std::fmt::Display for $of {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }
    )+};
}

words! {
    /// What a job is about.
    JobState {
        /// Its processes start, and it has not begun.
        Starting = "starting",
        /// It runs.
        Running = "running",
        /// An operator holds it.
        Paused = "paused",
        /// A fault is being recovered from.
        Recovering = "recovering",
        /// It did all its steps.
        Completed = "completed",
        /// An operator ended it.
        Stopped = "stopped",
        /// It could not go on.
        Failed = "failed",
    }

    /// How an instance of a role is.
    InstanceState {
        /// It has no slot.
        Waiting = "waiting",
        /// Its process starts.
        Starting = "starting",
        /// It is up, and has no weights that it could serve yet.
        Stale = "stale",
        /// It runs.
        Running = "running",
        /// A rule doubts it.
        Suspect = "suspect",
        /// An engine that is kept out of traffic.
        Quarantined = "quarantined",
        /// It is a part of a recovery.
        Recovering = "recovering",
        /// It has no process.
        Down = "down",
        /// The job is over.
        Done = "done",
    }

    /// How an instance of a service is.
    ServiceState {
        /// It is not started yet.
        Waiting = "waiting",
        /// Its process starts.
        Starting = "starting",
        /// It is up.
        Up = "up",
        /// It is up, and did not answer well.
        Suspect = "suspect",
        /// Its process is to end.
        Ending = "ending",
        /// It waits to be started again.
        Restarting = "restarting",
        /// It is not started again.
        Down = "down",
    }

    /// How far a pause is.
    PauseState {
        /// The step under way is not over.
        Pausing = "pausing",
        /// Nothing is begun any more.
        Paused = "paused",
    }

    /// How a controller is that does not lead.
    FollowerState {
        /// It follows, and would lead.
        Follows = "follows",
        /// It gives no sign.
        Silent = "silent",
        /// It follows, and cannot lead for want of files of the job.
        LacksFiles = "lacks files",
    }

    /// What the store has of a trajectory.
    TrajectoryState {
        /// It is not at its end.
        Running = "running",
        /// It is at its end, and no step has consumed it.
        Finished = "finished",
        /// A step trained on it.
        Consumed = "consumed",
        /// It took engines along: no step trains on it.
        SetAside = "set_aside",
    }

    /// What became of a trajectory, by all records of it.
    WitnessState {
        /// It waits to be handed out.
        Waiting = "waiting",
        /// An agent worker generates it.
        Generating = "generating",
        /// It is at its end, and its step is not committed.
        Finished = "finished",
        /// The record of the step that consumes it is being written.
        Committing = "committing",
        /// A committed step trained on it.
        Consumed = "consumed",
        /// It took engines along: no step trains on it.
        SetAside = "set_aside",
        /// Its batch is not open yet.
        NotBegun = "not_begun",
    }

    /// What became of a request, in the audit log.
    AuditResult {
        /// It is under way, or nobody knows.
        Asked = "asked",
        /// It was done.
        Done = "done",
        /// It was refused.
        Refused = "refused",
        /// It was accepted, and could not be done.
        Failed = "failed",
    }

    /// How safe the newest step is against the loss of a machine.
    ReplicaState {
        /// There is no step yet.
        NoneYet = "none yet",
        /// One machine has it.
        Alone = "alone",
        /// Copies are on their way.
        Copying = "copying",
        /// Not all of it has a copy elsewhere.
        Short = "short",
        /// Two machines have all of it.
        Safe = "safe",
    }

    /// What was found of a process when a hang was looked into.
    TestimonyState {
        /// It computes, or waits as any process does.
        Lives = "lives",
        /// It was stopped by a signal, or by a debugger.
        Stopped = "stopped",
        /// It waits in the kernel, and no signal reaches it.
        InKernel = "in_kernel",
        /// It ended.
        Dead = "dead",
        /// Nothing came of it in time.
        Late = "late",
        /// It was not waited for.
        Unheard = "unheard",
    }

    /// What an operator must act on. A status tells those that hold in this order, with the gravest first.
    Alarm {
        /// The database takes no writes, and the job waits.
        DatabaseFull = "database full",
        /// The job's log takes no writes, and the job waits.
        LogAway = "log away",
        /// Something stored cannot be read.
        DatabaseDamaged = "database damaged",
        /// No room for checkpoints.
        CheckpointsPaused = "checkpoints paused",
        /// The object store did not take the last checkpoint.
        StoreAway = "object store away",
        /// No other node holds what the job wants held there.
        NoReplica = "no replica",
        /// The job waits for a service.
        ServiceMissing = "service missing",
        /// Nobody would go on if this controller were lost.
        NoFollower = "no follower",
        /// A node was cordoned for its faults.
        LemonNode = "node cordoned",
    }

    /// How a role or a service is run.
    HostingKind {
        /// By the program that comes with the package.
        BuiltIn = "built-in",
        /// By an inference server.
        Engine = "engine",
        /// By a program of the user's.
        Program = "program",
        /// By an environment of the user's.
        Environment = "environment",
        /// It is a service.
        Service = "service",
    }

    /// A window of time of which the slices are shown.
    Window {
        /// The last five minutes.
        FiveMinutes = "5m",
        /// The last ten minutes.
        TenMinutes = "10m",
        /// The last half an hour.
        HalfHour = "30m",
        /// The whole job.
        Job = "job",
    }

    /// How far the change from one authority to the next is.
    RotationStage {
        /// Roles learn to believe both.
        Trusting = "trusting",
        /// All get a certificate by the new one.
        Certifying = "certifying",
    }

    /// Whose certificate it is.
    CertifiedKind {
        /// A node's.
        Node = "node",
        /// A role's.
        Role = "role",
    }

    /// How an operator looks inside an instance.
    InspectWay {
        /// At its threads.
        Threads = "threads",
        /// Also at what can be had of stacks while all goes on.
        Stacks = "stacks",
        /// Also at the stacks of native code, by a debugger that stops each process for a moment.
        Native = "native",
        /// By asking whether it answers.
        Probe = "probe",
    }

    /// Who answered when an instance was asked.
    ProbeTarget {
        /// Its program, or its shim.
        Link = "link",
        /// Its engine, with a token that was really generated.
        Engine = "engine",
        /// The port of a service.
        Port = "port",
    }

    /// Why a pull of a weight version came to nothing.
    PullFault {
        /// Its source could not send.
        Source = "source",
        /// What its source sent has another digest.
        Corrupt = "corrupt",
        /// A newer order took its place.
        Superseded = "superseded",
        /// The memory of the puller itself changed after it was verified.
        Damaged = "damaged",
    }
}

impl JobState {
    /// Whether nothing will come of the job any more.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Stopped | Self::Failed)
    }
}

impl ServiceState {
    /// Whether its process is up, in doubt or not.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Up | Self::Suspect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{IncidentOutcome, NodeState, SetbackKind, Severity};
    use crate::ettr::Slice;
    use crate::ids::Role;
    use crate::job::{Mode, Policy};
    use crate::phase::Phase;

    /// Each word is read as what it was written for, and is of one variant alone.
    fn holds<W: Word + std::fmt::Debug>() {
        for one in W::ALL {
            assert_eq!(W::known(one.word()), Some(*one));
        }
    }

    #[test]
    fn what_was_written_is_read_as_what_it_was() {
        holds::<JobState>();
        holds::<InstanceState>();
        holds::<ServiceState>();
        holds::<TrajectoryState>();
        holds::<WitnessState>();
        holds::<TestimonyState>();
        holds::<Alarm>();
        holds::<Role>();
        holds::<Phase>();
        holds::<Mode>();
        holds::<Policy>();
        holds::<NodeState>();
        holds::<IncidentOutcome>();
        holds::<Severity>();
        holds::<SetbackKind>();
        holds::<Slice>();
    }

    #[test]
    fn a_word_of_another_build_is_none_and_so_are_other_spellings() {
        assert_eq!(JobState::known("hibernating"), None);
        assert_eq!(JobState::known("Running"), None);
        assert_eq!(JobState::known(""), None);
    }

    #[test]
    fn a_word_is_padded_as_text_is() {
        assert_eq!(format!("{:>8}|", ServiceState::Up), "      up|");
    }
}
