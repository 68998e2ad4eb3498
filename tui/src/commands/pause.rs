//! `robustctl pause`.
use super::watch::RETRY_EVERY;
use crate::cli::PauseArgs;
use crate::ending::is_over;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::output::{put, put_json};
use crate::steer::Steer;
use robust_proto::v1;
use robust_shared::wire::PauseState;
use std::time::{Duration, Instant};

/// A status is not older than this.
const STATUS_LAG: Duration = Duration::from_secs(5);

/// Nothing is begun after the step under way.
pub async fn run(endpoint: &Endpoint, args: &PauseArgs, json: bool) -> Result<(), CliError> {
    let done = Steer::Pause.ask(endpoint).await?;
    if !json {
        put(&(done.words + "\n"))?;
    }
    if !args.wait {
        return if json {
            put(&(done.json + "\n"))
        } else {
            Ok(())
        };
    }
    let mut client = endpoint.connect().await?;
    let begin = Instant::now();
    let mut seen = false;
    loop {
        let asked = endpoint.ask(client.get_status(v1::GetStatusRequest {}));
        let status = asked.await?;
        // A status may be a moment older than the answer.
        seen |= status.pause.is_some() || begin.elapsed() > STATUS_LAG;
        let reached = status
            .pause
            .as_ref()
            .is_some_and(|p| p.state() == Some(PauseState::Paused));
        if reached && json {
            return put_json(&status.pause);
        }
        if reached {
            return put(&format!("paused after step {}\n", status.step));
        }
        if is_over(&status.state) {
            let state = status.state;
            return Err(CliError::Failed(format!("the job is {state}")));
        }
        if seen && status.pause.is_none() {
            let text = "the job was resumed before it had paused".to_owned();
            return Err(CliError::Failed(text));
        }
        if begin.elapsed() > Duration::from_secs_f64(args.timeout) {
            return Err(CliError::Failed(format!(
                "the step under way is not over after {} s; the job still pauses when it is",
                args.timeout
            )));
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
}
