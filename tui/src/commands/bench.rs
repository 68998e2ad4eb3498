//! `robustctl bench`: measurements on this machine, beside what else can do the same.
pub mod hosting;
pub mod state;

use super::sim::weights;
use super::{put, put_json};
use crate::cli::{BenchStoreArgs, BenchWeightsArgs, WeightsArgs};
use crate::error::CliError;
use crate::paint::Paint;
use crate::table::Table;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a figure should be.
#[derive(Clone, Copy)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// A figure's name and its goal.
type Named = (&'static str, Goal);

/// Figures of `bench weights` with a goal, in the order they are shown.
const WEIGHTS: [Named; 11] = [
    ("pull_over_perftest", Goal::AtLeast(0.85)),
    ("pull_over_perftest_nodigest", Goal::AtLeast(0.85)),
    ("relay8_over_1", Goal::AtMost(1.3)),
    ("source_copies", Goal::AtMost(1.1)),
    ("gloo_ratio_2", Goal::AtLeast(1.0)),
    ("gloo_ratio_4", Goal::AtLeast(1.0)),
    ("refetched_chunks", Goal::AtMost(1.0)),
    ("resume_ms", Goal::AtMost(500.0)),
    ("idle_cpu_percent", Goal::AtMost(1.0)),
    ("sim_1", Goal::AtMost(1.15)),
    ("sim_256", Goal::AtMost(1.5)),
];

/// Figures of `bench store` with a goal, in the order they are shown.
const STORE: [Named; 11] = [
    ("snapshot_over_memcpy", Goal::AtMost(1.15)),
    ("restore_over_memcpy", Goal::AtMost(1.25)),
    ("persist_over_plain", Goal::AtLeast(0.85)),
    ("disk_restore_over_plain", Goal::AtLeast(0.85)),
    ("persist_rss_mib", Goal::AtMost(64.0)),
    ("disk_over_kept", Goal::AtMost(1.05)),
    ("appends_per_s", Goal::AtLeast(20_000.0)),
    ("append_p99_ms", Goal::AtMost(25.0)),
    ("reopen_s", Goal::AtMost(2.0)),
    ("crash_points", Goal::AtLeast(200.0)),
    ("lost", Goal::AtMost(0.0)),
];

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Goal::AtLeast(goal) => value >= goal,
            Goal::AtMost(goal) => value <= goal,
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtLeast(goal) => format!(">= {goal}"),
            Goal::AtMost(goal) => format!("<= {goal}"),
        }
    }
}

/// Measures transfers of weights between real processes, and the curve of the simulator.
pub fn weights(args: &BenchWeightsArgs, json: bool) -> Result<(), CliError> {
    let rounds = args.rounds.to_string();
    let mut all = measured("robust-weights", &["bench", "--json", "--rounds", &rounds])?;
    let simulated = weights::find(&WeightsArgs {
        rollouts: vec![1, 2, 4, 8, 16, 32, 64, 128, 256],
        chunk_mib: args.sim_chunk_mib,
    })?;
    let load = all.get("idle_cpu_percent").and_then(|f| f.get("load"));
    let load = load.cloned().unwrap_or(Value::Null);
    // In virtual time: the same in every run.
    let figure = |v: f64| json!({"median": v, "min": v, "max": v, "all": [v], "load": load});
    let both = [("sim_1", simulated.sim_1), ("sim_256", simulated.sim_256)].map(|(key, value)| {
        let value = value.map(figure);
        (key.to_owned(), value.unwrap_or(Value::Null))
    });
    all.extend(both);
    all.insert("sim".to_owned(), json!(simulated));
    report(&all, &WEIGHTS, args.out.as_deref(), json)
}

/// Measures what durable state costs.
pub fn store(args: &BenchStoreArgs, json: bool) -> Result<(), CliError> {
    let mut words = vec!["bench-store".to_owned()];
    words.extend(["--rounds".to_owned(), args.rounds.to_string()]);
    words.extend(["--mib".to_owned(), args.mib.to_string()]);
    if let Some(dir) = &args.dir {
        words.extend(["--dir".to_owned(), dir.display().to_string()]);
    }
    if !args.only.is_empty() {
        words.extend(["--only".to_owned(), args.only.join(",")]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let all = measured("robustd", &words)?;
    report(&all, &STORE, args.out.as_deref(), json)
}

fn report(
    all: &Map<String, Value>,
    goals: &[Named],
    out: Option<&Path>,
    json: bool,
) -> Result<(), CliError> {
    if let Some(path) = out {
        let text = serde_json::to_vec_pretty(all)
            .map_err(|e| CliError::Protocol(format!("the report is no JSON: {e}")))?;
        std::fs::write(path, text)
            .map_err(|e| CliError::Failed(format!("{} cannot be written: {e}", path.display())))?;
    }
    match json {
        true => put_json(all),
        false => put(&text(all, goals)),
    }
}

/// What a program beside this one found; it says on stderr what it does.
fn measured(program: &str, words: &[&str]) -> Result<Map<String, Value>, CliError> {
    let path = beside(program)?;
    let ran = Command::new(&path)
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| CliError::Usage(format!("{} cannot be run: {e}", path.display())))?;
    if !ran.status.success() {
        return Err(CliError::Failed(format!("{program}: {}", ran.status)));
    }
    serde_json::from_slice(&ran.stdout)
        .map_err(|e| CliError::Protocol(format!("{program} printed no JSON: {e}")))
}

fn beside(program: &str) -> Result<PathBuf, CliError> {
    let own = std::env::current_exe().unwrap_or_default();
    let path = own.with_file_name(program);
    match path.is_file() {
        true => Ok(path),
        false => Err(CliError::Usage(format!(
            "{} is not there; build it with `make build`",
            path.display()
        ))),
    }
}

fn text(all: &Map<String, Value>, goals: &[Named]) -> String {
    let mut table = Table::new(&["FIGURE", ">MEDIAN", ">MIN", ">MAX", ">LOAD", "GOAL", "MET"]);
    let number = |figure: &Value, key: &str| match figure[key].as_f64() {
        Some(value) => format!("{value:.3}"),
        None => "-".to_owned(),
    };
    let mut row = |name: &str, figure: &Value, goal: Option<Goal>| {
        let median = figure["median"].as_f64();
        let met = match (goal, median) {
            (Some(goal), Some(value)) if goal.is_met(value) => "yes",
            (Some(_), Some(_)) => "no",
            _ => "-",
        };
        table.row([
            name.to_owned(),
            number(figure, "median"),
            number(figure, "min"),
            number(figure, "max"),
            figure["load"]
                .as_f64()
                .map_or("-".to_owned(), |l| format!("{l:.1}")),
            goal.map_or_else(|| "-".to_owned(), Goal::text),
            met.to_owned(),
        ]);
    };
    for (name, goal) in goals {
        row(name, all.get(*name).unwrap_or(&Value::Null), Some(*goal));
    }
    let is_goal = |name: &str| goals.iter().any(|(goal, _)| *goal == name);
    for (name, figure) in all {
        if figure.get("median").is_some() && !is_goal(name) {
            row(name, figure, None);
        }
    }
    let mut text = table.render(Paint::stdout());
    for line in all
        .get("skipped")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        text += &format!("{}\n", line.as_str().unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_which_goals_are_met_and_what_was_skipped() {
        let all = json!({
            "source_copies": {"median": 1.0, "min": 1.0, "max": 1.0, "load": 2.0},
            "relay8_over_1": {"median": 1.4, "min": 1.2, "max": 1.9, "load": 2.0},
            "tcp_gb_per_s": {"median": 2.25, "min": 2.0, "max": 3.0, "load": 2.0},
            "skipped": ["gloo skipped: no torch"],
        });
        let text = text(all.as_object().map_or(&Map::new(), |all| all), &WEIGHTS);
        let words = |name: &str| -> Vec<&str> {
            let line = text.lines().find(|l| l.starts_with(name));
            line.unwrap_or_default().split_whitespace().collect()
        };
        assert!(
            words("source_copies").ends_with(&["<=", "1.1", "yes"]),
            "{text}"
        );
        assert!(
            words("relay8_over_1").ends_with(&["<=", "1.3", "no"]),
            "{text}"
        );
        assert!(words("gloo_ratio_2").ends_with(&[">=", "1", "-"]), "{text}");
        assert!(words("tcp_gb_per_s").contains(&"2.250"), "{text}");
        assert!(text.ends_with("gloo skipped: no torch\n"), "{text}");
    }
}
