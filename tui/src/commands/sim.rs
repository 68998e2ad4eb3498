//! `robustctl sim`: the controller in virtual time; no daemon is asked.
mod hunt;
mod paper;
mod scale;
mod trace;
pub mod weights;

use crate::cli::{ReplayArgs, SearchArgs, SimArgs, SimCommand};
use crate::error::CliError;
use crate::output::{put, put_json};
use hunt::{Kind, Ran, Search};
use indicatif::{ProgressBar, ProgressStyle};
use robust_shared::core::Cell;
use robust_shared::time::Time;
use robust_sim::coverage::{self, Coverage};
use robust_sim::faults::Schedule;
use robust_sim::fixture::Fixture;
use robust_sim::world::Violation;
use robust_sim::{search, shrink};
use serde::Serialize;
use std::any::Any;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a search found.
#[derive(Debug, Serialize)]
struct Found {
    from: u64,
    controllers: u32,
    /// How often one of several controllers took over from another one, or again from itself.
    takeovers: u64,
    /// That were run: a search ends early when it found enough.
    seeds: u64,
    asked: u64,
    identical_journal_lines: usize,
    inputs: u64,
    virtual_s: f64,
    wall_s: f64,
    seeds_per_s: f64,
    failures: Vec<Failure>,
    /// Cells of the table: that inputs met, that can be reached and were not, that cannot.
    covered: usize,
    never_met: Vec<String>,
    out_of_reach: Vec<OutOfReach>,
    #[serde(skip)]
    coverage: Coverage,
}

/// An input that never meets a state.
#[derive(Debug, Serialize)]
struct OutOfReach {
    cell: String,
    why: &'static str,
}

/// Failures of one kind.
#[derive(Debug, Serialize)]
struct Failure {
    /// The first seed that fails so.
    seed: u64,
    /// How many do.
    seeds: u64,
    /// Where the fixture is.
    file: PathBuf,
    fixture: Fixture,
}

impl Found {
    /// Seeds that fail.
    fn failing(&self) -> u64 {
        self.failures.iter().map(|failure| failure.seeds).sum()
    }
}

/// Runs the simulator.
pub fn run(args: &SimArgs, json: bool) -> Result<(), CliError> {
    match &args.command {
        None => search(&args.search, json),
        Some(SimCommand::Search(args)) => search(args, json),
        Some(SimCommand::Replay(args)) => replay(args, json),
        Some(SimCommand::Paper(args)) => paper::run(args, json),
        Some(SimCommand::Scale(args)) => scale::run(args, json),
        Some(SimCommand::Trace(args)) => trace::run(args, json),
        Some(SimCommand::Weights(args)) => weights::run(args, json),
    }
}

/// Two runs of one seed must be the same before anything else means anything.
fn prove(schedule: &Schedule, json: bool) -> Result<usize, CliError> {
    let seed = schedule.seed;
    let lines = search::prove_deterministic(schedule).map_err(|difference| {
        CliError::Failed(format!("two runs of seed {seed} differ: {difference}"))
    })?;
    if !json {
        put(&format!(
            "two runs of seed {seed} give identical journals ({lines} lines)\n"
        ))?;
    }
    Ok(lines)
}

fn search(args: &SearchArgs, json: bool) -> Result<(), CliError> {
    let of_seed = |seed| schedule(seed, args.controllers);
    let identical_journal_lines = prove(&of_seed(args.from), json)?;
    let began = Instant::now();
    let bar = bar(args.seeds, "seeds");
    let search = Search {
        seeds: args.from..args.from.saturating_add(args.seeds),
        most_kinds: args.keep_going,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let report = hunt::hunt(&search, |seed| ran(&of_seed(seed)), |n| bar.inc(n));
    bar.finish_and_clear();
    let wall_s = began.elapsed().as_secs_f64();
    let failures = report.kinds.iter();
    let failures = failures.map(|kind| failure(kind, of_seed(kind.seed), &args.found));
    let found = Found {
        from: args.from,
        controllers: args.controllers,
        takeovers: report.takeovers,
        seeds: report.seeds,
        asked: args.seeds,
        identical_journal_lines,
        inputs: report.inputs,
        virtual_s: report.took.as_secs_f64(),
        wall_s,
        seeds_per_s: report.seeds as f64 / wall_s.max(f64::EPSILON),
        failures: failures.collect::<Result<_, _>>()?,
        covered: coverage::cells()
            .filter(|cell| report.coverage.of(*cell) > 0)
            .count(),
        never_met: report
            .coverage
            .missed()
            .into_iter()
            .map(coverage::named)
            .collect(),
        out_of_reach: coverage::cells().filter_map(out_of_reach).collect(),
        coverage: report.coverage,
    };
    if let Some(file) = &args.keep {
        keep(file, &report.kept)?;
    }
    match json {
        true => put_json(&found)?,
        false => put(&text(&found))?,
    }
    if args.coverage && !json {
        put(&covered(&found))?;
    }
    match found.failing() {
        0 => Ok(()),
        n => Err(CliError::Failed(format!("{n} seeds break an invariant"))),
    }
}

/// The schedule of a seed.
fn schedule(seed: u64, controllers: u32) -> Schedule {
    match controllers {
        0 | 1 => Schedule::of(seed),
        several => Schedule::of_controllers(seed, several),
    }
}

fn out_of_reach(cell: Cell) -> Option<OutOfReach> {
    let why = coverage::unreachable(cell)?;
    let cell = coverage::named(cell);
    Some(OutOfReach { cell, why })
}

/// Writes down the seeds that are worth running again for what they cover.
fn keep(file: &Path, kept: &[hunt::Kept]) -> Result<(), CliError> {
    let seeds: Vec<u64> = kept.iter().map(|kept| kept.seed).collect();
    let text = serde_json::to_string(&seeds).map_err(|e| CliError::Failed(e.to_string()))?;
    std::fs::write(file, text + "\n")
        .map_err(|e| CliError::Failed(format!("{} cannot be written: {e}", file.display())))
}

/// The table, and what never came.
fn covered(found: &Found) -> String {
    let mut text = format!(
        "\nhow often each input met each state (. cannot be)\n\n{}",
        found.coverage
    );
    text += "never met:\n";
    for cell in &found.never_met {
        text += &format!("  {cell}\n");
    }
    if found.never_met.is_empty() {
        text += "  nothing that can be\n";
    }
    text
}

/// A run of the controller. One that panics is a failure like any other, and the search goes on.
fn ran(schedule: &Schedule) -> Ran {
    match std::panic::catch_unwind(|| search::run(schedule)) {
        Ok(run) => Ran {
            inputs: run.inputs,
            takeovers: run.takeovers,
            took: run.took,
            coverage: run.coverage,
            violation: run.violation,
        },
        Err(thrown) => Ran {
            inputs: 0,
            takeovers: 0,
            took: Duration::ZERO,
            coverage: Coverage::default(),
            violation: Some(Violation {
                at: Time(0),
                invariant: "panic".to_owned(),
                text: words_of(thrown.as_ref()).to_owned(),
            }),
        },
    }
}

fn words_of(thrown: &(dyn Any + Send)) -> &str {
    let owned = thrown.downcast_ref::<String>().map(String::as_str);
    let words = owned.or_else(|| thrown.downcast_ref::<&str>().copied());
    words.unwrap_or("the controller panicked")
}

/// The first failure of a kind, shrunk and written down.
fn failure(kind: &Kind, schedule: Schedule, folder: &Path) -> Result<Failure, CliError> {
    let shrunk = shrink::shrink_with(&schedule, |schedule| ran(schedule).violation);
    let fixture = match shrunk {
        Some(shrunk) => Fixture::new(shrunk.schedule, shrunk.violation),
        None => Fixture::new(schedule, kind.violation.clone()),
    };
    let invariant = kind.violation.invariant.replace(' ', "_");
    let file = folder.join(format!("{invariant}_{}.json", kind.seed));
    let text = fixture
        .to_json()
        .map_err(|e| CliError::Failed(e.to_string()))?;
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&file, text))
        .map_err(|e| CliError::Failed(format!("{} cannot be written: {e}", file.display())))?;
    Ok(Failure {
        seed: kind.seed,
        seeds: kind.seeds,
        file,
        fixture,
    })
}

/// On a terminal; hidden elsewhere.
fn bar(length: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let template = format!("{{bar:40}} {{pos}}/{{len}} {what}, {{per_sec}}, {{eta}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

/// A line for each distinct failure, and one about all of them.
fn text(found: &Found) -> String {
    let mut text = String::new();
    for failure in &found.failures {
        let (seed, seeds, violation) = (failure.seed, failure.seeds, &failure.fixture.found);
        let (faults, file) = (
            failure.fixture.schedule.faults.len(),
            failure.file.display(),
        );
        text += &format!(
            "{violation} ({seeds} seeds, the first {seed}; {faults} faults suffice: {file})\n"
        );
    }
    text += &format!(
        "{} seeds from {}: {} fail, {} distinct failures; {} inputs, {:.0} s of virtual time in \
         {:.1} s ({:.0} seeds/s)\n",
        found.seeds,
        found.from,
        found.failing(),
        found.failures.len(),
        found.inputs,
        found.virtual_s,
        found.wall_s,
        found.seeds_per_s
    );
    if found.controllers > 1 {
        let (controllers, takeovers) = (found.controllers, found.takeovers);
        text += &format!("{controllers} controllers; one took the job over {takeovers} times\n");
    }
    text += &format!(
        "{} of {} cells (input x state) met, {} that can be were not (`--coverage`)\n",
        found.covered,
        coverage::cells().count() - found.out_of_reach.len(),
        found.never_met.len()
    );
    if found.seeds < found.asked {
        let (kinds, asked) = (found.failures.len(), found.asked);
        text += &format!(
            "stopped at {kinds} distinct failures, {asked} seeds were asked for; `--keep-going N` \
             stops later\n"
        );
    }
    text
}

fn replay(args: &ReplayArgs, json: bool) -> Result<(), CliError> {
    let path = args.file.display();
    let text = std::fs::read_to_string(&args.file)
        .map_err(|e| CliError::Usage(format!("{path} cannot be read: {e}")))?;
    let fixture = Fixture::from_json(&text).map_err(|e| CliError::Usage(format!("{path}: {e}")))?;
    let run = search::run_journaled(&fixture.schedule);
    if args.journal && !json {
        for line in &run.journal {
            put(&format!("{line}\n"))?;
        }
    }
    match (run.violation, json) {
        (Some(violation), _) => Err(CliError::Failed(format!("{path} breaks {violation}"))),
        (None, true) => put_json(&serde_json::json!({"holds": true, "inputs": run.inputs})),
        (None, false) => put(&format!("{path} holds: {} inputs\n", run.inputs)),
    }
}
