//! The kinds of faults: name, whom they strike, who carries them out.
use super::spec::FaultError;
use crate::ids::Role;
use crate::nearest::nearest;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A fault's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // Each is the fault of its name.
pub enum Kind {
    Kill,
    Exit,
    Hang,
    Slow,
    Oom,
    Exception,
    Nan,
    CorruptWeights,
    StallNetwork,
    CutNetwork,
    HangTool,
    KillTool,
    KillEngineChild,
    KillEngineLeader,
    HangEngine,
    PauseEngine,
    CorruptCheckpoint,
    LoseSlot,
    LoseNode,
    DiskFull,
    NoProcesses,
    Hardware,
    LeaderCrash,
}

/// What a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One instance of a role.
    Instance,
    /// A node.
    Node,
    /// The leader's daemon or its store.
    Leader,
}

/// Who carries a fault out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The node, from outside the process: signals and limits.
    System,
    /// The role itself: it is told.
    Role,
    /// The daemon.
    Daemon,
}

const EVERYBODY: &[Role] = &Role::ALL;
/// Those that an engine of the user's may be.
const REPLICAS: &[Role] = &[Role::Hybrid, Role::Rollout];
const SERVERS: &[Role] = &[Role::Trainer, Role::Hybrid, Role::Rollout];

impl Kind {
    /// Every kind, in the order they are shown.
    pub const ALL: [Kind; 23] = [
        Kind::Kill,
        Kind::Exit,
        Kind::Hang,
        Kind::Slow,
        Kind::Oom,
        Kind::Exception,
        Kind::Nan,
        Kind::CorruptWeights,
        Kind::StallNetwork,
        Kind::CutNetwork,
        Kind::HangTool,
        Kind::KillTool,
        Kind::KillEngineChild,
        Kind::KillEngineLeader,
        Kind::HangEngine,
        Kind::PauseEngine,
        Kind::LoseSlot,
        Kind::Hardware,
        Kind::LoseNode,
        Kind::CorruptCheckpoint,
        Kind::DiskFull,
        Kind::NoProcesses,
        Kind::LeaderCrash,
    ];

    /// The name in drill files, on the command line and in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Exit => "exit",
            Kind::Hang => "hang",
            Kind::Slow => "slow",
            Kind::Oom => "oom",
            Kind::Exception => "exception",
            Kind::Nan => "nan",
            Kind::CorruptWeights => "corrupt-weights",
            Kind::StallNetwork => "stall-network",
            Kind::CutNetwork => "cut-network",
            Kind::HangTool => "hang-tool",
            Kind::KillTool => "kill-tool",
            Kind::KillEngineChild => "kill-engine-child",
            Kind::KillEngineLeader => "kill-engine-leader",
            Kind::HangEngine => "hang-engine",
            Kind::PauseEngine => "pause-engine",
            Kind::CorruptCheckpoint => "corrupt-checkpoint",
            Kind::LoseSlot => "lose-slot",
            Kind::LoseNode => "lose-node",
            Kind::DiskFull => "disk-full",
            Kind::NoProcesses => "no-processes",
            Kind::Hardware => "hardware",
            Kind::LeaderCrash => "leader-crash",
        }
    }

    /// What it does, in a line.
    pub fn help(self) -> &'static str {
        match self {
            Kind::Kill => "SIGKILL to its process group",
            Kind::Exit => "it exits with a code",
            Kind::Hang => "SIGSTOP to its process group",
            Kind::Slow => "it runs for a part of the time only, for so long",
            Kind::Oom => "it gets no more memory",
            Kind::Exception => "it raises an exception, as a user's code would",
            Kind::Nan => "its loss is no number",
            Kind::CorruptWeights => "bytes of the weights it serves are flipped",
            Kind::StallNetwork => "it answers nothing to one puller of its weights, for so long",
            Kind::CutNetwork => "it closes the connection to one puller of its weights",
            Kind::HangTool => "its tool does not answer, for so long",
            Kind::KillTool => "SIGKILL to every process of its tool, for so long",
            Kind::KillEngineChild => "SIGKILL to the busiest process its engine started",
            Kind::KillEngineLeader => "SIGKILL to its engine's first process alone",
            Kind::HangEngine => "SIGSTOP to all processes of its engine",
            Kind::PauseEngine => {
                "its engine is paused, as by a client that leaves it so, for so long"
            }
            Kind::CorruptCheckpoint => "a byte of the newest checkpoint is flipped",
            Kind::LoseSlot => "SIGKILL, and its slot is gone until it is restored",
            Kind::LoseNode => "a node's daemon and all its processes die",
            Kind::DiskFull => "the store has no room, for so long",
            Kind::NoProcesses => "the leader's node can start no process, for so long",
            Kind::Hardware => "the device of its slot shows an event (test library only)",
            Kind::LeaderCrash => "the leader's daemon aborts",
        }
    }

    /// What it strikes.
    pub fn target(self) -> Target {
        match self {
            Kind::LoseNode => Target::Node,
            Kind::CorruptCheckpoint | Kind::DiskFull | Kind::NoProcesses | Kind::LeaderCrash => {
                Target::Leader
            }
            _ => Target::Instance,
        }
    }

    /// Who carries it out.
    pub fn carrier(self) -> Carrier {
        match self {
            Kind::Kill | Kind::Hang | Kind::Slow | Kind::Oom | Kind::LoseSlot | Kind::Hardware => {
                Carrier::System
            }
            Kind::Exit
            | Kind::Exception
            | Kind::Nan
            | Kind::CorruptWeights
            | Kind::StallNetwork
            | Kind::CutNetwork
            | Kind::HangTool
            | Kind::KillTool
            | Kind::KillEngineChild
            | Kind::KillEngineLeader
            | Kind::HangEngine
            | Kind::PauseEngine => Carrier::Role,
            Kind::CorruptCheckpoint
            | Kind::LoseNode
            | Kind::DiskFull
            | Kind::NoProcesses
            | Kind::LeaderCrash => Carrier::Daemon,
        }
    }

    /// The roles that it can befall; none where it strikes no instance.
    pub fn roles(self) -> &'static [Role] {
        match self {
            Kind::Kill
            | Kind::Exit
            | Kind::Hang
            | Kind::Slow
            | Kind::Oom
            | Kind::Exception
            | Kind::LoseSlot => EVERYBODY,
            // Agent workers use no device and serve no weights.
            Kind::Hardware | Kind::StallNetwork | Kind::CutNetwork | Kind::CorruptWeights => {
                SERVERS
            }
            Kind::Nan => &[Role::Trainer],
            Kind::HangTool | Kind::KillTool => &[Role::Agent],
            Kind::KillEngineChild | Kind::KillEngineLeader | Kind::HangEngine => REPLICAS,
            // A hybrid engine is paused and goes on as its rank needs the slot.
            Kind::PauseEngine => &[Role::Rollout],
            Kind::CorruptCheckpoint
            | Kind::LoseNode
            | Kind::DiskFull
            | Kind::NoProcesses
            | Kind::LeaderCrash => &[],
        }
    }

    /// Whether the job has a recovery to show for it when nothing goes wrong: the struck life ends.
    pub fn ends_life(self) -> bool {
        matches!(
            self,
            Kind::Kill
                | Kind::Exit
                | Kind::Hang
                | Kind::Oom
                | Kind::Exception
                | Kind::Nan
                | Kind::LoseSlot
                | Kind::KillEngineChild
                | Kind::KillEngineLeader
                | Kind::HangEngine
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = FaultError;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Kind::ALL.into_iter().find(|k| k.name() == name);
        found.ok_or_else(|| {
            let hint = match nearest(name, Kind::ALL.iter().map(|k| k.name())) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    let names: Vec<&str> = Kind::ALL.iter().map(|k| k.name()).collect();
                    format!("faults are {}", names.join(", "))
                }
            };
            FaultError::Unknown {
                name: name.to_owned(),
                hint,
            }
        })
    }
}
