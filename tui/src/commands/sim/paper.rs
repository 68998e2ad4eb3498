//! `robustctl sim paper`: the paper's experiments in virtual time, beside the paper's figures.
use crate::cli::PaperArgs;
use crate::commands::{put, put_json};
use crate::error::CliError;
use crate::paint::Paint;
use crate::table::Table;
use robust_shared::sim::paper::{self, CLAIMS, CONSTANTS, Constant, Row, Source};
use serde::Serialize;

/// Everything that is printed.
#[derive(Debug, Serialize)]
struct Experiments {
    seed: u64,
    identical_journal_lines: usize,
    paper: Vec<Row>,
    claims: Vec<Claim>,
    causes: Vec<Cause>,
    constants: &'static [Constant],
}

/// What the paper states, and what came out here.
#[derive(Debug, Serialize)]
struct Claim {
    what: &'static str,
    paper: &'static str,
    here: String,
}

/// What an assumption does to the headline.
#[derive(Debug, Serialize)]
struct Cause {
    what: &'static str,
    row: Row,
}

/// Why `role`'s ETTR is what it is.
const WHY: &str = "\
Policy role's ETTR on 8B-Math stays below the paper's, though restarts take as long as the paper's. An
ETTR of 60% for policy task means steps of about 45 s, so a trainer's restart is more than four steps
long. Rollouts may be one batch ahead here, finish it within a step, and then nobody works. It takes
rollouts that generate all the while (more batches ahead, and engines slower than the trainer) or a
faster start of the trainer to get over 80%. Where steps are longer (32B) it is over 80% as it is.
";

pub fn run(args: &PaperArgs, json: bool) -> Result<(), CliError> {
    let seed = args.seed;
    let identical_journal_lines = paper::prove_deterministic(seed).map_err(|difference| {
        CliError::Failed(format!("two runs of seed {seed} differ: {difference}"))
    })?;
    if !json {
        put(&format!(
            "two runs of seed {seed} give identical journals ({identical_journal_lines} lines)\n\n"
        ))?;
    }
    let (scenarios, causes) = (paper::scenarios(), paper::causes());
    let bar = super::bar((scenarios.len() + causes.len()) as u64, "runs");
    let run = |scenario: &paper::Scenario| {
        let steps = args.steps;
        let row = paper::Scenario { steps, ..*scenario }.run(seed);
        bar.inc(1);
        row
    };
    let rows: Vec<Row> = scenarios.iter().map(run).collect();
    let causes = causes.iter().map(|(what, scenario)| Cause {
        what,
        row: run(scenario),
    });
    let experiments = Experiments {
        seed,
        identical_journal_lines,
        claims: claims(&rows),
        causes: causes.collect(),
        paper: rows,
        constants: CONSTANTS,
    };
    bar.finish_and_clear();
    match json {
        true => put_json(&experiments)?,
        false => put(&text(&experiments, Paint::stdout()))?,
    }
    match experiments.paper.iter().find(|row| !row.completed) {
        None => Ok(()),
        Some(row) => Err(CliError::Failed(format!(
            "{} {} {} did not finish",
            row.workload, row.mode, row.policy
        ))),
    }
}

/// Rows without faults, under `task` and under `role`, of one workload and mode.
fn triples(rows: &[Row]) -> impl Iterator<Item = (&Row, &Row, &Row)> {
    rows.chunks_exact(3).map(|t| (&t[0], &t[1], &t[2]))
}

/// How much longer than without faults.
fn overhead(none: &Row, row: &Row) -> f64 {
    row.hours / none.hours - 1.0
}

fn claims(rows: &[Row]) -> Vec<Claim> {
    let each = |first: bool, figure: &dyn Fn(&Row, &Row, &Row) -> String| {
        let chosen = triples(rows).filter(|(none, ..)| !first || none.workload == rows[0].workload);
        let all = chosen.map(|(none, task, role)| (none, figure(none, task, role)));
        let mut text = String::new();
        let mut workload = "";
        for (row, figure) in all {
            if row.workload != workload {
                text += if workload.is_empty() { "" } else { "; " };
                text += &format!("{} ", row.workload);
            } else {
                text += "/";
            }
            workload = row.workload;
            text += &figure;
        }
        text
    };
    let percent = |n: f64| format!("{:.1}", n * 100.0);
    let here = [
        each(true, &|_, _, role| percent(role.ettr)),
        each(true, &|_, task, _| percent(task.ettr)),
        each(false, &|_, task, role| {
            percent(1.0 - role.hours / task.hours)
        }),
        each(false, &|_, task, role| {
            format!("{:.2}", task.recovery_s / role.recovery_s)
        }),
        each(false, &|none, _, role| percent(overhead(none, role))),
        each(false, &|none, task, _| percent(overhead(none, task))),
    ];
    let pairs = CLAIMS.iter().zip(here);
    let claim = |(&(what, paper), here)| Claim { what, paper, here };
    pairs.map(claim).collect()
}

fn text(found: &Experiments, paint: Paint) -> String {
    let mut table = Table::new(&[
        "WORKLOAD",
        ">GPUS",
        "MODE",
        "POLICY",
        ">HOURS",
        ">ETTR",
        ">GOODPUT",
        ">OVERHEAD",
        ">RECOVERY",
    ]);
    for (none, task, role) in triples(&found.paper) {
        for row in [none, task, role] {
            table.row([
                row.workload.to_owned(),
                row.gpus.to_string(),
                row.mode.to_owned(),
                row.policy.to_owned(),
                format!("{:.2}", row.hours),
                format!("{:.3}", row.ettr),
                format!("{:.3}", row.goodput),
                format!("{:.1}%", overhead(none, row) * 100.0),
                format!("{:.0} s", row.recovery_s),
            ]);
        }
    }
    let mut claims = Table::new(&[
        "THE PAPER STATES",
        "THERE",
        "HERE (sync/semi_sync/async, % or times)",
    ]);
    for claim in &found.claims {
        claims.row([claim.what.into(), claim.paper.into(), claim.here.clone()]);
    }
    let mut causes = Table::new(&["8B-MATH, ASYNC, ROLE", ">HOURS", ">ETTR", ">RECOVERY"]);
    for cause in &found.causes {
        causes.row([
            cause.what.to_owned(),
            format!("{:.2}", cause.row.hours),
            format!("{:.3}", cause.row.ettr),
            format!("{:.0} s", cause.row.recovery_s),
        ]);
    }
    let mut constants = Table::new(&["CONSTANT", "SOURCE", "VALUE"]);
    for constant in found.constants {
        let (source, why) = match constant.source {
            Source::Paper => ("paper", String::new()),
            Source::Assumed => ("assumed", format!(" ({})", constant.why)),
        };
        let value = format!("{}{why}", constant.value);
        constants.row([constant.name.to_owned(), source.to_owned(), value]);
    }
    let tables = [table, claims, causes].map(|t| t.render(paint)).join("\n");
    format!("{tables}\n{WHY}\n{}", constants.render(paint))
}
