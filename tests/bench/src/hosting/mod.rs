//! `robust-bench hosting`: engines of the user's, really killed and stopped under a job that trains.
//!
//! ```text
//!  job file ─► robustd in a folder of its own ─► every rollout admitted ─► processor times watched
//!     ─► SIGKILL to one process of an engine's tree ─► incident ─► recovered ─► a step committed ─┐
//!     ▲                                                                                           │
//!     └──────────── so many kills, then so many SIGSTOPs to all of a tree ◄───────────────────────┘
//!  ─► store checked, logs of the shims read ─► figures
//! ```
//! The signals are sent from here and not by `inject`: what is measured is what a kill by nobody's order
//! comes to, by the clock of the one who killed.

mod exits;
mod figures;
mod processes;
mod scene;

use crate::goals::{Goal, Named, show};
use crate::machine::loads;
use crate::programs;
use figures::{Blow, figure, times_of_loads};
use robust_shared::job::Job;
use robustctl::measuring::{CliError, OwnJob, seconds, unless_interrupted};
use scene::{Aim, Scene};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use toml::{Table, Value as Toml};

/// The job runs until its engines were struck often enough.
const STEPS: i64 = 1_000_000;
/// The least that the shim waits for a load of an engine that may stand still.
const IN_LOAD_S: f64 = 10.0;
/// Nothing is found before its window is over, and not in the same moment either.
const SLACK: f64 = 1.1;
/// What an argument of the job file calls the tests' engine.
const FAKE: &str = "{env:FAKE_ENGINE}";

/// Whose engines are struck, and how often.
#[derive(Debug, clap::Args)]
pub struct HostingArgs {
    /// Real engines, of `scripts/engines.sh`, which ENGINES names [default: the tests' engine, beside this]
    #[arg(long, value_name = "NAME", value_parser = ["vllm", "sglang"])]
    engines: Option<String>,
    /// The job with a [rollout.command] [default: fixtures/jobs/engines-fake.toml or demo-NAME.toml]
    #[arg(long, value_name = "FILE")]
    job: Option<PathBuf>,
    /// Kills of a child or of the leader
    #[arg(long, value_name = "N", default_value_t = 10)]
    kills: u32,
    /// Stops of all processes of an engine
    #[arg(long, value_name = "N", default_value_t = 2)]
    stops: u32,
    /// Decides whose engine is struck, and what of it
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long processor times are watched before the first kill
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds)]
    watch: f64,
    /// Leave the job's folder
    #[arg(long)]
    keep: bool,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Measures what it costs to host engines.
pub async fn run(args: &HostingArgs, json: bool) -> Result<(), CliError> {
    let job = HostedJob::read(args)?;
    let (all, window) = unless_interrupted(measure(args, &job)).await?;
    let goals = goals(args, window);
    show(&all, &goals, args.out.as_deref(), json)
}

/// What the figures should be; a stopped engine is found within what its rules allow.
fn goals(args: &HostingArgs, window_ms: f64) -> [Named; 6] {
    [
        ("engine_role_restarts", Goal::AtLeast(f64::from(args.kills))),
        ("engine_exit_seen_ms", Goal::AtMost(100.0)),
        ("engine_stuck_detect_ms", Goal::AtMost(window_ms * SLACK)),
        ("shim_cpu_percent", Goal::AtMost(2.0)),
        ("turns_lost", Goal::AtMost(0.0)),
        ("double_consumed", Goal::AtMost(0.0)),
    ]
}

async fn measure(
    args: &HostingArgs,
    job: &HostedJob,
) -> Result<(Map<String, Value>, f64), CliError> {
    eprintln!("hosting: {}, seed {}", job.path.display(), args.seed);
    let before = loads();
    let own = OwnJob::start(&programs::folder()?, &job.text, args.keep).await?;
    let mut scene = Scene::of(own);
    let usage = scene.usage(args.watch).await?;
    let mut kills = Vec::new();
    for n in 0..args.kills {
        kills.push(strike(&mut scene, Aim::drawn(args.seed, n), n).await?);
    }
    let mut stops = Vec::new();
    for n in 0..args.stops {
        let aim = Aim::all_of(args.seed, args.kills + n);
        stops.push(strike(&mut scene, aim, args.kills + n).await?);
    }
    let lost = scene.lost().await?;
    let of_versions = times_of_loads(&scene.logs());
    scene.end().await?;
    let window_ms = job.stuck_window_ms;
    let mut all = figures::all(&kills, &stops, &usage, &lost);
    all.extend(figures::loads(&job.kind, &of_versions));
    all.insert("engine_stuck_window_ms".into(), figure(&[window_ms]));
    let about = json!({
        "job": job.path, "engine": job.kind, "seed": args.seed, "blows": blows(&kills, &stops),
        "load_before": before, "load_after": loads(), "optimised": !cfg!(debug_assertions),
        "skipped": job.skipped,
    });
    all.extend(about.as_object().cloned().unwrap_or_default());
    Ok((all, window_ms))
}

async fn strike(scene: &mut Scene, aim: Aim, n: u32) -> Result<Blow, CliError> {
    let blow = scene.strike(aim).await?;
    eprintln!("  {:>2}  {}", n + 1, blow.text());
    Ok(blow)
}

fn blows(kills: &[Blow], stops: &[Blow]) -> Vec<Value> {
    kills.iter().chain(stops).map(Blow::json).collect()
}

/// The job whose engines are struck.
struct HostedJob {
    path: PathBuf,
    /// As the daemon gets it: paths absolute, no end near.
    text: String,
    /// `vllm`, `sglang`.
    kind: String,
    /// How long an engine that stands still may go unseen.
    stuck_window_ms: f64,
    /// What is not measured, or means nothing with this engine.
    skipped: Vec<&'static str>,
}

impl HostedJob {
    fn read(args: &HostingArgs) -> Result<Self, CliError> {
        let name = match (&args.job, args.engines.as_deref()) {
            (Some(path), _) => path.clone(),
            (None, Some(engine)) => format!("fixtures/jobs/demo-{engine}.toml").into(),
            (None, None) => "fixtures/jobs/engines-fake.toml".into(),
        };
        let unreadable = |why: String| CliError::Usage(format!("{}: {why}", name.display()));
        let path = std::path::absolute(&name).map_err(|e| unreadable(e.to_string()))?;
        let text = std::fs::read_to_string(&path).map_err(|e| unreadable(e.to_string()))?;
        let mut job = Job::parse(&text, &path).map_err(|e| CliError::Usage(e.to_string()))?;
        job.resolve(path.parent().unwrap_or(Path::new("/")));
        if job.rollout.command.is_none() {
            let why = "it has no [rollout.command], hence no engine to strike";
            return Err(unreadable(why.to_owned()));
        }
        let mut table: Table = text.parse().unwrap_or_default();
        for (section, key, path) in [
            ("data", "prompts", Some(&job.data.prompts)),
            ("data", "tokenizer", Some(&job.data.tokenizer)),
            ("model", "path", job.model.path.as_ref()),
        ] {
            if let Some(path) = path {
                put(
                    &mut table,
                    section,
                    key,
                    path.to_string_lossy().into_owned().into(),
                );
            }
        }
        put(&mut table, "job", "steps", STEPS.into());
        name_fake_engine(&mut table)?;
        let kind = at(&table, &["rollout", "command", "kind"]).and_then(Toml::as_str);
        Ok(Self {
            path,
            kind: kind.unwrap_or_default().to_owned(),
            text: table.to_string(),
            stuck_window_ms: stuck_window_ms(&table),
            skipped: skipped(args),
        })
    }
}

/// What an engine that stands still is allowed: by the rule `rollout silent` no token for a window, then a
/// probe that is not answered; by the shim five times its longest load, which is not known here.
fn stuck_window_ms(table: &Table) -> f64 {
    let seconds = |key: &str, default: f64| {
        let value = at(table, &["detect", "rollout_silent", key]);
        let whole = |value: &Toml| value.as_integer().map(|n| n as f64);
        value
            .and_then(|value| value.as_float().or(whole(value)))
            .unwrap_or(default)
    };
    let silent = seconds("window_s", 60.0) + seconds("probe_timeout_s", 5.0);
    silent.max(IN_LOAD_S) * 1e3
}

fn at<'a>(table: &'a Table, keys: &[&str]) -> Option<&'a Toml> {
    let (first, rest) = keys.split_first()?;
    rest.iter()
        .try_fold(table.get(*first)?, |value, key| value.get(*key))
}

fn put(table: &mut Table, section: &str, key: &str, value: Toml) {
    let section = table.entry(section).or_insert_with(|| Table::new().into());
    if let Some(section) = section.as_table_mut() {
        section.insert(key.to_owned(), value);
    }
}

/// Where nobody says otherwise the tests' engine is the one beside this program.
fn name_fake_engine(table: &mut Table) -> Result<(), CliError> {
    let command = table.get_mut("rollout").and_then(|r| r.get_mut("command"));
    let argv = command.and_then(|c| c.get_mut("argv"));
    for word in argv.and_then(Toml::as_array_mut).into_iter().flatten() {
        if word.as_str() == Some(FAKE) && std::env::var_os("FAKE_ENGINE").is_none() {
            let path = programs::path("fake-engine")?;
            *word = path.to_string_lossy().into_owned().into();
        }
    }
    Ok(())
}

fn skipped(args: &HostingArgs) -> Vec<&'static str> {
    let direct = "tokens_per_s: through the shim only; beside straight to the engine: the benchmark \
                  of robust-shim";
    let idle = "shim_cpu_percent means nothing with the tests' engine, which computes no tokens";
    let real = args.engines.is_some() || args.job.is_some();
    match real {
        true => vec![direct],
        false => vec![direct, idle],
    }
}
