//! The table: what a way of hosting makes of an invariant.
use super::hosting::{Engine, Hosting, Program};
use super::{Invariant, Level};
use crate::job::{EngineWeights, Level as ProgramLevel, Mode, Needed};
use std::fmt;

/// What one way of hosting makes of one invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// How far it holds.
    pub level: Level,
    /// How, or why not; empty where nothing is to be said.
    pub why: String,
}

impl Word {
    fn new(level: Level, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { level, why }
    }

    fn yes() -> Self {
        Self::new(Level::Yes, "")
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.level, self.why.as_str()) {
            (level, "") => write!(f, "{level}"),
            (Level::Yes, why) => write!(f, "yes, {why}"),
            (level, why) => write!(f, "{level}: {why}"),
        }
    }
}

impl Hosting {
    /// What it makes of an invariant; none where such a role has no part in it.
    pub fn promised(self, invariant: Invariant) -> Option<Word> {
        match self {
            Self::BuiltIn => Some(built_in(invariant)),
            Self::Engine(engine) => Some(engine.promised(invariant)),
            Self::Program(program) => Some(program.promised(invariant)),
            Self::Environment => Some(environment(invariant)),
            Self::Service { needed } => service(needed, invariant),
        }
    }
}

fn built_in(invariant: Invariant) -> Word {
    match invariant {
        Invariant::VerifiedVersions => Word::new(Level::Yes, "by digest"),
        _ => Word::yes(),
    }
}

/// An agent worker's program: turns are stored by the shim, as by the built-in worker.
fn environment(invariant: Invariant) -> Word {
    match invariant {
        Invariant::BitForBit => Word::new(
            Level::Partly,
            "as far as it gives the same tokens the same answers",
        ),
        _ => Word::yes(),
    }
}

impl Program {
    fn promised(self, invariant: Invariant) -> Word {
        let of_batches = self.level == ProgramLevel::Data;
        match invariant {
            Invariant::AcknowledgedTurns if !of_batches => {
                Word::new(Level::No, "no turn is the job's")
            }
            Invariant::ConsumedOnce if self.keeps_state && !of_batches => {
                Word::new(Level::Partly, "each step once, whatever it trains on")
            }
            Invariant::ConsumedOnce if !of_batches => {
                Word::new(Level::No, "what it trains on is its own")
            }
            Invariant::VerifiedVersions if self.level < ProgramLevel::Weights => {
                Word::new(Level::Yes, "it publishes none")
            }
            Invariant::VerifiedVersions => Word::new(Level::Yes, "by digest"),
            Invariant::Restorable if self.keeps_state => {
                Word::new(Level::Yes, "with the objects it named")
            }
            Invariant::Restorable => Word::new(Level::Partly, "as old as its own last checkpoint"),
            Invariant::HealthyLives if of_batches => Word::new(Level::Yes, "by the phases it says"),
            Invariant::HealthyLives => {
                Word::new(Level::Partly, "outside of phases by its processor's use")
            }
            Invariant::BitForBit => Word::new(Level::No, "its arithmetic is its own"),
            Invariant::OneGeneration
            | Invariant::AcknowledgedTurns
            | Invariant::ConsumedOnce
            | Invariant::FewPullers
            | Invariant::NoEndlessRestart => Word::yes(),
        }
    }
}

impl Engine {
    fn promised(self, invariant: Invariant) -> Word {
        match invariant {
            Invariant::AcknowledgedTurns | Invariant::ConsumedOnce => {
                Word::new(Level::Yes, "with the built-in agents")
            }
            Invariant::VerifiedVersions => self.verified(),
            Invariant::HealthyLives => {
                Word::new(Level::Partly, "as far as pauses go through the shim")
            }
            Invariant::BitForBit => {
                Word::new(Level::No, "its tokens depend on what runs beside them")
            }
            Invariant::OneGeneration
            | Invariant::Restorable
            | Invariant::FewPullers
            | Invariant::NoEndlessRestart => Word::yes(),
        }
    }

    /// I-4: what is known of the weights within it.
    fn verified(self) -> Word {
        let within = match (self.checksums, self.canary) {
            (true, true) => "by checksums and a canary",
            (true, false) => "by checksums",
            (false, true) => "by a canary",
            (false, false) => "by the version it names alone",
        };
        match self.weights {
            EngineWeights::Disk | EngineWeights::Plugin => Word::new(
                Level::Partly,
                format!("by digest up to the engine, {within} in it"),
            ),
            EngineWeights::Theirs => Word::new(Level::Partly, "by the version it names alone"),
            EngineWeights::None => {
                Word::new(Level::No, "it serves what it was started with, unverified")
            }
        }
    }
}

/// A service touches neither weights nor trajectories by itself.
fn service(needed: Needed, invariant: Invariant) -> Option<Word> {
    match (invariant, needed) {
        (Invariant::NoEndlessRestart, Needed::Wait) => Some(Word::new(
            Level::Partly,
            "beyond its budget it is tried again, every 5 min at last",
        )),
        (Invariant::NoEndlessRestart, Needed::Fail | Needed::Degrade) => Some(Word::yes()),
        (Invariant::HealthyLives, _) => Some(Word::new(Level::Yes, "by its own health route")),
        (Invariant::BitForBit, _) => Some(Word::new(
            Level::Partly,
            "as far as it gives who asks it the same answers",
        )),
        _ => None,
    }
}

/// What a mode leaves out, however roles are hosted.
pub(super) fn of_mode(invariant: Invariant, mode: Mode) -> Option<String> {
    let left_out = invariant == Invariant::BitForBit && mode != Mode::Sync;
    let name = mode.name();
    left_out.then(|| format!("mode {name}: what is trained on depends on when it is generated"))
}
