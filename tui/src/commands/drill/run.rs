//! One run of a drill: from the start of its daemon to what it left behind.
use super::daemon::{Daemon, Programs};
use super::outcome::{RunOutcome, load};
use super::progress::Progress;
use super::striker::Striker;
use super::weights;
use crate::commands::is_over;
use crate::endpoint::{ANSWER_WITHIN, Client};
use crate::error::CliError;
use robust_proto::v1;
use robust_shared::drill::{RunPlan, Strike};
use std::time::{Duration, Instant};
use tokio_stream::StreamExt as _;
use tonic::Code;

/// Statuses come this often: the grain of a strike's moment.
const LOOK_EVERY_MS: u32 = 20;
/// A job that commits no step for so long is stuck. The warm start, made once, takes minutes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs it; `step_s` is the time of a fault-free step.
pub async fn run(
    series: &str,
    plan: &RunPlan,
    programs: &Programs,
    step_s: f64,
    keep: bool,
) -> Result<RunOutcome, CliError> {
    let mut progress = Progress::start(series, plan);
    let load_before = load();
    let mut daemon = Daemon::start(programs, &plan.job_text, keep)?;
    if keep {
        progress.say(&format!("state in {}", daemon.state_dir().display()));
    }
    let outcome = follow(&mut daemon, plan, step_s, &mut progress).await;
    let with_place = |e| in_run(e, series, &plan.name);
    let (report, status) = outcome.map_err(with_place)?;
    daemon.finish().await.map_err(with_place)?;
    let weights = weights::digest(&daemon.state_dir().join("ckpt"), plan.steps);
    let outcome = RunOutcome {
        name: plan.name.clone(),
        report,
        steps_repeated: status.steps_repeated,
        weights: weights.map_err(with_place)?,
        load_before,
        load_after: load(),
    };
    progress.finish(&outcome);
    Ok(outcome)
}

/// Says in which run a failure happened.
fn in_run(e: CliError, series: &str, run: &str) -> CliError {
    match e {
        CliError::OutputClosed | CliError::Interrupted { .. } => e,
        other => CliError::Failed(format!("{series}, run {run}: {other}")),
    }
}

/// Watches the job to its end and strikes it; its report and last status.
async fn follow(
    daemon: &mut Daemon,
    plan: &RunPlan,
    step_s: f64,
    progress: &mut Progress,
) -> Result<(v1::Report, v1::Status), CliError> {
    let mut client = daemon.connect().await?;
    let mut striker = Striker::new(plan.strikes.clone(), Duration::from_secs_f64(step_s));
    let watch = v1::WatchRequest {
        interval_ms: LOOK_EVERY_MS,
    };
    let mut statuses = client.watch(watch).await.map_err(lost)?.into_inner();
    let mut moved = (0, Instant::now());
    loop {
        let status = match tokio::time::timeout(ANSWER_WITHIN, statuses.next()).await {
            Ok(Some(status)) => status.map_err(lost)?,
            Ok(None) => return Err(ended(daemon, "robustd ended its stream")),
            Err(_) => return Err(ended(daemon, "robustd says nothing any more")),
        };
        progress.update(&status);
        if is_over(&status.state) {
            let report = client.get_report(v1::GetReportRequest {}).await;
            let report = report.map_err(lost)?.into_inner();
            check_end(&status, striker.pending())?;
            return Ok((report, status));
        }
        let now = Instant::now();
        if status.step != moved.0 || status.state == "starting" {
            moved = (status.step, now);
        } else if now - moved.1 > PATIENCE {
            let text = format!("no step for {} s", PATIENCE.as_secs());
            return Err(ended(daemon, &text));
        }
        if let Some(strike) = striker.due(now, &status)
            && let Some(reply) = carry_out(&mut client, &strike).await?
        {
            progress.struck(&strike, status.step);
            striker.struck(&strike, reply.incarnation);
        }
    }
}

/// None when it cannot be struck this moment: a place without a living process, a job at its end.
async fn carry_out(
    client: &mut Client,
    strike: &Strike,
) -> Result<Option<v1::InjectReply>, CliError> {
    let request = v1::InjectRequest {
        fault: strike.kind.name().to_owned(),
        role: strike.role.name().to_owned(),
        index: Some(strike.index),
        ..Default::default()
    };
    match tokio::time::timeout(ANSWER_WITHIN, client.inject(request)).await {
        Ok(Ok(reply)) => Ok(Some(reply.into_inner())),
        Ok(Err(status)) if status.code() == Code::FailedPrecondition => Ok(None),
        Ok(Err(status)) => Err(lost(status)),
        Err(_) => Err(CliError::Failed("the injection was not answered".into())),
    }
}

fn check_end(status: &v1::Status, pending: &[Strike]) -> Result<(), CliError> {
    if status.state != "completed" {
        let (state, reason) = (&status.state, &status.reason);
        let text = format!("the job {state} at step {}: {reason}", status.step);
        return Err(CliError::Failed(text));
    }
    match pending {
        [] => Ok(()),
        [first, ..] => Err(CliError::Failed(format!(
            "the job completed before {} of its faults could strike, the first: {first}; leave \
             more steps between the faults",
            pending.len()
        ))),
    }
}

fn lost(status: tonic::Status) -> CliError {
    CliError::from_status(&status, "the drill's daemon")
}

fn ended(daemon: &Daemon, what: &str) -> CliError {
    CliError::Failed(format!("{what}; its last words:\n{}", daemon.last_words()))
}
