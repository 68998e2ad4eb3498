//! What `robust-shim check` says of a program of the user's that it starts once, outside of any job: one
//! JSON object a line. The shim says it, `robustctl doctor --check-roles` reads it.
//!
//! ```text
//!  started ──► Up ──(told to end)──► Ended
//!     └──────► Failed ─────────────► Ended
//! ```
//! One that was up and ended by itself has failed, too.
use crate::job::EngineKind;
use serde::{Deserialize, Serialize};

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// It came up, and answered what it was asked.
    Up(Up),
    /// It did not, or it ended by itself.
    Failed(Failure),
    /// None of its processes is awaited any more. The last line.
    Ended(Ended),
}

/// A program that came up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Up {
    /// What an engine says it is.
    pub engine: Option<Version>,
    /// Seconds from its start until it was ready.
    pub after_s: f64,
    /// What it was asked then: `8 tokens`, `GET /health`.
    pub asked: String,
    /// Seconds that the answer took.
    pub answered_s: f64,
}

/// An engine's make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Version {
    /// Which.
    pub kind: EngineKind,
    /// As it says it.
    pub version: String,
    /// What is to be known of a version that was never tried.
    pub caution: Option<String>,
}

/// Why a program is of no use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What happened.
    pub reason: String,
    /// What to do about it.
    pub cure: String,
}

/// The end of all its processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Seconds that it took.
    pub after_s: f64,
    /// Those that had to be killed.
    pub killed: Vec<String>,
    /// Those that are there all the same.
    pub left: Vec<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_said_is_one_line_and_comes_back() {
        let up = Said::Up(Up {
            engine: Some(Version {
                kind: EngineKind::Vllm,
                version: "0.32.0".to_owned(),
                caution: None,
            }),
            after_s: 2.5,
            asked: "8 tokens".to_owned(),
            answered_s: 0.25,
        });
        let failed = Said::Failed(Failure {
            reason: "it\nended".to_owned(),
            cure: "see its log".to_owned(),
        });
        for said in [up, failed, Said::Ended(Ended::default())] {
            let line = serde_json::to_string(&said).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Said>(&line).unwrap(), said);
        }
    }
}
