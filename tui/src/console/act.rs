//! What an operator can have done, what it means, and what must be typed before it happens.
mod ahead;
mod meaning;
mod several;

pub use several::Several;

use super::job::Job;
use crate::format::who;
use robust_proto::v1;
use robust_shared::fault::{At, Fault, Spec};

/// Something that changes the job.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// A real fault.
    Strike(Strike),
    /// Take back a fault that waits for its moment.
    Disarm(v1::ArmedFault),
    /// New processes, without a fault.
    Restart(Whole),
    /// Begin nothing beyond the step under way.
    Pause,
    /// Go on after a pause.
    Resume,
    /// An engine out of traffic, or in again.
    Traffic {
        /// Its role.
        role: String,
        /// Its number.
        index: u32,
        /// Out of it.
        out: bool,
    },
    /// Nothing new on a node, or again.
    Cordon {
        /// Its name.
        node: String,
        /// Nothing new.
        out: bool,
    },
    /// Nothing new on a node, and what is there is restarted elsewhere.
    Drain {
        /// Its name.
        node: String,
        /// What has to go, one after the other.
        whom: Vec<Whole>,
    },
    /// A lost slot is there again.
    Restore(v1::Slot),
    /// More or fewer instances.
    Scale {
        /// Of this role.
        role: String,
        /// Now.
        from: u32,
        /// Then.
        to: u32,
    },
    /// A new value for a role, which is restarted with it.
    Update {
        /// The role.
        role: String,
        /// `key=value`.
        change: String,
    },
    /// Words beside an incident.
    Note {
        /// Its number.
        incident: u64,
        /// A line.
        text: String,
    },
    /// Several of a kind, one after the other.
    Several(Several),
    /// End job and daemon.
    Stop,
}

/// A fault to inject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Which.
    pub fault: Fault,
    /// When; none: at once.
    pub at: Option<At>,
    /// Whom; none: a node or the leader.
    pub life: Option<Life>,
    /// The job is protected, and the operator typed its name.
    pub i_know: bool,
}

/// A process as it was shown when the operator chose it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The role's name.
    pub role: String,
    /// Rank or replica.
    pub index: u32,
    /// Its fencing number: its successor is not meant.
    pub incarnation: u64,
    /// Its process.
    pub pid: u32,
}

/// What is restarted as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whole {
    /// The process of one place; a rank takes its gang along.
    Instance {
        /// The role's name.
        role: String,
        /// Rank or replica.
        index: u32,
    },
    /// Every process of the job.
    Task,
}

impl From<&v1::RoleStatus> for Life {
    fn from(r: &v1::RoleStatus) -> Self {
        Self {
            role: r.role.clone(),
            index: r.index,
            incarnation: r.incarnation,
            pid: r.pid,
        }
    }
}

impl From<&v1::RoleStatus> for Whole {
    fn from(r: &v1::RoleStatus) -> Self {
        Whole::Instance {
            role: r.role.clone(),
            index: r.index,
        }
    }
}

impl Whole {
    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Whole::Instance { role, index } => who(role, *index),
            Whole::Task => "the task".to_owned(),
        }
    }

    /// The request for it.
    pub fn request(&self) -> v1::RestartRequest {
        match self {
            Whole::Instance { role, index } => v1::RestartRequest {
                role: role.clone(),
                index: Some(*index),
            },
            Whole::Task => v1::RestartRequest {
                role: "task".to_owned(),
                index: None,
            },
        }
    }

    /// Whether the trainer stands still for it.
    fn stops_training(&self) -> bool {
        match self {
            Whole::Instance { role, .. } => role == "trainer",
            Whole::Task => true,
        }
    }
}

impl Strike {
    /// Whom it strikes, in words.
    pub fn whom(&self) -> String {
        match (&self.life, &self.fault) {
            (Some(life), _) => who(&life.role, life.index),
            (None, Fault::LoseNode { node }) => format!("node {node}"),
            (None, Fault::CorruptCheckpoint) => "the newest checkpoint".to_owned(),
            (None, Fault::DiskFull { .. }) => "the leader's disk".to_owned(),
            (None, Fault::NoProcesses { .. }) => "the leader's node".to_owned(),
            (None, _) => "the leader's daemon".to_owned(),
        }
    }

    /// The request for it.
    pub fn request(&self) -> v1::InjectRequest {
        let spec = Spec::from(&self.fault);
        let life = self.life.as_ref();
        v1::InjectRequest {
            fault: spec.kind,
            role: life.map_or_else(String::new, |l| l.role.clone()),
            index: life.map(|l| l.index),
            incarnation: life.map(|l| l.incarnation),
            at: self.at.map_or_else(String::new, |at| at.to_string()),
            code: spec.code,
            seconds: spec.seconds,
            percent: spec.percent,
            peer: spec.peer.unwrap_or_default(),
            node: spec.node.unwrap_or_default(),
            event: spec.event.unwrap_or_default(),
            i_know: self.i_know,
            ..Default::default()
        }
    }
}

impl Act {
    /// The question over the dialog.
    pub fn question(&self) -> String {
        match self {
            Act::Strike(s) => {
                let whom = s.whom();
                let when = s.at.map_or_else(String::new, |at| format!(" at {at}"));
                match &s.fault {
                    Fault::Kill => format!("Kill {whom}{when}?"),
                    Fault::Hang => format!("Hang {whom}{when}?"),
                    Fault::LoseSlot => format!("Lose the slot of {whom}{when}?"),
                    // It names its node itself.
                    Fault::LoseNode { .. } => format!("Lose {whom}?"),
                    fault => format!("Inject `{fault}` into {whom}{when}?"),
                }
            }
            Act::Disarm(armed) => format!("Take back `{}`?", armed.fault),
            Act::Restart(whole) => format!("Restart {}?", whole.name()),
            Act::Pause => "Pause the job?".to_owned(),
            Act::Resume => "Resume the job?".to_owned(),
            Act::Traffic { role, index, out } => match out {
                true => format!("Take {} out of traffic?", who(role, *index)),
                false => format!("Let {} have traffic again?", who(role, *index)),
            },
            Act::Cordon { node, out: true } => format!("Cordon {node}?"),
            Act::Cordon { node, out: false } => format!("Uncordon {node}?"),
            Act::Drain { node, .. } => format!("Drain {node}?"),
            Act::Restore(slot) => format!("Restore slot {} of {}?", slot.index, slot.pool),
            Act::Scale { role, from, to } => format!("Scale {role} from {from} to {to}?"),
            Act::Update { role, .. } => format!("Update {role}?"),
            Act::Note { incident, .. } => format!("Note this on incident {incident}?"),
            Act::Several(several) => several.question().to_owned(),
            Act::Stop => "End the job?".to_owned(),
        }
    }

    /// What `y` does, as a word.
    pub fn verb(&self) -> &'static str {
        match self {
            Act::Strike(s) if s.at.is_some() => "arm it",
            Act::Strike(s) => s.fault.kind().name(),
            Act::Disarm(_) => "take it back",
            Act::Restart(_) => "restart",
            Act::Pause => "pause",
            Act::Resume => "resume",
            Act::Traffic { out: true, .. } => "quarantine",
            Act::Traffic { out: false, .. } => "readmit",
            Act::Cordon { out: true, .. } => "cordon",
            Act::Cordon { out: false, .. } => "uncordon",
            Act::Drain { .. } => "drain",
            Act::Restore(_) => "restore",
            Act::Scale { .. } => "scale",
            Act::Update { .. } => "update",
            Act::Note { .. } => "note it",
            Act::Several(several) => several.verb(),
            Act::Stop => "end the job",
        }
    }

    /// The word that must be typed for it; none: a yes is enough.
    pub fn needs(&self, job: &Job) -> Option<String> {
        let status = job.status();
        let name = || status.map(|s| s.job.clone());
        match self {
            Act::Strike(_) if status.is_some_and(|s| s.protected) => name(),
            Act::Strike(s) => match &s.life {
                // The gang stands still, or under policy task all.
                Some(life) if life.role == "trainer" || s.fault == Fault::LoseSlot => {
                    Some(life.role.clone())
                }
                Some(life) if status.is_some_and(|s| s.policy == "task") => Some(life.role.clone()),
                Some(_) => None,
                None => match &s.fault {
                    Fault::LoseNode { node } => Some(node.clone()),
                    _ => name(),
                },
            },
            Act::Restart(Whole::Instance { role, .. }) if role == "trainer" => Some(role.clone()),
            Act::Restart(Whole::Task) | Act::Stop => name(),
            Act::Drain { node, whom } if whom.iter().any(Whole::stops_training) => {
                Some(node.clone())
            }
            Act::Scale { role, from, to } if to < from => Some(role.clone()),
            Act::Update { role, .. } if role == "trainer" => Some(role.clone()),
            Act::Several(several) => several.needs(job),
            _ => None,
        }
    }
}
