//! `robustctl pause`, `resume` and `restart`.
use super::watch::RETRY_EVERY;
use super::{forecast, put, put_json};
use crate::cli::{PauseArgs, RestartArgs, RestartTarget, Who};
use crate::ending::is_over;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use robust_proto::v1::{self, forecast_act::Act};
use robust_shared::verbs;
use std::time::{Duration, Instant};

/// A status is not older than this.
const STATUS_LAG: Duration = Duration::from_secs(5);

/// Nothing is begun after the step under way.
pub async fn pause(endpoint: &Endpoint, args: &PauseArgs, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let reply = endpoint.ask(client.pause(v1::PauseRequest {})).await?;
    if !json {
        let done = verbs::pause::DONE.say([&reply.when]);
        put(&format!("{done}\n"))?;
    }
    if !args.wait {
        return if json { put_json(&reply) } else { Ok(()) };
    }
    let begin = Instant::now();
    let mut seen = false;
    loop {
        let asked = endpoint.ask(client.get_status(v1::GetStatusRequest {}));
        let status = asked.await?;
        // A status may be a moment older than the answer.
        seen |= status.pause.is_some() || begin.elapsed() > STATUS_LAG;
        let reached = status.pause.as_ref().is_some_and(|p| p.state == "paused");
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

/// The end of a pause.
pub async fn resume(endpoint: &Endpoint, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let reply = endpoint.ask(client.resume(v1::ResumeRequest {})).await?;
    match json {
        true => put_json(&reply),
        false => put(&format!("{}\n", verbs::resume::DONE.text())),
    }
}

/// New processes without a fault.
pub async fn restart(endpoint: &Endpoint, args: &RestartArgs, json: bool) -> Result<(), CliError> {
    let request = match args.target {
        RestartTarget::Task => v1::RestartRequest {
            role: "task".to_owned(),
            index: None,
        },
        RestartTarget::Who(Who { role, index }) => v1::RestartRequest {
            role: role.name().to_owned(),
            index,
        },
    };
    if args.dry_run {
        return forecast::run(endpoint, Act::Restart(request), json).await;
    }
    let mut client = endpoint.connect().await?;
    let reply = endpoint.ask(client.restart(request)).await?;
    if json {
        return put_json(&reply);
    }
    let done = verbs::restart::DONE.say([&reply.what, &reply.when]);
    put(&format!("{done}\n"))
}
