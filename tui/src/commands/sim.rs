//! `robustctl sim`: the controller in virtual time; no daemon is asked.
mod paper;
mod scale;
pub mod weights;

use super::put;
use crate::cli::{ReplayArgs, SearchArgs, SimArgs, SimCommand};
use crate::error::CliError;
use indicatif::{ProgressBar, ProgressStyle};
use robust_shared::sim::faults::Schedule;
use robust_shared::sim::fixture::Fixture;
use robust_shared::sim::{search, shrink};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Failures shrunk and printed; more of them say little more.
const MOST_FAILURES: usize = 5;

/// What a search found.
#[derive(Debug, Serialize)]
struct Found {
    from: u64,
    /// That were run: a search ends early when it found enough.
    seeds: u64,
    asked: u64,
    identical_journal_lines: usize,
    inputs: u64,
    virtual_s: f64,
    wall_s: f64,
    seeds_per_s: f64,
    failures: Vec<Failure>,
}

#[derive(Debug, Serialize)]
struct Failure {
    seed: u64,
    fixture: Fixture,
}

/// Runs the simulator.
pub fn run(args: &SimArgs, json: bool) -> Result<(), CliError> {
    match &args.command {
        None => search(&args.search, json),
        Some(SimCommand::Search(args)) => search(args, json),
        Some(SimCommand::Replay(args)) => replay(args, json),
        Some(SimCommand::Paper(args)) => paper::run(args, json),
        Some(SimCommand::Scale(args)) => scale::run(args, json),
        Some(SimCommand::Weights(args)) => weights::run(args, json),
    }
}

/// Two runs of one seed must be the same before anything else means anything.
fn prove(seed: u64, json: bool) -> Result<usize, CliError> {
    let lines = search::prove_deterministic(seed).map_err(|difference| {
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
    let identical_journal_lines = prove(args.from, json)?;
    let began = Instant::now();
    let bar = bar(args.seeds, "seeds");
    let (mut inputs, mut took, mut failures) = (0, Duration::ZERO, Vec::new());
    let mut seeds = 0;
    for seed in args.from..args.from.saturating_add(args.seeds) {
        let schedule = Schedule::of(seed);
        let run = search::run(&schedule);
        inputs += run.inputs;
        took += run.took;
        if run.violation.is_some()
            && let Some(shrunk) = shrink::shrink(&schedule)
        {
            let fixture = Fixture::new(shrunk.schedule, shrunk.violation);
            failures.push(Failure { seed, fixture });
        }
        bar.inc(1);
        seeds += 1;
        if failures.len() >= MOST_FAILURES {
            break;
        }
    }
    bar.finish_and_clear();
    let wall_s = began.elapsed().as_secs_f64();
    let found = Found {
        from: args.from,
        seeds,
        asked: args.seeds,
        identical_journal_lines,
        inputs,
        virtual_s: took.as_secs_f64(),
        wall_s,
        seeds_per_s: seeds as f64 / wall_s.max(f64::EPSILON),
        failures,
    };
    match json {
        true => super::put_json(&found)?,
        false => put(&text(&found)?)?,
    }
    match found.failures.len() {
        0 => Ok(()),
        n => Err(CliError::Failed(format!("{n} seeds break an invariant"))),
    }
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

fn text(found: &Found) -> Result<String, CliError> {
    let mut text = String::new();
    for failure in &found.failures {
        let (seed, violation) = (failure.seed, &failure.fixture.found);
        text += &format!(
            "seed {seed} breaks {violation}\n{}",
            json_of(&failure.fixture)?
        );
    }
    text += &format!(
        "{} seeds from {}: {} failures; {} inputs, {:.0} s of virtual time in {:.1} s ({:.0} seeds/s)\n",
        found.seeds,
        found.from,
        found.failures.len(),
        found.inputs,
        found.virtual_s,
        found.wall_s,
        found.seeds_per_s
    );
    if found.seeds < found.asked {
        let (failures, asked) = (found.failures.len(), found.asked);
        text += &format!("stopped after {failures} failures, {asked} seeds were asked for\n");
    }
    Ok(text)
}

fn json_of(fixture: &Fixture) -> Result<String, CliError> {
    fixture
        .to_json()
        .map_err(|e| CliError::Failed(e.to_string()))
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
        (None, true) => super::put_json(&serde_json::json!({"holds": true, "inputs": run.inputs})),
        (None, false) => put(&format!("{path} holds: {} inputs\n", run.inputs)),
    }
}
