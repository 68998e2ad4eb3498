//! The moment in an instance's life at which a fault strikes.
use crate::ids::Role;
use crate::nearest::nearest;
use crate::phase::Phase;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// When the instance enters a phase or, of a pull of weights, has so much of it. A phase that it is in
/// already counts, unless it is one of a start-up: that of a later life is meant. Written `update`,
/// `generating`, `pull:50%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct At {
    /// The phase.
    pub phase: Phase,
    /// So much of it is done; 0: on entering it.
    pub percent: u8,
}

/// Why a moment cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AtError {
    /// Not a phase's name.
    #[error("unknown phase `{phase}`; {hint}")]
    Phase {
        /// What was written.
        phase: String,
        /// What was probably meant, or what there is.
        hint: String,
    },
    /// Not a percentage.
    #[error(
        "`{text}`: after the phase comes `:` and a percentage from 0% to 99%, as in `pull:50%`"
    )]
    Percent {
        /// What was written.
        text: String,
    },
    /// Only a pull tells how far it is.
    #[error("`{phase}` does not tell how far it is; only `pull` does: leave the percentage out")]
    NoProgress {
        /// The phase.
        phase: Phase,
    },
    /// The role is never in this phase.
    #[error("no {role} comes into phase `{phase}`; it comes into {}", names(*role))]
    NotItsPhase {
        /// The role.
        role: Role,
        /// The phase.
        phase: Phase,
    },
    /// Nobody of the role comes into this phase in the job at hand.
    #[error("no {role} of this job comes into phase `{phase}`{because}; it comes into {there}")]
    NotOfThisJob {
        /// The role.
        role: Role,
        /// The phase.
        phase: Phase,
        /// Why not, or nothing.
        because: &'static str,
        /// The phases that it comes into.
        there: String,
    },
}

/// The short name of `pull_weights`.
const PULL: &str = "pull";

fn names(role: Role) -> String {
    let names: Vec<&str> = At::phases(role).iter().map(|p| p.name()).collect();
    names.join(", ")
}

impl At {
    /// The phases that a role comes into, those of its start-up first.
    pub fn phases(role: Role) -> &'static [Phase] {
        match role {
            Role::Trainer => &[
                Phase::Init,
                Phase::LoadCheckpoint,
                Phase::AwaitBatch,
                Phase::ContextSwitch,
                Phase::Reshard,
                Phase::RefLogprob,
                Phase::OldLogprob,
                Phase::Advantage,
                Phase::Update,
                Phase::Snapshot,
                Phase::Publish,
            ],
            Role::Hybrid | Role::Rollout => &[
                Phase::Init,
                Phase::PullWeights,
                Phase::Idle,
                Phase::Generating,
                Phase::AwaitingTool,
                Phase::Paused,
            ],
            Role::Agent => &[
                Phase::Init,
                Phase::Idle,
                Phase::Generating,
                Phase::AwaitingTool,
            ],
        }
    }

    /// Whether an instance of this role can come there.
    pub fn check(self, role: Role) -> Result<(), AtError> {
        let phase = self.phase;
        match At::phases(role).contains(&phase) {
            true => Ok(()),
            false => Err(AtError::NotItsPhase { role, phase }),
        }
    }

    /// Whether it is in the start-up of a life: one that runs does not come back there.
    pub fn is_start_up(self) -> bool {
        matches!(self.phase, Phase::Init | Phase::LoadCheckpoint)
    }

    /// Whether the moment is there: in that phase or, of the pull under way, so many bytes of so many.
    /// A rollout may generate while it pulls, hence the phase says nothing of the pull.
    pub fn reached(self, phase: Phase, pulled: Option<(u64, u64)>) -> bool {
        let enough = |(bytes, total): (u64, u64)| {
            total > 0 && bytes.saturating_mul(100) / total >= u64::from(self.percent)
        };
        match self.percent {
            0 if self.phase == Phase::PullWeights => phase == self.phase || pulled.is_some(),
            0 => phase == self.phase,
            _ => pulled.is_some_and(enough),
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::PullWeights => PULL,
            other => other.name(),
        };
        match self.percent {
            0 => f.pad(phase),
            percent => f.pad(&format!("{phase}:{percent}%")),
        }
    }
}

impl FromStr for At {
    type Err = AtError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, percent) = match text.split_once(':') {
            Some((name, percent)) => (name, Some(percent)),
            None => (text, None),
        };
        let phase = match name.replace('-', "_") {
            pull if pull == PULL => Ok(Phase::PullWeights),
            name => name.parse::<Phase>(),
        };
        let phase = phase.map_err(|_| unknown(name))?;
        let number = |text: &str| text.strip_suffix('%')?.parse().ok().filter(|n| *n < 100);
        let percent = match percent {
            None => 0,
            Some(percent) => number(percent).ok_or_else(|| AtError::Percent {
                text: text.to_owned(),
            })?,
        };
        match percent {
            1.. if phase != Phase::PullWeights => Err(AtError::NoProgress { phase }),
            _ => Ok(At { phase, percent }),
        }
    }
}

fn unknown(name: &str) -> AtError {
    let known = || std::iter::once(PULL).chain(Phase::ALL.iter().map(|p| p.name()));
    let hint = match nearest(name, known()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("phases are {}", known().collect::<Vec<_>>().join(", ")),
    };
    AtError::Phase {
        phase: name.to_owned(),
        hint,
    }
}

impl TryFrom<String> for At {
    type Error = AtError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<At> for String {
    fn from(at: At) -> Self {
        at.to_string()
    }
}
