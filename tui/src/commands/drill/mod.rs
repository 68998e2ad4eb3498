//! `robustctl drill`: runs a drill file's jobs for real, strikes them, and holds what came out
//! against what was expected.
//!
//! ```text
//!  file, job ─► Plan (refusals end here) ─► per series, per run:
//!     robustd in a folder of its own ─► watch ◄─► strike at the planned places ─► report
//!       ─► end in order ─► digest of the final weights
//!  ─► table, verdicts, JSON
//! ```
mod daemon;
pub mod outcome;
mod progress;
mod run;
mod striker;
mod table;
mod weights;

use super::{put, put_json};
use crate::cli::DrillArgs;
use crate::error::CliError;
use crate::paint::Paint;
use daemon::Programs;
use outcome::{DrillOutcome, SeriesOutcome, load};
use robust_shared::drill::{Drill, DrillProblem, Plan, SeriesPlan};
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};

/// Runs the drill; fails when an expectation is not met.
pub async fn run(args: &DrillArgs, json: bool) -> Result<(), CliError> {
    let plan = plan(&args.file)?;
    let programs = Programs::beside_this()?;
    check_out(args.out.as_deref())?;
    let listen = |kind| {
        signal(kind).map_err(|e| CliError::Failed(format!("cannot listen for signals: {e}")))
    };
    let mut interrupted = listen(SignalKind::interrupt())?;
    let mut ended = listen(SignalKind::terminate())?;
    // Leaving the drill's future drops the daemon it runs, which ends everything it started.
    let outcome = tokio::select! {
        outcome = drill(&plan, &programs, args.keep) => outcome?,
        _ = interrupted.recv() => return Err(CliError::Interrupted { code: 130 }),
        _ = ended.recv() => return Err(CliError::Interrupted { code: 143 }),
    };
    let value = outcome.json();
    if let Some(path) = &args.out {
        let text = format!("{value:#}\n");
        std::fs::write(path, text)
            .map_err(|e| CliError::Failed(format!("cannot write {}: {e}", path.display())))?;
    }
    if json {
        put_json(&value)?;
    } else {
        put(&table::text(&outcome, Paint::stdout()))?;
    }
    match outcome.missed() {
        0 => Ok(()),
        n => Err(CliError::Failed(format!(
            "{n} of the drill's expectations not met"
        ))),
    }
}

async fn drill(plan: &Plan, programs: &Programs, keep: bool) -> Result<DrillOutcome, CliError> {
    let load_before = load();
    let mut series = Vec::new();
    for planned in &plan.series {
        series.push(one_series(planned, programs, keep).await?);
    }
    Ok(DrillOutcome {
        name: plan.name.clone(),
        series,
        load_before,
        load_after: load(),
    })
}

async fn one_series(
    plan: &SeriesPlan,
    programs: &Programs,
    keep: bool,
) -> Result<SeriesOutcome, CliError> {
    let mut runs = Vec::new();
    let mut step_s = 0.0;
    for planned in &plan.runs {
        let done = run::run(&plan.name, planned, programs, step_s, keep).await?;
        if runs.is_empty() {
            step_s = done.median_step_s();
        }
        runs.push(done);
    }
    Ok(SeriesOutcome::new(plan, runs))
}

/// Reads and checks the drill and its job.
pub fn plan(file: &Path) -> Result<Plan, CliError> {
    let unreadable = |path: &Path, e: std::io::Error| {
        CliError::Usage(format!("cannot read {}: {e}", path.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|e| unreadable(file, e))?;
    let usage = |e: robust_shared::drill::DrillError| CliError::Usage(e.to_string());
    let drill = Drill::parse(&text, file).map_err(usage)?;
    let folder = std::path::absolute(file).map_err(|e| unreadable(file, e))?;
    let job_path: PathBuf = folder.parent().unwrap_or(Path::new("/")).join(&drill.job);
    let job = std::fs::read_to_string(&job_path).map_err(|e| {
        let (path, reason) = (job_path.clone(), e.to_string());
        usage(drill.refuse("job", DrillProblem::NoJob { path, reason }))
    })?;
    Plan::make(&drill, &job, &job_path).map_err(usage)
}

/// Minutes of runs must not end in a folder that is not there.
fn check_out(out: Option<&Path>) -> Result<(), CliError> {
    let Some(path) = out else { return Ok(()) };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if folder.is_dir() && !path.is_dir() {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "--out {}: there is no folder {} to write a file in; make it first",
        path.display(),
        folder.display()
    )))
}
