//! `robustctl drill`: runs a drill file's jobs for real, strikes them, and holds what came out
//! against what was expected.
//!
//! ```text
//!  file, job ─► Plan (refusals end here) ─► per series, per run:
//!     robustd in a folder of its own ─► watch ◄─► strike at the planned places ─► report
//!       ─► end in order ─► digest of the final weights
//!  ─► table, verdicts, JSON, report
//!
//!  --attach: the same watch and strikes against the job of a daemon that runs already
//! ```
mod attach;
mod daemon;
mod facts;
mod follow;
mod hopeless;
mod list;
pub mod outcome;
mod own;
mod progress;
mod report;
mod run;
mod striker;
mod table;
mod weights;

pub use facts::recovery;
pub use own::OwnJob;

use crate::cli::{DrillArgs, Global};
use crate::drills::{self, Read, make, read};
use crate::endpoint::Endpoint;
use crate::error::{CliError, ExitCode};
use crate::machine::load;
use crate::output::{put, put_json};
use crate::paint::Paint;
use daemon::Programs;
use outcome::{DrillOutcome, SeriesOutcome};
use robust_shared::core::{RULES, Rule};
use robust_shared::drill::{Drill, Plan, SeriesPlan};
use robust_shared::nearest::instead_of;
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};

/// How a drill is run.
#[derive(Clone, Copy)]
struct Manner {
    /// Leave the runs' folders.
    keep: bool,
    /// Also a protected job.
    i_know: bool,
    /// What is said on the way is for programs.
    json: bool,
    /// A rule that is switched off in the job.
    without: Option<&'static Rule>,
}

/// Runs the drill; fails when an expectation is not met.
pub async fn run(args: &DrillArgs, global: &Global) -> Result<(), CliError> {
    let Some(file) = args.file.as_deref().filter(|_| !args.list) else {
        return list::list(args.file.as_deref(), global.json);
    };
    let file = drills::find(file)?;
    let Read {
        drill,
        job,
        job_path,
    } = read(&file)?;
    check_out("--out", args.out.as_deref())?;
    check_out("--report", args.report.as_deref())?;
    let manner = Manner {
        keep: args.keep,
        i_know: args.i_know,
        json: global.json,
        without: args.without.as_deref().map(rule_named).transpose()?,
    };
    let outcome = match args.attach {
        true => unless_interrupted(attach::run(&drill, &endpoint(global)?, manner)).await?,
        false => {
            own_daemons_only(global)?;
            let plan = make(&drill, &job, &job_path)?;
            let plan = match manner.without {
                Some(rule) => plan.without(rule),
                None => plan,
            };
            let programs = Programs::beside_this()?;
            // Leaving the drill's future drops the daemon it runs, which ends everything it started.
            unless_interrupted(all_series(&plan, &programs, manner)).await?
        }
    };
    tell(&outcome, &drill, args, global.json)?;
    match outcome.missed() {
        0 => Ok(()),
        n => Err(CliError::Failed(format!(
            "{n} of the drill's expectations not met"
        ))),
    }
}

fn tell(
    outcome: &DrillOutcome,
    drill: &Drill,
    args: &DrillArgs,
    json: bool,
) -> Result<(), CliError> {
    let value = outcome.json();
    if let Some(path) = &args.out {
        write(path, &format!("{value:#}\n"))?;
    }
    if let Some(path) = &args.report {
        let markdown = path.extension().is_some_and(|e| e == "md");
        write(path, &report::text(outcome, &drill.about(), markdown))?;
    }
    match json {
        true => put_json(&value),
        false => put(&table::text(outcome, Paint::stdout())),
    }
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text)
        .map_err(|e| CliError::Failed(format!("cannot write {}: {e}", path.display())))
}

fn endpoint(global: &Global) -> Result<Endpoint, CliError> {
    Endpoint::resolve(
        global.state_dir.as_deref(),
        global.connect.as_deref(),
        global.token_file.as_deref(),
    )
}

fn own_daemons_only(global: &Global) -> Result<(), CliError> {
    match (&global.state_dir, &global.connect) {
        (None, None) => Ok(()),
        _ => Err(CliError::Usage(
            "a drill starts daemons of its own; leave --state-dir and --connect out, or strike the \
             job that runs there with --attach"
                .into(),
        )),
    }
}

/// Does the work unless a signal comes; leaving it drops what it started.
pub async fn unless_interrupted<T>(
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let listen = |kind| {
        signal(kind).map_err(|e| CliError::Failed(format!("cannot listen for signals: {e}")))
    };
    let mut interrupted = listen(SignalKind::interrupt())?;
    let mut ended = listen(SignalKind::terminate())?;
    // Else a terminal that is closed would leave the daemon, in a group of its own, and its folder.
    let mut hung_up = listen(SignalKind::hangup())?;
    tokio::select! {
        done = work => done,
        _ = interrupted.recv() => Err(CliError::Interrupted { code: ExitCode::Interrupted as u8 }),
        _ = ended.recv() => Err(CliError::Interrupted { code: ExitCode::Terminated as u8 }),
        _ = hung_up.recv() => Err(CliError::Interrupted { code: ExitCode::HungUp as u8 }),
    }
}

async fn all_series(
    plan: &Plan,
    programs: &Programs,
    manner: Manner,
) -> Result<DrillOutcome, CliError> {
    let load_before = load();
    let mut series = Vec::new();
    for planned in &plan.series {
        series.push(one_series(planned, programs, manner).await?);
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
    manner: Manner,
) -> Result<SeriesOutcome, CliError> {
    let mut runs = Vec::new();
    let mut step_s = 0.0;
    for planned in &plan.runs {
        let done = run::run(&plan.name, planned, programs, step_s, manner).await?;
        if runs.is_empty() {
            step_s = done.median_step_s();
        }
        runs.push(done);
    }
    Ok(SeriesOutcome::new(plan, runs))
}

/// By its name, or that of its table in the job file.
fn rule_named(name: &str) -> Result<&'static Rule, CliError> {
    let found = RULES.iter().find(|r| r.name == name || r.key() == name);
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = RULES.iter().map(|r| r.name).collect();
        let hint = instead_of(name, &known, "the rules are");
        CliError::Usage(format!("--without: there is no rule `{name}`; {hint}"))
    })
}

/// Minutes of runs must not end in a folder that is not there.
fn check_out(option: &str, out: Option<&Path>) -> Result<(), CliError> {
    let Some(path) = out else { return Ok(()) };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if folder.is_dir() && !path.is_dir() {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "{option} {}: there is no folder {} to write a file in; make it first",
        path.display(),
        folder.display()
    )))
}
