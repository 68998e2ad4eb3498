//! `robustctl stop`.
use super::watch::RETRY_EVERY;
use crate::cli::StopArgs;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::output::put;
use robust_proto::v1;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Instant;

/// Asks for the job's end; with `--wait` comes back when nothing of the daemon is left.
pub async fn run(endpoint: &Endpoint, args: &StopArgs, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    endpoint.ask(client.stop(v1::StopRequest {})).await?;
    if !args.wait {
        return match json {
            true => put("{\"stopping\":true}\n"),
            false => put("the job is ending in order\n"),
        };
    }
    let begin = Instant::now();
    while is_there(endpoint).await? {
        if begin.elapsed().as_secs_f64() > args.timeout {
            return Err(CliError::Failed(format!(
                "the daemon is still ending after {} s (it writes its last state). Its log says what it waits for; \
                 as long as it answers, `robustctl stop --wait` waits again",
                args.timeout
            )));
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
    match json {
        true => put("{\"stopped\":true}\n"),
        false => put("the job and its daemon have ended\n"),
    }
}

/// Whether the daemon has not ended. It removes its socket before it has written all, so on its own machine
/// the lock of its state directory says it; elsewhere that nobody answers has to do.
async fn is_there(endpoint: &Endpoint) -> Result<bool, CliError> {
    if let Endpoint::Unix { state_dir } = endpoint {
        return is_locked(state_dir);
    }
    match endpoint.connect().await {
        Ok(_) => Ok(true),
        Err(e) if e.is_lost() => Ok(false),
        Err(e) => Err(e),
    }
}

fn is_locked(state_dir: &Path) -> Result<bool, CliError> {
    let path = state_dir.join("lock");
    let lock = match File::open(&path) {
        Ok(lock) => lock,
        // Somebody removed the state directory: nobody uses it.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(CliError::Failed(format!("{}: {e}", path.display()))),
    };
    match lock.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(e)) => Err(CliError::Failed(format!("{}: {e}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_state_directory_is_in_use_while_its_lock_is_held_and_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_locked(folder.path()).unwrap(), "there is no lock yet");
        let lock = File::create(folder.path().join("lock")).unwrap();
        lock.lock().unwrap();
        assert!(is_locked(folder.path()).unwrap());
        drop(lock);
        assert!(!is_locked(folder.path()).unwrap());
    }
}
