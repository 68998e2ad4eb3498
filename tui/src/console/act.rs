//! What an operator can have done, what it means, and what must be typed before it happens.
use super::state::State;
use crate::format::who;
use robust_proto::v1;

/// Something that changes the job.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// A real fault.
    Strike(Strike),
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
    /// End job and daemon.
    Stop,
}

/// A fault to inject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Kill or hang.
    pub fault: Fault,
    /// The role's name.
    pub role: String,
    /// Rank or replica.
    pub index: u32,
    /// The life that was shown when the operator chose.
    pub incarnation: u64,
    /// Its process.
    pub pid: u32,
}

/// Which fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Hang,
    /// SIGKILL, and the slot is out of use until it is restored.
    LoseSlot,
}

impl Fault {
    /// The name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Hang => "hang",
            Fault::LoseSlot => "lose-slot",
        }
    }

    /// What was done, as a word.
    pub fn done(self) -> &'static str {
        match self {
            Fault::Kill => "killed",
            Fault::Hang => "hung",
            Fault::LoseSlot => "killed, and its slot lost:",
        }
    }
}

impl Act {
    /// The question over the dialog.
    pub fn question(&self) -> String {
        match self {
            Act::Strike(s) => {
                let whom = who(&s.role, s.index);
                match s.fault {
                    Fault::Kill => format!("Kill {whom}?"),
                    Fault::Hang => format!("Hang {whom}?"),
                    Fault::LoseSlot => format!("Lose the slot of {whom}?"),
                }
            }
            Act::Traffic { role, index, out } => match out {
                true => format!("Take {} out of traffic?", who(role, *index)),
                false => format!("Let {} have traffic again?", who(role, *index)),
            },
            Act::Cordon { node, out: true } => format!("Cordon {node}?"),
            Act::Cordon { node, out: false } => format!("Uncordon {node}?"),
            Act::Restore(slot) => format!("Restore slot {} of {}?", slot.index, slot.pool),
            Act::Scale { role, from, to } => format!("Scale {role} from {from} to {to}?"),
            Act::Update { role, .. } => format!("Update {role}?"),
            Act::Stop => "End the job?".to_owned(),
        }
    }

    /// What `y` does, as a word.
    pub fn verb(&self) -> &'static str {
        match self {
            Act::Strike(s) => s.fault.name(),
            Act::Traffic { out: true, .. } => "quarantine",
            Act::Traffic { out: false, .. } => "readmit",
            Act::Cordon { out: true, .. } => "cordon",
            Act::Cordon { out: false, .. } => "uncordon",
            Act::Restore(_) => "restore",
            Act::Scale { .. } => "scale",
            Act::Update { .. } => "update",
            Act::Stop => "end the job",
        }
    }

    /// The word that must be typed for it; none: a yes is enough.
    pub fn needs(&self, state: &State) -> Option<String> {
        let policy = state.status.as_ref().map_or("", |s| &s.policy);
        match self {
            // The gang stands still, or under policy task all.
            Act::Strike(s)
                if s.role == "trainer" || s.fault == Fault::LoseSlot || policy == "task" =>
            {
                Some(s.role.clone())
            }
            Act::Scale { role, from, to } if to < from => Some(role.clone()),
            Act::Update { role, .. } if role == "trainer" => Some(role.clone()),
            Act::Stop => state.status.as_ref().map(|s| s.job.clone()),
            _ => None,
        }
    }

    /// What will happen, and to whom; a sentence each.
    pub fn consequences(&self, state: &State) -> Vec<String> {
        let lines = |all: &[&str]| all.iter().map(|&l| l.to_owned()).collect();
        match self {
            Act::Strike(strike) => of_strike(state, strike),
            Act::Traffic { out: true, .. } => lines(&[
                "It finishes its turns and gets no new ones, whatever its health, until it is \
                 readmitted. Its peers take its share.",
            ]),
            Act::Traffic { out: false, .. } => {
                lines(&["It is routed to again as soon as it is healthy and has the weights."])
            }
            Act::Cordon { node, out: true } => vec![format!(
                "{} go on there; nothing new is started on it, and what fails is started \
                 elsewhere.",
                instances(state, node)
            )],
            Act::Cordon { out: false, .. } => lines(&["It may be used for new instances again."]),
            Act::Restore(slot) => vec![format!(
                "The daemon may place instances on slot {} of pool {} on {} again.",
                slot.index, slot.pool, slot.node
            )],
            Act::Scale { role, from, to } if to < from => vec![format!(
                "{} of {from} {role} instances end; what they were generating goes on elsewhere.",
                from - to
            )],
            Act::Scale { role, from, to } => vec![format!(
                "{} more {role} instances are started where slots are free; ranks at the next \
                 step boundary.",
                to - from
            )],
            Act::Update { role, change } => vec![
                format!("{change}"),
                format!("Role {role} alone is restarted with it; refused, the job is as it was."),
            ],
            Act::Stop => lines(&[
                "The job ends at its last committed step, every role and the daemon with it.",
            ]),
        }
    }
}

fn instances(state: &State, node: &str) -> String {
    match state.roles().iter().filter(|r| r.node == node).count() {
        1 => "1 instance".to_owned(),
        n => format!("{n} instances"),
    }
}

fn of_strike(state: &State, strike: &Strike) -> Vec<String> {
    let signal = match strike.fault {
        Fault::Kill | Fault::LoseSlot => "SIGKILL goes",
        Fault::Hang => "SIGSTOP goes",
    };
    let whom = format!(
        "{signal} to pid {} (incarnation {}).",
        strike.pid, strike.incarnation
    );
    let found = match strike.fault {
        Fault::Kill => "",
        Fault::Hang => " It is found when the silence outlasts its rule's window.",
        Fault::LoseSlot => " Its slot stays out of use until it is restored (Nodes, R).",
    };
    let policy = state.status.as_ref().map_or("", |s| &s.policy);
    let ranks = state.roles().iter().filter(|r| r.role == "trainer").count();
    let then = match (policy, strike.role.as_str()) {
        ("task", _) => "Policy task: the whole job is restarted.".to_owned(),
        (_, "trainer") => format!(
            "All {ranks} trainer ranks restart from the last snapshot; rollouts go on generating."
        ),
        (_, "rollout" | "hybrid") => "Its requests go on elsewhere; a new replica pulls the \
                                      weights and is routed to once it verified them."
            .to_owned(),
        _ => "Its conversations resume from their last stored turn.".to_owned(),
    };
    vec![format!("{whom}{found}"), then]
}
