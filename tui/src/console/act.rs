//! What an operator can have done, what it means, and what must be typed before it happens. The words are those of the
//! verbs ([`verbs`]); what depends on the job that is on the screen is here.
mod ahead;
mod meaning;
mod several;

pub use several::Several;

use super::job::Job;
use crate::format::{is_trainer, who};
use crate::steer::Steer;
use robust_proto::v1;
use robust_shared::fault::{At, Fault, Spec};
use robust_shared::job::Policy;
use robust_shared::verbs;

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
        /// An operator cordoned it already: that would be refused.
        cordoned: bool,
        /// What has to go.
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
            Whole::Instance { role, .. } => is_trainer(role),
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
    /// The verbs that it comes to, in their order; none: it is asked for in a way of its own.
    pub fn steers(&self) -> Vec<Steer> {
        match self {
            Act::Restart(whole) => vec![restart(whole)],
            Act::Pause => vec![Steer::Pause],
            Act::Resume => vec![Steer::Resume],
            Act::Traffic { role, index, out } => {
                let (role, index) = (role.clone(), *index);
                let request = v1::QuarantineRequest { role, index };
                vec![match out {
                    true => Steer::Quarantine(request),
                    false => Steer::Readmit(request),
                }]
            }
            Act::Cordon { node, out } => vec![cordon(node, *out)],
            Act::Drain { .. } => self.parts().iter().flat_map(Act::steers).collect(),
            Act::Restore(slot) => vec![Steer::RestoreSlot(v1::RestoreSlotRequest {
                node: slot.node.clone(),
                pool: slot.pool.clone(),
                index: slot.index,
            })],
            Act::Scale { role, to, .. } => vec![Steer::Scale(v1::ScaleRequest {
                role: role.clone(),
                count: *to,
            })],
            Act::Update { role, change } => vec![Steer::Update(v1::UpdateRequest {
                role: role.clone(),
                changes: vec![change.clone()],
            })],
            Act::Note { incident, text } => vec![Steer::Note(v1::NoteRequest {
                incident: *incident,
                text: text.clone(),
            })],
            Act::Strike(_) | Act::Disarm(_) | Act::Several(_) | Act::Stop => Vec::new(),
        }
    }

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
                    fault => verbs::inject::ASKS.say([&fault.to_string(), &whom, &when]),
                }
            }
            Act::Disarm(armed) => verbs::disarm::ASKS.say([&armed.fault]),
            Act::Restart(whole) => verbs::restart::ASKS.say([&whole.name()]),
            Act::Pause => verbs::pause::ASKS.say([]),
            Act::Resume => verbs::resume::ASKS.say([]),
            Act::Traffic { role, index, out } => match out {
                true => verbs::quarantine::ASKS.say([&who(role, *index)]),
                false => verbs::readmit::ASKS.say([&who(role, *index)]),
            },
            Act::Cordon { node, out: true } => verbs::cordon::ASKS.say([node]),
            Act::Cordon { node, out: false } => verbs::uncordon::ASKS.say([node]),
            // It is a cordon with restarts, and no verb of its own.
            Act::Drain { node, .. } => format!("Drain {node}?"),
            Act::Restore(slot) => {
                verbs::restore_slot::ASKS.say([&slot.index.to_string(), &slot.pool])
            }
            Act::Scale { role, from, to } => {
                verbs::scale::ASKS.say([role, &from.to_string(), &to.to_string()])
            }
            Act::Update { role, .. } => verbs::update::ASKS.say([role]),
            Act::Note { incident, .. } => verbs::note::ASKS.say([&incident.to_string()]),
            Act::Several(several) => several.question().to_owned(),
            Act::Stop => verbs::stop::ASKS.say([]),
        }
    }

    /// What `y` does, as a word.
    pub fn verb(&self) -> &'static str {
        match self {
            Act::Strike(s) if s.at.is_some() => verbs::inject::YES_LATER,
            Act::Strike(s) => s.fault.kind().name(),
            Act::Disarm(_) => verbs::disarm::YES,
            Act::Restart(_) => verbs::restart::YES,
            Act::Pause => verbs::pause::YES,
            Act::Resume => verbs::resume::YES,
            Act::Traffic { out: true, .. } => verbs::quarantine::YES,
            Act::Traffic { out: false, .. } => verbs::readmit::YES,
            Act::Cordon { out: true, .. } => verbs::cordon::YES,
            Act::Cordon { out: false, .. } => verbs::uncordon::YES,
            Act::Drain { .. } => "drain",
            Act::Restore(_) => verbs::restore_slot::YES,
            Act::Scale { .. } => verbs::scale::YES,
            Act::Update { .. } => verbs::update::YES,
            Act::Note { .. } => verbs::note::YES,
            Act::Several(several) => several.verb(),
            Act::Stop => verbs::stop::YES,
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
                Some(life) if is_trainer(&life.role) || s.fault == Fault::LoseSlot => {
                    Some(life.role.clone())
                }
                Some(life) if status.is_some_and(|s| s.policy() == Some(Policy::Task)) => {
                    Some(life.role.clone())
                }
                Some(_) => None,
                None => match &s.fault {
                    Fault::LoseNode { node } => Some(node.clone()),
                    _ => name(),
                },
            },
            Act::Restart(Whole::Instance { role, .. }) if is_trainer(role) => Some(role.clone()),
            Act::Restart(Whole::Task) | Act::Stop => name(),
            Act::Drain { node, whom, .. } if whom.iter().any(Whole::stops_training) => {
                Some(node.clone())
            }
            Act::Scale { role, from, to } if to < from => Some(role.clone()),
            Act::Update { role, .. } if is_trainer(role) => Some(role.clone()),
            Act::Several(several) => several.needs(job),
            _ => None,
        }
    }
}

fn restart(whole: &Whole) -> Steer {
    Steer::Restart(whole.request())
}

fn cordon(node: &str, out: bool) -> Steer {
    let node = node.to_owned();
    Steer::Cordon(v1::CordonRequest { node, out })
}
