//! `robustctl sim scale`: what the controller costs on very many machines. The simulator reads no
//! clock; it is read here.
use crate::cli::ScaleRunArgs;
use crate::error::CliError;
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use robust_sim::scale::{FAULTS, Scale, Summary};
use robust_sim::stream::Stream;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Sizes at which an input's cost is measured.
const SIZES: [u32; 3] = [100, 1_000, 10_000];
/// Inputs that are measured at each size, at least.
const MEASURED: u64 = 1_000_000;
/// Inputs before, so that memory is warm and the stream steady.
const WARM_UP: u64 = 300_000;
/// The run whose duration is a figure of its own.
const WEEK_10K: (u32, f64) = (10_000, 7.0);

#[derive(Debug, Serialize)]
struct Found {
    scale: Vec<Cost>,
    week_10k_nodes_wall_s: Option<f64>,
    wall_s: f64,
    run: Summary,
}

/// What one input costs the controller.
#[derive(Debug, Serialize)]
struct Cost {
    nodes: u32,
    us_per_input: f64,
    inputs: u64,
    steps: u64,
}

pub fn run(args: &ScaleRunArgs, json: bool) -> Result<(), CliError> {
    let scale: Vec<Cost> = SIZES.into_iter().map(cost).collect();
    if !json {
        put(&costs(&scale))?;
    }
    let (run, wall_s) = long_run(args)?;
    let whole = (args.nodes, args.days) == WEEK_10K;
    let found = Found {
        scale,
        week_10k_nodes_wall_s: whole.then_some(wall_s),
        wall_s,
        run,
    };
    match json {
        true => put_json(&found)?,
        false => put(&sentence(&found))?,
    }
    match found.run.running {
        true => Ok(()),
        false => Err(CliError::Failed("the job failed".to_owned())),
    }
}

fn cost(nodes: u32) -> Cost {
    let mut stream = Stream::new(nodes);
    measure(&mut stream, WARM_UP.max(u64::from(nodes) * 40));
    let (inputs, spent) = measure(&mut stream, MEASURED);
    Cost {
        nodes,
        us_per_input: spent.as_secs_f64() * 1e6 / inputs as f64,
        inputs,
        steps: stream.steps(),
    }
}

fn measure(stream: &mut Stream, inputs: u64) -> (u64, Duration) {
    let (mut handled, mut spent) = (0, Duration::ZERO);
    while handled < inputs {
        handled += stream.prepare();
        let began = Instant::now();
        stream.handle();
        spent += began.elapsed();
        stream.settle();
    }
    (handled, spent)
}

fn long_run(args: &ScaleRunArgs) -> Result<(Summary, f64), CliError> {
    let began = Instant::now();
    let scale = Scale {
        nodes: args.nodes,
        seed: args.seed,
    };
    let hours = (args.days * 24.0).ceil() as u64;
    let bar = super::bar(hours, "virtual hours");
    let mut run = scale.start();
    let end = Duration::from_secs_f64(args.days * 86_400.0);
    for hour in 1..=hours {
        run.run_until(Duration::from_secs(hour * 3600).min(end));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let wall_s = began.elapsed().as_secs_f64();
    let summary = run.summary(scale);
    let summary =
        summary.map_err(|e| CliError::Failed(format!("the state cannot be written: {e}")))?;
    Ok((summary, wall_s))
}

fn costs(scale: &[Cost]) -> String {
    let mut table = Table::new(&[">NODES", ">US/INPUT", ">INPUTS", ">STEPS"]);
    for cost in scale {
        table.row([
            cost.nodes.to_string(),
            format!("{:.3}", cost.us_per_input),
            cost.inputs.to_string(),
            cost.steps.to_string(),
        ]);
    }
    table.render(Paint::stdout())
}

fn sentence(found: &Found) -> String {
    let run = &found.run;
    let written = &run.written;
    let of = |all: u64| all as f64 / written.writes.max(1) as f64;
    format!(
        "{} nodes, {:.1} days at {FAULTS:.0} machine faults per 1,000 machines and week, in {:.1} s: \
         {} machines died, {} incidents, {} task restarts; {} steps, ETTR {:.3}, goodput {:.3}; \
         {} inputs; {} records in {} writes of {:.0} entries and {:.1} KB of the state\n",
        run.nodes,
        run.days,
        found.wall_s,
        run.deaths,
        run.incidents,
        run.task_restarts,
        run.steps,
        run.ettr,
        run.goodput,
        run.inputs,
        written.records,
        written.writes,
        of(written.entries),
        of(written.bytes) / 1e3
    )
}
