//! One run of a drill: from the start of its daemon to what it left behind.
use super::daemon::{Daemon, Programs};
use super::facts::{Before, gather};
use super::follow::{Followed, Follower, Host as _, Until};
use super::hopeless::Hopeless;
use super::outcome::RunOutcome;
use super::progress::Progress;
use super::striker::Striker;
use super::{Manner, weights};
use crate::error::CliError;
use crate::machine::load;
use robust_proto::v1;
use robust_shared::drill::RunPlan;
use robust_shared::wire::JobState;
use std::time::Duration;

/// Runs it; `step_s` is the time of a fault-free step.
pub async fn run(
    series: &str,
    plan: &RunPlan,
    programs: &Programs,
    step_s: f64,
    manner: Manner,
) -> Result<RunOutcome, CliError> {
    let place = format!("{series}/{}", plan.name);
    let mut progress = Progress::start(place, plan.steps, plan.strikes.len(), manner.json);
    let load_before = load();
    if let Some(rule) = manner.without {
        progress.say(&format!("the rule `{}` is switched off", rule.name));
    }
    let mut daemon = Daemon::start(programs, &plan.job_text, &plan.nodes, manner.keep)?;
    if manner.keep {
        progress.say(&format!("state in {}", daemon.state_dir().display()));
    }
    let with_place = |e| in_run(e, series, &plan.name);
    let follower = Follower {
        striker: Striker::new(plan.strikes.clone(), Duration::from_secs_f64(step_s)),
        i_know: manner.i_know,
        until: Until::JobOver,
        hopeless: manner
            .without
            .map(|rule| Hopeless::new(rule, plan.detected_within)),
        progress: &mut progress,
    };
    let mut followed = follower.run(&mut daemon).await.map_err(with_place)?;
    check_end(&followed, plan, &daemon).map_err(with_place)?;
    let endpoint = daemon.endpoint();
    let report = endpoint.ask(followed.client.get_report(v1::GetReportRequest {}));
    let report = report.await.map_err(with_place)?;
    let nothing = Before::default();
    let look = plan.check_store && !followed.given_up;
    let facts = gather(&endpoint, &mut followed, &report, &nothing, look).await;
    let mut facts = facts.map_err(with_place)?;
    let digest = if followed.given_up {
        facts
            .lost
            .push("nobody looked: the run was given up".to_owned());
        daemon.give_up().await;
        None
    } else {
        daemon.finish(plan.may_fail).await.map_err(with_place)?;
        let digest = weights::digest(&daemon.state_dir().join("ckpt"), plan.steps);
        digest
            .inspect_err(|why| progress.say(&why.to_string()))
            .ok()
    };
    let outcome = RunOutcome {
        name: plan.name.clone(),
        report,
        facts,
        steps_repeated: followed.status.steps_repeated,
        weights: digest,
        load_before,
        load_after: load(),
    };
    progress.finish(&outcome);
    Ok(outcome)
}

/// Says in which run a failure happened.
fn in_run(e: CliError, series: &str, run: &str) -> CliError {
    match e {
        CliError::OutputClosed | CliError::Interrupted { .. } | CliError::Refused(_) => e,
        other => CliError::Failed(format!("{series}, run {run}: {other}")),
    }
}

/// A job that was to complete did.
fn check_end(followed: &Followed, plan: &RunPlan, daemon: &Daemon) -> Result<(), CliError> {
    let status = &followed.status;
    if status.state() == Some(JobState::Completed) || plan.may_fail || followed.given_up {
        return Ok(());
    }
    let (state, reason) = (&status.state, &status.reason);
    Err(CliError::Failed(format!(
        "the job {state} at step {}: {reason}; the daemon's last words:\n{}",
        status.step,
        daemon.last_words()
    )))
}
