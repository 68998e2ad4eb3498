//! Why an engine does not take a version over.

use std::time::Duration;

use robust_engine::{Refused, Unsupported};

use super::files::FilesError;
use super::verify::NotVerified;
use crate::client::AskError;

/// The engine did not take a version over.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The folder could not be named.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The engine could not be asked.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The engine refused an order.
    #[error("{order} was refused: {refused}")]
    Refused {
        /// The order.
        order: String,
        /// What the engine said.
        refused: Refused,
    },
    /// The engine has no means for what the job file says.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The engine serves something else than it was given.
    #[error(transparent)]
    NotVerified(#[from] NotVerified),
    /// It takes far longer than it ever did, or than the job file allows.
    #[error("loading and verifying version {version} took longer than {:.0} s", limit.as_secs_f64())]
    Stuck {
        /// The version.
        version: u64,
        /// What it may take.
        limit: Duration,
    },
    /// It does not give its memory back.
    #[error("it is not asleep within {:.0} s", limit.as_secs_f64())]
    Awake {
        /// How long it was waited for.
        limit: Duration,
    },
    /// It does not take its memory, or its weights, again.
    #[error("it is not awake with verified weights within {:.0} s", limit.as_secs_f64())]
    Asleep {
        /// How long it was waited for.
        limit: Duration,
    },
    /// Its rank's turn came before it was loaded.
    #[error("its slot is its rank's now")]
    Lent,
    /// Somebody else's trainer did not send the version.
    #[error("nobody sent the engine version {version} within {:.0} s", limit.as_secs_f64())]
    NotSent {
        /// The version.
        version: u64,
        /// How long it was waited for.
        limit: Duration,
    },
}
