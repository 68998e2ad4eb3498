//! `robustctl pause`, `resume`, `restart`, `scale`, `update`, `cordon`, `uncordon`, `restore-slot`, `quarantine`, `readmit`
//! and `note`: verbs of a job that runs.
use super::{forecast, pause};
use crate::cli::SteerCommand;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::output::put;

/// Has the daemon do it and prints what it answers, or what it would bring.
pub async fn run(endpoint: &Endpoint, command: SteerCommand, json: bool) -> Result<(), CliError> {
    if let SteerCommand::Pause(args) = &command {
        return pause::run(endpoint, args, json).await;
    }
    let dry_run = command.is_dry_run();
    let steer = command.asks();
    if dry_run {
        let blind = || {
            CliError::Usage("there is no forecast for this command; leave --dry-run out".to_owned())
        };
        let act = steer.ahead().ok_or_else(blind)?;
        return forecast::run(endpoint, act, json).await;
    }
    let done = steer.ask(endpoint).await?;
    let said = if json { done.json } else { done.words };
    put(&(said + "\n"))
}
