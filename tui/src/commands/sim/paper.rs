//! `robustctl sim paper`: the paper's experiments in virtual time, beside what is known of the paper's figures.
use crate::cli::PaperArgs;
use crate::error::CliError;
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use indicatif::ProgressBar;
use robust_shared::job::Mode;
use robust_sim::paper::{
    self, CLAIMS, CONSTANTS, Constant, Row, Scenario, Source, Triple, VARIANTS, WORKLOADS,
};
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Everything that is printed.
#[derive(Debug, Serialize)]
struct Experiments {
    seed: u64,
    identical_journal_lines: usize,
    paper: Vec<Row>,
    claims: Vec<Found>,
    constants: &'static [Constant],
    /// Rows in async mode under each assumption that was gone through.
    variants: Vec<Varied>,
}

/// What the paper states, and what came out here.
#[derive(Debug, Serialize)]
struct Found {
    what: &'static str,
    /// None: it is not known here.
    paper: Option<&'static str>,
    unit: &'static str,
    remark: &'static str,
    here: Vec<Here>,
}

/// What came out for a workload, in async mode.
#[derive(Debug, Serialize)]
struct Here {
    workload: &'static str,
    value: f64,
    /// Over all variants.
    least: f64,
    most: f64,
    least_with: &'static str,
    most_with: &'static str,
}

/// A workload under an assumption.
#[derive(Debug, Serialize)]
struct Varied {
    what: &'static str,
    rows: [Row; 3],
}

/// As the constants say.
const AS_ASSUMED: &str = "as assumed";

/// What the model cannot give.
const WHY: &str = "\
What this model cannot give as it is assumed, and which assumption would:
- ETTR over 80% for role on 8B-Math: its steps are short (chosen for task's 60%), so a restart is several
  steps long, and rollouts that are one batch ahead have nothing to do for most of it. Of the assumptions
  only several batches ahead, with engines that are slower than the trainer, give it.
- A trainer restart 1.5-1.7 times as fast: in place, role saves only the engines and the weights. The ratio
  takes a baseline that makes machines and containers anew (60 s) though none was lost.
- Overheads of 5% and 20% at once for all workloads: ten faults cost the same time whatever a step takes, so
  they are a small part of long steps (32B-SWE) and a large part of short ones (8B-Math).
- Fig. 16 in tokens: conversations have lengths here, and no tokens.
The batch, and the figures 12, 14, 15 and 16, are in the paper and not known here: nothing was put in their place.
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
    let scenarios = paper::scenarios();
    let table = scenarios.len();
    let (varied, places) = varied(&scenarios);
    let all: Vec<Scenario> = scenarios.into_iter().chain(varied).collect();
    let bar = super::bar(all.len() as u64, "runs");
    let rows = run_all(&all, args, &bar);
    bar.finish_and_clear();
    let row = |at: usize| rows[at].clone();
    let variants: Vec<Varied> = places
        .into_iter()
        .map(|(what, places)| Varied {
            what,
            rows: places.map(row),
        })
        .collect();
    let claims = CLAIMS.iter().map(|claim| found(claim, &variants));
    let experiments = Experiments {
        seed,
        identical_journal_lines,
        claims: claims.collect(),
        paper: rows[..table].to_vec(),
        constants: CONSTANTS,
        variants,
    };
    match json {
        true => put_json(&experiments)?,
        false => put(&text(&experiments, Paint::stdout()))?,
    }
    match rows.iter().find(|row| !row.completed) {
        None => Ok(()),
        Some(row) => Err(CliError::Failed(format!(
            "{} {} {} did not finish",
            row.workload, row.mode, row.policy
        ))),
    }
}

/// An assumption, and where its three rows will be among all.
type Places = (&'static str, [usize; 3]);

/// Scenarios that follow those of the table: its own in async mode under each assumption. What an assumption
/// does not change is not run again.
fn varied(table: &[Scenario]) -> (Vec<Scenario>, Vec<Places>) {
    let (mut more, mut places) = (Vec::new(), Vec::new());
    let triples = table.chunks_exact(3).zip((0..).step_by(3));
    for (triple, first) in triples.filter(|(triple, _)| triple[0].mode == Mode::Async) {
        places.push((AS_ASSUMED, [first, first + 1, first + 2]));
        for variant in VARIANTS {
            let mut at = [first; 3];
            for (place, scenario) in at.iter_mut().zip(triple) {
                if scenario.policy.is_some() || variant.without_faults {
                    *place = table.len() + more.len();
                    more.push(variant.of(scenario));
                }
            }
            places.push((variant.what, at));
        }
    }
    (more, places)
}

/// Runs each, as many at a time as there are cores; the rows are in the order of the scenarios.
fn run_all(all: &[Scenario], args: &PaperArgs, bar: &ProgressBar) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::with_capacity(all.len()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = all.get(at) else {
                        return;
                    };
                    let steps = args.steps;
                    let row = Scenario {
                        steps,
                        ..scenario.clone()
                    }
                    .run(args.seed);
                    bar.inc(1);
                    let rows = rows.lock();
                    rows.unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push((at, row));
                }
            });
        }
    });
    let rows = rows.into_inner();
    let mut rows = rows.unwrap_or_else(std::sync::PoisonError::into_inner);
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Rows without faults, under `task` and under `role`, of one workload and mode.
fn triples(rows: &[Row]) -> impl Iterator<Item = [&Row; 3]> {
    rows.chunks_exact(3).map(|t| [&t[0], &t[1], &t[2]])
}

/// How much longer than without faults.
fn overhead(none: &Row, row: &Row) -> f64 {
    row.hours / none.hours - 1.0
}

fn found(claim: &paper::Claim, variants: &[Varied]) -> Found {
    let about = |name: &&str| claim.workload.is_none_or(|only| only == *name);
    let names = WORKLOADS.iter().map(|workload| workload.name);
    let here = names.filter(about).filter_map(|name| {
        let of = variants.iter().filter(|v| v.rows[0].workload == name);
        let figures: Vec<(&'static str, f64)> = of
            .map(|v| {
                let [none, task, role] = &v.rows;
                (v.what, (claim.figure)(Triple { none, task, role }))
            })
            .collect();
        let (_, value) = *figures.iter().find(|(what, _)| *what == AS_ASSUMED)?;
        let (least_with, least) = *figures.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let (most_with, most) = *figures.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Here {
            workload: name,
            value,
            least,
            most,
            least_with,
            most_with,
        })
    });
    Found {
        what: claim.what,
        paper: claim.paper,
        unit: claim.unit,
        remark: claim.remark,
        here: here.collect(),
    }
}

fn text(found: &Experiments, paint: Paint) -> String {
    let mut claims = Table::new(&[
        "CLAIM",
        "WORKLOAD",
        ">THE PAPER",
        ">HERE",
        ">RANGE",
        "UNIT",
        "FROM",
        "TO",
    ]);
    for claim in &found.claims {
        for here in &claim.here {
            claims.row([
                claim.what.to_owned(),
                here.workload.to_owned(),
                claim.paper.unwrap_or("not known to us").to_owned(),
                format!("{:.1}", here.value),
                format!("{:.1} to {:.1}", here.least, here.most),
                claim.unit.to_owned(),
                here.least_with.to_owned(),
                here.most_with.to_owned(),
            ]);
        }
    }
    let mut remarks = String::new();
    for claim in found.claims.iter().filter(|claim| !claim.remark.is_empty()) {
        remarks += &format!("  {}: {}\n", claim.what, claim.remark);
    }
    let mut constants = Table::new(&["CONSTANT", "SOURCE", "VALUE"]);
    for constant in found.constants {
        let (source, how) = match constant.source {
            Source::Stated(section) => ("stated", section),
            Source::Derived(formula) => ("derived", formula),
            Source::Assumed(range) => ("assumed", range),
        };
        let value = format!("{} ({how})", constant.value);
        constants.row([constant.name.to_owned(), source.to_owned(), value]);
    }
    format!(
        "{}\nIn async mode, each claim with its range over the assumptions, one at a time:\n{}{remarks}\n{WHY}\n{}",
        rows(found).render(paint),
        claims.render(paint),
        constants.render(paint)
    )
}

fn rows(found: &Experiments) -> Table {
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
        ">LOWEST",
    ]);
    for [none, task, role] in triples(&found.paper) {
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
                format!("{:.2}", row.lowest),
            ]);
        }
    }
    table
}
