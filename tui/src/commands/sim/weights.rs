//! `robustctl sim weights`: a version's way to 1 to 256 rollouts on machines like the paper's.
use crate::cli::WeightsArgs;
use crate::error::CliError;
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use robust_sim::weights::model::QWEN3_235B;
use robust_sim::weights::{Assumption, Experiment, Machines, Method, Outcome, SimError, paper_s};
use serde::Serialize;
use std::time::Instant;

/// The goals: at most so many times the ideal time, for so many rollouts.
const GOALS: [(usize, f64); 2] = [(1, 1.15), (256, 1.5)];

/// Rollouts of which one is disturbed.
const DISTURBED: usize = 16;

/// Everything that is printed.
#[derive(Debug, Serialize)]
pub struct Found {
    /// Ratio to the ideal time for one rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sim_1: Option<f64>,
    /// And for 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sim_256: Option<f64>,
    model_bytes: u64,
    ideal_s: f64,
    plan_ms: f64,
    wall_s: f64,
    rows: Vec<Row>,
    disturbed: Disturbed,
    assumptions: Vec<Assumption>,
}

/// One number of rollouts.
#[derive(Debug, Serialize)]
struct Row {
    rollouts: usize,
    seconds: f64,
    over_ideal: f64,
    first_s: f64,
    trainer_copies: f64,
    paper_s: f64,
    store_and_forward_s: f64,
    gather_and_broadcast_s: f64,
}

/// Something is wrong with a rollout in the middle of the chain.
#[derive(Debug, Serialize)]
struct Disturbed {
    rollouts: usize,
    undisturbed_s: f64,
    /// It dies half way: until all others have the version.
    relay_dies_others_s: f64,
    /// And until the one in its place has it too.
    relay_dies_all_s: f64,
    /// Its links have half the rate: until all have the version.
    half_rate_s: f64,
}

pub fn run(args: &WeightsArgs, json: bool) -> Result<(), CliError> {
    let found = find(args)?;
    match json {
        true => put_json(&found),
        false => put(&text(&found, Paint::stdout())),
    }
}

/// Runs it for all numbers of rollouts.
pub fn find(args: &WeightsArgs) -> Result<Found, CliError> {
    let began = Instant::now();
    let machines = Machines {
        chunk_bytes: args.chunk_mib << 20,
        ..Machines::default()
    };
    let refused = |error: SimError| CliError::Failed(error.to_string());
    let experiment = Experiment::new(&QWEN3_235B, machines).map_err(refused)?;
    let plan_ms = began.elapsed().as_secs_f64() * 1e3;
    let bar = super::bar(args.rollouts.len() as u64, "numbers of rollouts");
    let mut rows = Vec::new();
    for &rollouts in &args.rollouts {
        rows.push(row(&experiment, rollouts)?);
        bar.inc(1);
    }
    let disturbed = disturbed(&experiment)?;
    bar.finish_and_clear();
    let ratio = |n| {
        rows.iter()
            .find(|row| row.rollouts == n)
            .map(|row| row.over_ideal)
    };
    Ok(Found {
        sim_1: ratio(GOALS[0].0),
        sim_256: ratio(GOALS[1].0),
        model_bytes: experiment.bytes(),
        ideal_s: experiment.ideal_s(),
        plan_ms,
        wall_s: began.elapsed().as_secs_f64(),
        assumptions: machines.assumptions(),
        disturbed,
        rows,
    })
}

/// Fails unless all are served.
fn outcome(experiment: &Experiment, rollouts: usize, method: Method) -> Result<Outcome, CliError> {
    let outcome = experiment.run(rollouts, method);
    let served = outcome.served;
    match served == rollouts {
        true => Ok(outcome),
        false => Err(CliError::Failed(format!(
            "{method:?}: {served} of {rollouts} rollouts were served"
        ))),
    }
}

fn disturbed(experiment: &Experiment) -> Result<Disturbed, CliError> {
    let rollouts = DISTURBED;
    let (relay_dies_others_s, relay_dies_all_s) = experiment.relay_dies(rollouts);
    Ok(Disturbed {
        rollouts,
        undisturbed_s: outcome(experiment, rollouts, Method::Pipelined)?.seconds,
        relay_dies_others_s,
        relay_dies_all_s,
        half_rate_s: experiment.slow_machine(rollouts, 2.0).seconds,
    })
}

fn row(experiment: &Experiment, rollouts: usize) -> Result<Row, CliError> {
    let run = |method| outcome(experiment, rollouts, method);
    let ours = run(Method::Pipelined)?;
    Ok(Row {
        rollouts,
        seconds: ours.seconds,
        over_ideal: ours.seconds / experiment.ideal_s(),
        first_s: ours.first_s,
        trainer_copies: ours.trainer_copies,
        paper_s: paper_s(rollouts),
        store_and_forward_s: run(Method::StoreAndForward)?.seconds,
        gather_and_broadcast_s: run(Method::GatherAndBroadcast)?.seconds,
    })
}

fn text(found: &Found, paint: Paint) -> String {
    let mut curve = Table::new(&[
        ">ROLLOUTS",
        ">SECONDS",
        ">OVER IDEAL",
        ">PAPER*",
        ">STORE+FORWARD",
        ">GATHER+BROADCAST",
        ">TRAINER SENDS",
    ]);
    for row in &found.rows {
        curve.row([
            row.rollouts.to_string(),
            format!("{:.2}", row.seconds),
            format!("{:.2}", row.over_ideal),
            format!("{:.0}", row.paper_s),
            format!("{:.2}", row.store_and_forward_s),
            format!("{:.2}", row.gather_and_broadcast_s),
            format!("{:.2} copies", row.trainer_copies),
        ]);
    }
    let mut assumed = Table::new(&["OF", "VALUE", "WHY"]);
    for of in &found.assumptions {
        assumed.row([of.name.to_owned(), of.value.clone(), of.why.to_owned()]);
    }
    let wrong = &found.disturbed;
    let goals = GOALS.map(|(n, goal)| format!("{goal} for {n}")).join(", ");
    format!(
        "{:.0} GB from 64 flat shards to 8 tensor-parallel ranks each; ideal {:.2} s whatever the \
         number; goals over it: {goals}\nplan in {:.0} ms; everything in {:.1} s\n\n{}\n\
         * 6 s for one rollout is the paper's figure; 6 s more for each doubling is our reading of it\n\n\
         of {} rollouts one in the middle of the chain dies half way: the others have the version after \
         {:.2} s instead of {:.2} s, the one that is started in its place after {:.2} s; with half the \
         rate on its links all have it after {:.2} s\n\n{}",
        found.model_bytes as f64 / 1e9,
        found.ideal_s,
        found.plan_ms,
        found.wall_s,
        curve.render(paint),
        wrong.rollouts,
        wrong.relay_dies_others_s,
        wrong.undisturbed_s,
        wrong.relay_dies_all_s,
        wrong.half_rate_s,
        assumed.render(paint)
    )
}
