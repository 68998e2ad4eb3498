//! `robustctl doctor`: is this machine fit for a job.
//!
//! ```text
//!  machine ─► gather (looks, each with its time) ─► Facts ─► judge (pure) ─► Checks ─► text or JSON
//!                                                     ▲
//!              --facts FILE, of another machine ──────┘
//! ```
mod check;
mod facts;
mod gather;
mod judge;

use super::drill::unless_interrupted;
use crate::cli::{DoctorArgs, Global};
use crate::error::CliError;
use crate::output::{put, put_json};
use crate::paint::Paint;
use check::{Check, Verdict};
use facts::Facts;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// What `--json` prints, and `--facts` reads.
#[derive(Serialize)]
struct Report<'a> {
    checks: &'a [Check],
    facts: &'a Facts,
}

#[derive(Deserialize)]
struct Saved {
    facts: Facts,
}

/// Looks, judges, prints; an error if anything failed.
pub async fn run(args: &DoctorArgs, global: &Global) -> Result<(), CliError> {
    let facts = match &args.facts {
        Some(file) => saved(file)?,
        None => {
            let state = global.state_dir()?;
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(100));
            let gathering = gather::facts(args, state, &bar, global.json);
            // Programs of the user's are ended in order, whatever ends this one.
            let facts = match args.check_roles {
                true => unless_interrupted(async { Ok(gathering.await) }).await,
                false => Ok(gathering.await),
            };
            bar.finish_and_clear();
            facts?
        }
    };
    let checks = judge::all(&facts);
    match global.json {
        true => put_json(&Report {
            checks: &checks,
            facts: &facts,
        })?,
        false => put(&text(&checks, Paint::stdout()))?,
    }
    match count(&checks, Verdict::Fail) {
        0 => Ok(()),
        1 => Err(CliError::Failed("1 check failed".to_owned())),
        n => Err(CliError::Failed(format!("{n} checks failed"))),
    }
}

fn saved(file: &Path) -> Result<Facts, CliError> {
    let wrong = |e: &dyn std::fmt::Display| {
        CliError::Usage(format!(
            "{}: {e}; it is to be what doctor --json printed",
            file.display()
        ))
    };
    let text = std::fs::read(file).map_err(|e| wrong(&e))?;
    let saved: Saved = serde_json::from_slice(&text).map_err(|e| wrong(&e))?;
    Ok(saved.facts)
}

fn count(checks: &[Check], verdict: Verdict) -> usize {
    checks.iter().filter(|c| c.verdict == verdict).count()
}

fn text(checks: &[Check], paint: Paint) -> String {
    let width = checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let verdict = paint.word(&format!("{:<7}", check.verdict.word()));
        text += &format!("{verdict}  {:<width$}  {}\n", check.name, check.found);
        if let Some(fix) = &check.fix {
            text += &format!("{:7}  {:width$}  fix: {fix}\n", "", "");
        }
        for line in &check.log {
            text += &format!("{:7}  {:width$}  | {line}\n", "", "");
        }
    }
    let of = |verdict| count(checks, verdict);
    text += &format!(
        "\n{} ok, {} to look at, {} failed, {} skipped\n",
        of(Verdict::Ok),
        of(Verdict::Warn),
        of(Verdict::Fail),
        of(Verdict::Skipped),
    );
    text
}
