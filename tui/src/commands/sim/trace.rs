//! `robustctl sim trace`: faults as they came, on a cluster of so many machines, policies side by side. The
//! simulator reads no clock and no file; both are read here.
use crate::cli::{TraceArgs, TracePolicy};
use crate::error::CliError;
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use indicatif::ProgressBar;
use robust_shared::core::Policy;
use robust_sim::trace::{self, Mapping, Mix, Setup, Summary, Trace};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

const DAY_S: f64 = 86_400.0;
/// The job without a fault is run for so many days, which is enough for its steps to be alike.
const FAULTLESS_DAYS: f64 = 5.0;
/// Causes that are shown; the rest is one line.
const SHOWN: usize = 12;

/// Everything that is printed.
#[derive(Debug, Serialize)]
struct Found {
    nodes: u32,
    spares: u32,
    days: f64,
    seed: u64,
    /// Of the trace.
    faults: usize,
    faults_a_day: f64,
    most_at_once: usize,
    /// The job without a fault, for a few days.
    faultless: Summary,
    policies: Vec<Summary>,
    wall_s: f64,
    inputs_per_s: f64,
}

pub fn run(args: &TraceArgs, json: bool) -> Result<(), CliError> {
    let (trace, of_mix) = faults(args)?;
    if let Some(file) = &args.keep {
        keep(file, &trace)?;
    }
    let until = trace.last().as_secs_f64() / DAY_S + 1.0;
    let most = trace::LONGEST.as_secs_f64() / DAY_S;
    let days = args.days.or(of_mix).unwrap_or(until).min(most);
    let began = Instant::now();
    let runs = args.policies.len() as f64 * days + FAULTLESS_DAYS.min(days);
    let bar = super::bar(runs.ceil() as u64, "virtual days");
    let faultless = one(
        args,
        TracePolicy::Role,
        &Trace::default(),
        FAULTLESS_DAYS.min(days),
        &bar,
    )?;
    let mut policies = args.policies.clone();
    policies.dedup();
    // Each has a controller of its own, so they need not wait for each other.
    let summaries = std::thread::scope(|scope| {
        let run = |policy| {
            let (trace, bar) = (&trace, &bar);
            scope.spawn(move || one(args, policy, trace, days, bar))
        };
        let running: Vec<_> = policies.iter().copied().map(run).collect();
        let joined = running.into_iter().map(|thread| {
            let panicked = |_| {
                CliError::Failed(
                    "the controller panicked in the simulation: a bug; please report it with the command you ran"
                        .to_owned(),
                )
            };
            thread.join().map_err(panicked)?
        });
        joined.collect::<Result<Vec<_>, _>>()
    });
    bar.finish_and_clear();
    let (policies, wall_s) = (summaries?, began.elapsed().as_secs_f64());
    let inputs: u64 = policies.iter().map(|run| run.inputs).sum();
    let found = Found {
        nodes: args.nodes,
        spares: args.spares,
        days,
        seed: args.seed,
        faults: trace.faults().len(),
        faults_a_day: trace.faults().len() as f64 / days,
        most_at_once: most_at_once(&trace),
        faultless,
        policies,
        wall_s,
        inputs_per_s: inputs as f64 / wall_s.max(f64::EPSILON),
    };
    match json {
        true => put_json(&found)?,
        false => put(&text(&found, Paint::stdout()))?,
    }
    verdict(&found)
}

/// An invariant that broke, or a job that ended, is a failure.
fn verdict(found: &Found) -> Result<(), CliError> {
    for run in &found.policies {
        let (policy, day) = (run.policy, run.days);
        if let Some(broken) = &run.broken {
            let text = format!("policy {policy}: an invariant breaks on day {day:.2}: {broken}");
            return Err(CliError::Failed(text));
        }
        if let Some(ended) = &run.ended {
            let text = format!("policy {policy}: the job ended on day {day:.2}: {ended}");
            return Err(CliError::Failed(text));
        }
    }
    Ok(())
}

/// The faults, and the days that a table of causes is about.
fn faults(args: &TraceArgs) -> Result<(Trace, Option<f64>), CliError> {
    let usage = |file: &Path, e: &dyn std::fmt::Display| {
        CliError::Usage(format!("{}: {e}", file.display()))
    };
    if let Some(file) = &args.mix {
        let mix = Mix::from_toml(&text_of(file)?).map_err(|e| usage(file, &e))?;
        let days = args.days.unwrap_or(mix.days);
        let time = Duration::from_secs_f64(days * DAY_S);
        let trace = mix.draw(args.nodes + args.spares, time, args.seed);
        return Ok((trace, Some(days)));
    }
    let mapping = match &args.map {
        Some(file) => Mapping::from_toml(&text_of(file)?).map_err(|e| usage(file, &e))?,
        None => Mapping::default(),
    };
    let Some(file) = &args.file else {
        let text = "name a file of faults, or a table of causes with --mix".to_owned();
        return Err(CliError::Usage(text));
    };
    let trace = trace::read(&text_of(file)?, &mapping).map_err(|e| usage(file, &e))?;
    let machines = args.nodes + args.spares;
    let numbers = trace.number(machines, args.seed);
    numbers.map_err(|e| usage(file, &e))?;
    Ok((trace, None))
}

fn text_of(file: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(file)
        .map_err(|e| CliError::Usage(format!("{} cannot be read: {e}", file.display())))
}

/// Writes the faults down as `sim trace` reads them.
fn keep(file: &Path, trace: &Trace) -> Result<(), CliError> {
    let line = |fault: &trace::Fault| {
        serde_json::json!({
            "time": fault.at.as_secs_f64(), "node": fault.node, "class": fault.class.name(),
            "cause": fault.cause, "repair": fault.repair.map(|r| r.as_secs_f64()),
        })
    };
    let lines: String = trace
        .faults()
        .iter()
        .map(|f| format!("{}\n", line(f)))
        .collect();
    std::fs::write(file, lines)
        .map_err(|e| CliError::Failed(format!("{} cannot be written: {e}", file.display())))
}

fn one(
    args: &TraceArgs,
    policy: TracePolicy,
    trace: &Trace,
    days: f64,
    bar: &ProgressBar,
) -> Result<Summary, CliError> {
    let setup = Setup {
        nodes: args.nodes,
        spares: args.spares,
        policy: match policy {
            TracePolicy::Role => Policy::Role,
            TracePolicy::Task => Policy::Task,
        },
        repair: Duration::from_secs_f64(args.repair * 3600.0),
        seed: args.seed,
    };
    let run = setup.start(trace.clone());
    let mut run = run.map_err(|e| CliError::Usage(e.to_string()))?;
    for day in 1..=days.ceil() as u64 {
        run.run_until(Duration::from_secs_f64((day as f64).min(days) * DAY_S));
        bar.inc(1);
        if !run.goes_on() {
            break;
        }
    }
    Ok(run.summary())
}

/// Machines that fail within a minute.
fn most_at_once(trace: &Trace) -> usize {
    let faults = trace.faults();
    let mut first = 0;
    let of_a_minute = faults.iter().enumerate().map(|(last, fault)| {
        while fault.at - faults[first].at > Duration::from_secs(60) {
            first += 1;
        }
        last + 1 - first
    });
    of_a_minute.max().unwrap_or(0)
}

fn text(found: &Found, paint: Paint) -> String {
    let Found {
        nodes,
        spares,
        days,
        faults,
        ..
    } = found;
    let mut text = format!(
        "{nodes} nodes, {spares} spares, {days:.1} days: {faults} faults ({:.2} a day, at most {} within a minute)\n\n",
        found.faults_a_day, found.most_at_once
    );
    text += &policies(found).render(paint);
    text += "\nHours of the job that did not count, by the trace's causes (part of all):\n";
    text += &losses(found, |run| &run.lost_by_cause).render(paint);
    text += "\nThe same by what the ledger calls them:\n";
    text += &losses(found, |run| &run.lost_by_kind).render(paint);
    for run in &found.policies {
        let (policy, counted) = (run.policy, &run.faults);
        let _ = writeln!(
            text,
            "\n{policy}: {} faults met a machine of the job, {} a spare one, {} one that was away already; spares took a \
             place {} times; at most {} places were empty at once, {:.1} machine-hours in all",
            counted.of_the_job,
            counted.spare,
            counted.away,
            run.spares_used,
            run.most_missing,
            run.missing_h
        );
    }
    let checks: u64 = found.policies.iter().map(|run| run.checks).sum();
    let inputs: u64 = found.policies.iter().map(|run| run.inputs).sum();
    let held = match found.policies.iter().any(|run| run.broken.is_some()) {
        true => "an invariant broke",
        false => "the invariants held at each",
    };
    let _ = writeln!(
        text,
        "\n{inputs} inputs in {:.1} s ({:.0} a second): {held}; what is derived of the state was compared with a \
         fresh derivation {checks} times",
        found.wall_s, found.inputs_per_s
    );
    text
}

fn policies(found: &Found) -> Table {
    let mut table = Table::new(&[
        "POLICY",
        ">DAYS",
        ">STEPS",
        ">OF FAULTLESS",
        ">ETTR",
        ">GOODPUT",
        ">TASK",
        ">TRAINER",
        ">ROLLOUT",
        ">SPARES USED",
    ]);
    let a_day = found.faultless.steps as f64 / found.faultless.days;
    let all = found.policies.iter();
    for (name, run) in
        std::iter::once(("no fault", &found.faultless)).chain(all.map(|r| (r.policy, r)))
    {
        let restarts = run.restarts;
        table.row([
            name.to_owned(),
            format!("{:.1}", run.days),
            run.steps.to_string(),
            format!("{:.1}%", run.steps as f64 / run.days / a_day * 100.0),
            format!("{:.4}", run.ettr),
            format!("{:.4}", run.goodput),
            restarts.task.to_string(),
            restarts.trainer.to_string(),
            restarts.rollout.to_string(),
            run.spares_used.to_string(),
        ]);
    }
    table
}

/// A line for each cause, the largest of any policy first.
fn losses(found: &Found, of: impl Fn(&Summary) -> &Vec<trace::Loss>) -> Table {
    let hours = |run: &Summary, cause: &str| {
        let loss = of(run).iter().find(|loss| loss.cause == cause);
        loss.map_or(0.0, |loss| loss.hours)
    };
    let most = |cause: &str| {
        let each = found.policies.iter().map(|run| hours(run, cause));
        each.fold(0.0, f64::max)
    };
    let all = found
        .policies
        .iter()
        .flat_map(|run| of(run).iter().map(|l| l.cause.as_str()));
    let mut causes: Vec<&str> = all.collect();
    causes.sort_by(|a, b| most(b).total_cmp(&most(a)).then(a.cmp(b)));
    causes.dedup();
    let mut heads = vec!["CAUSE"];
    heads.extend(found.policies.iter().map(|run| match run.policy {
        "task" => ">TASK",
        _ => ">ROLE",
    }));
    let mut table = Table::new(&heads);
    let mut row = |name: String, sum: &dyn Fn(&Summary) -> f64| {
        let cell = |run: &Summary| {
            let hours = sum(run);
            format!("{hours:.2} ({:.2}%)", hours / (run.days * 24.0) * 100.0)
        };
        let cells = found.policies.iter().map(cell);
        table.row(std::iter::once(name).chain(cells));
    };
    let shown = causes.len().min(SHOWN);
    for cause in &causes[..shown] {
        row((*cause).to_owned(), &|run| hours(run, cause));
    }
    let rest = &causes[shown..];
    if !rest.is_empty() {
        row(format!("{} more", rest.len()), &|run| {
            rest.iter().map(|cause| hours(run, cause)).sum()
        });
    }
    table
}
