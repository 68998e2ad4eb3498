//! How a job ended, by the words of its status.
use crate::error::CliError;
use robust_shared::wire::{JobState, Word as _};

/// Whether the job will not go on.
pub fn is_over(state: &str) -> bool {
    JobState::known(state).is_some_and(JobState::is_over)
}

/// The result of a job that is over.
pub fn job_result(state: &str, reason: &str) -> Result<(), CliError> {
    match JobState::known(state) {
        Some(JobState::Failed) if reason.is_empty() => {
            Err(CliError::Failed("the job failed".to_owned()))
        }
        Some(JobState::Failed) => Err(CliError::Failed(format!("the job failed: {reason}"))),
        _ => Ok(()),
    }
}
