//! A schedule on disk: what was found, so that it is never lost again.
use super::faults::Schedule;
use super::world::Violation;
use serde::{Deserialize, Serialize};

/// Raised when older programs could not replay it.
pub const VERSION: u32 = 1;

/// A schedule and what it once broke. Replayed, it must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixture {
    /// Of the format.
    pub version: u32,
    /// What it broke when it was found.
    pub found: Violation,
    /// The run.
    pub schedule: Schedule,
}

/// Why a fixture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FixtureError {
    /// It is not one.
    #[error("not a schedule of faults: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A newer program wrote it.
    #[error("it has version {0}, this program knows {VERSION}; use the newer one")]
    Newer(u32),
}

impl Fixture {
    /// What was found, to be written down.
    pub fn new(schedule: Schedule, found: Violation) -> Self {
        Self {
            version: VERSION,
            found,
            schedule,
        }
    }

    /// As text, one field a line.
    pub fn to_json(&self) -> Result<String, FixtureError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// From text.
    pub fn from_json(text: &str) -> Result<Self, FixtureError> {
        #[derive(Deserialize)]
        struct Header {
            version: u32,
        }
        let Header { version } = serde_json::from_str(text)?;
        if version > VERSION {
            return Err(FixtureError::Newer(version));
        }
        Ok(serde_json::from_str(text)?)
    }
}
