//! How a job ended, by the words of its status.
use crate::error::CliError;

/// Whether the job will not go on.
pub fn is_over(state: &str) -> bool {
    matches!(state, "completed" | "stopped" | "failed")
}

/// The result of a job that is over.
pub fn job_result(state: &str, reason: &str) -> Result<(), CliError> {
    match state {
        "failed" if reason.is_empty() => Err(CliError::Failed("the job failed".to_owned())),
        "failed" => Err(CliError::Failed(format!("the job failed: {reason}"))),
        _ => Ok(()),
    }
}
