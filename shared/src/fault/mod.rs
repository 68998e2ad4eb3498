//! Faults that can be injected: one vocabulary for the core, the protocol, the command line, drill
//! files and the console.
//!
//! ```text
//!  `--stall-network rollout-1 --peer rollout-2`  ┐            ┌─ of the system: signals, limits
//!  `kind = "kill"` in a drill                    ├─► Fault ──►├─ of the role: it does it to itself
//!  `slow 20% 10s` in a line of text              ┘            └─ of the daemon: node, disk, store
//! ```
//! [`Kind`] is the name and what goes with it; [`Spec`] is a fault as somebody wrote it down, checked
//! by [`Spec::fault`]; [`At`] is the moment in an instance's life at which it strikes.
mod at;
mod event;
mod kind;
mod spec;
#[cfg(test)]
mod tests;

pub use at::{At, AtError};
pub use event::HardwareEvent;
pub use kind::{Carrier, Kind, Target};
pub use spec::{FaultError, Spec};

use crate::ids::InstanceId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A fault, with all that it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// The process exits by itself.
    Exit {
        /// With this code.
        code: u8,
    },
    /// SIGSTOP.
    Hang,
    /// It runs for a part of the time only: stopped and continued in turn.
    Slow {
        /// The part, in percent.
        percent: u8,
        /// For so long.
        lasts: Duration,
    },
    /// It gets no more memory.
    Oom,
    /// An exception, as a user's code would raise it.
    Exception,
    /// The loss is no number.
    Nan,
    /// Bytes of the weights it serves are flipped.
    CorruptWeights,
    /// It answers nothing to one puller.
    StallNetwork {
        /// Whom.
        peer: InstanceId,
        /// For so long.
        lasts: Duration,
    },
    /// It closes the connection to one puller.
    CutNetwork {
        /// Whom.
        peer: InstanceId,
    },
    /// Its tool does not answer.
    HangTool {
        /// For so long.
        lasts: Duration,
    },
    /// SIGKILL to every process of its tool.
    KillTool {
        /// For so long.
        lasts: Duration,
    },
    /// SIGKILL to the busiest process that its engine started.
    KillEngineChild,
    /// SIGKILL to its engine's first process; what that one started is left.
    KillEngineLeader,
    /// SIGSTOP to all processes of its engine.
    HangEngine,
    /// Its engine is paused, and nobody lets it go on.
    PauseEngine {
        /// For so long.
        lasts: Duration,
    },
    /// A byte of the newest checkpoint is flipped.
    CorruptCheckpoint,
    /// SIGKILL, and its slot is gone until it is restored.
    LoseSlot,
    /// A node is gone: its daemon and all its processes.
    LoseNode {
        /// Its name.
        node: String,
    },
    /// The store has no room.
    DiskFull {
        /// For so long.
        lasts: Duration,
    },
    /// The leader's node can start no process.
    NoProcesses {
        /// For so long.
        lasts: Duration,
    },
    /// The device of its slot shows something (with the test library only).
    Hardware {
        /// What.
        event: HardwareEvent,
    },
    /// The leader's daemon dies.
    LeaderCrash,
}

impl Fault {
    /// Its name and what goes with that.
    pub fn kind(&self) -> Kind {
        match self {
            Fault::Kill => Kind::Kill,
            Fault::Exit { .. } => Kind::Exit,
            Fault::Hang => Kind::Hang,
            Fault::Slow { .. } => Kind::Slow,
            Fault::Oom => Kind::Oom,
            Fault::Exception => Kind::Exception,
            Fault::Nan => Kind::Nan,
            Fault::CorruptWeights => Kind::CorruptWeights,
            Fault::StallNetwork { .. } => Kind::StallNetwork,
            Fault::CutNetwork { .. } => Kind::CutNetwork,
            Fault::HangTool { .. } => Kind::HangTool,
            Fault::KillTool { .. } => Kind::KillTool,
            Fault::KillEngineChild => Kind::KillEngineChild,
            Fault::KillEngineLeader => Kind::KillEngineLeader,
            Fault::HangEngine => Kind::HangEngine,
            Fault::PauseEngine { .. } => Kind::PauseEngine,
            Fault::CorruptCheckpoint => Kind::CorruptCheckpoint,
            Fault::LoseSlot => Kind::LoseSlot,
            Fault::LoseNode { .. } => Kind::LoseNode,
            Fault::DiskFull { .. } => Kind::DiskFull,
            Fault::NoProcesses { .. } => Kind::NoProcesses,
            Fault::Hardware { .. } => Kind::Hardware,
            Fault::LeaderCrash => Kind::LeaderCrash,
        }
    }

    /// The other instance it is about.
    pub fn peer(&self) -> Option<InstanceId> {
        match self {
            Fault::StallNetwork { peer, .. } | Fault::CutNetwork { peer } => Some(*peer),
            _ => None,
        }
    }

    /// What happens to whom it strikes, to go after "is".
    pub fn done(&self) -> String {
        let secs = |d: &Duration| d.as_secs_f64();
        match self {
            Fault::Kill => "killed".to_owned(),
            Fault::Exit { code } => format!("made to exit with code {code}"),
            Fault::Hang => "stopped".to_owned(),
            Fault::Slow { percent, lasts } => {
                format!("slowed down to {percent}% for {} s", secs(lasts))
            }
            Fault::Oom => "given no more memory".to_owned(),
            Fault::Exception => "made to raise an exception".to_owned(),
            Fault::Nan => "given a loss that is no number".to_owned(),
            Fault::CorruptWeights => "made to serve corrupt weights".to_owned(),
            Fault::StallNetwork { peer, lasts } => {
                format!("silent towards {peer} for {} s", secs(lasts))
            }
            Fault::CutNetwork { peer } => format!("cut off from {peer}"),
            Fault::HangTool { lasts } => {
                format!("left without an answer of its tool for {} s", secs(lasts))
            }
            Fault::KillTool { lasts } => {
                format!(
                    "made to kill every process of its tool for {} s",
                    secs(lasts)
                )
            }
            Fault::KillEngineChild => "made to kill a process of its engine".to_owned(),
            Fault::KillEngineLeader => "made to kill its engine's first process".to_owned(),
            Fault::HangEngine => "made to stop its engine".to_owned(),
            Fault::PauseEngine { lasts } => format!("paused for {} s", secs(lasts)),
            Fault::CorruptCheckpoint => "corrupted".to_owned(),
            Fault::LoseSlot => "killed with its slot".to_owned(),
            Fault::LoseNode { .. } => "lost".to_owned(),
            Fault::DiskFull { lasts } => format!("full for {} s", secs(lasts)),
            Fault::NoProcesses { lasts } => {
                format!("unable to start a process for {} s", secs(lasts))
            }
            Fault::Hardware { event } => format!("on a device that shows {event}"),
            Fault::LeaderCrash => "aborted".to_owned(),
        }
    }
}

/// The text [`Spec::parse`] reads.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name())?;
        let secs = |d: &Duration| d.as_secs_f64();
        match self {
            Fault::Exit { code } => write!(f, " {code}"),
            Fault::Slow { percent, lasts } => write!(f, " {percent}% {}s", secs(lasts)),
            Fault::StallNetwork { peer, lasts } => write!(f, " {peer} {}s", secs(lasts)),
            Fault::CutNetwork { peer } => write!(f, " {peer}"),
            Fault::HangTool { lasts }
            | Fault::KillTool { lasts }
            | Fault::PauseEngine { lasts }
            | Fault::DiskFull { lasts }
            | Fault::NoProcesses { lasts } => write!(f, " {}s", secs(lasts)),
            Fault::LoseNode { node } => write!(f, " {node}"),
            Fault::Hardware { event } => write!(f, " {event}"),
            _ => Ok(()),
        }
    }
}

impl std::str::FromStr for Fault {
    type Err = FaultError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Spec::parse(text)?.fault()
    }
}
