//! Kills the leader of a job that trains again and again, and writes how long the others took, what they lost, and how
//! long the job stood still: `make bench-ha`, `make soak-ha`.
//!
//! | figure | |
//! | --- | --- |
//! | `failover_s` | from the kill until another controller answers `robustctl status` as the leader |
//! | `next_commit_s` | from the kill until the next step is committed |
//! | `stall_of_training_s` | between the commits before and after a kill, beyond the median between two commits |
//! | `roles_restarted_elsewhere` | roles that a kill did not strike, and that do not run any more after it |
//! | `append_p99_ms` | what 99 of 100 appends take at most at 20,000 a second: `off` without `[ha]`, `on` with it, in turns; `rounds`: each |
//! | `turns_lost`, `double_consumed`, `disagreements` | what the store that is left lacks of what was answered ([`robust_tests::History`]) |
//!
//! The programs are those in $ROBUST_PROGRAMS; a failover's stages are in the logs, which `--logs DIR` keeps.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::signal::Signal;
use robust_etcd::{Cluster, Wire};
use robust_tests::{Controllers, Trial, bin, now_us};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Steps between a failover and the next kill.
const STEPS_BETWEEN: u64 = 3;
/// Rounds of appends without `[ha]` and with it, of 80,000 each.
const APPEND_ROUNDS: &str = "5";

/// Kills leaders and measures.
#[derive(Parser)]
struct Args {
    /// So many times the leader's process is killed.
    #[arg(long, default_value_t = 100)]
    deaths: usize,
    /// So many times the leader's whole machine is killed: controller, member of etcd, node and roles.
    #[arg(long, default_value_t = 20)]
    machines: usize,
    /// Where the figures go.
    #[arg(long)]
    out: PathBuf,
    /// Keep the logs of all daemons there.
    #[arg(long)]
    logs: Option<PathBuf>,
}

fn main() {
    let args = Args::parse();
    let mut figures = json!({"cores": std::thread::available_parallelism().map_or(0, usize::from)});
    let mut agreed = true;
    for (name, kind, count) in [
        ("process", Kind::Process, args.deaths),
        ("machine", Kind::Machine, args.machines),
    ] {
        if count == 0 {
            continue;
        }
        let Some(measured) = measure(kind, count, args.logs.as_deref()) else {
            eprintln!("the deaths of a {name} cannot be measured here");
            continue;
        };
        agreed &= measured["disagreements"] == json!([]);
        figures[name] = measured;
        let text = serde_json::to_string_pretty(&figures).unwrap();
        std::fs::write(&args.out, text).expect("the figures are written");
    }
    match appends() {
        Some(measured) => figures["append_p99_ms"] = measured,
        None => eprintln!("what appends cost cannot be measured here"),
    }
    let text = serde_json::to_string_pretty(&figures).unwrap();
    std::fs::write(&args.out, &text).expect("the figures are written");
    println!("{text}");
    assert!(agreed, "what is left lacks something that was answered");
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Process,
    Machine,
}

/// What one death brought.
struct Death {
    at_us: u64,
    failover_us: u64,
    restarted: usize,
}

fn measure(kind: Kind, count: usize, logs: Option<&Path>) -> Option<Value> {
    let mut trial = match kind {
        Kind::Process => Trial::start()?,
        Kind::Machine => Trial::on_machines()?,
    };
    let load_before = load();
    let bar = ProgressBar::new(u64::try_from(count).unwrap());
    bar.set_style(ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}").unwrap());
    let mut deaths = Vec::new();
    for _ in 0..count {
        let death = die(kind, &mut trial);
        let took = seconds(death.failover_us);
        deaths.push(death);
        bar.set_message(format!("failover in {took:.2} s"));
        bar.inc(1);
        if bar.is_hidden() && deaths.len().is_multiple_of(10) {
            eprintln!(
                "{} of {count} deaths, failover in {took:.2} s",
                deaths.len()
            );
        }
    }
    bar.finish_and_clear();
    let load_after = load();
    let (left, all) = trial.end();
    if let Some(folder) = logs {
        all.keep_logs(folder);
    }
    let (found, commits) = (left.disagreement, left.commits_us);
    let step_us = median_between(&commits);
    let gaps = deaths.iter().map(|death| around(&commits, death.at_us));
    let (stalls, next): (Vec<_>, Vec<_>) = gaps
        .map(|(before, after, at)| (after.saturating_sub(before + step_us), after - at))
        .unzip();
    let (statuses, trajectories, requests) = left.compared;
    Some(json!({
        "deaths": count,
        "failover_s": spread(deaths.iter().map(|d| d.failover_us).collect()),
        "next_commit_s": spread(next),
        "stall_of_training_s": spread(stalls),
        "roles_restarted_elsewhere": deaths.iter().map(|d| d.restarted).sum::<usize>(),
        "turns_lost": found.turns_lost,
        "double_consumed": found.double_consumed,
        "disagreements": found.all,
        "compared": {"statuses": statuses, "trajectories": trajectories, "requests_done": requests},
        "steps": commits.len(),
        "step_s": seconds(step_us),
        "load_before": load_before,
        "load_after": load_after,
    }))
}

/// Appends without `[ha]` and with it, beside three members of etcd and a log in a folder.
fn appends() -> Option<Value> {
    let etcd = Cluster::start(3, Wire::Plain)?;
    let folder = tempfile::tempdir().expect("a folder for the log");
    let measured = Command::new(bin("robust-bench"))
        .args([
            "store",
            "--json",
            "--only",
            "appends",
            "--rounds",
            APPEND_ROUNDS,
        ])
        .arg("--ha-log")
        .arg(format!("file://{}", folder.path().join("log").display()))
        .args(["--ha-etcd", &etcd.endpoints().join(",")])
        .stderr(Stdio::inherit())
        .output()
        .expect("robust-bench runs");
    let report: Value = serde_json::from_slice(&measured.stdout).expect("it prints JSON");
    let (off, on) = (&report["append_p99_ms"], &report["append_p99_with_ha_ms"]);
    assert!(on["median"].is_number(), "{report:#}");
    Some(json!({
        "off": off["median"],
        "on": on["median"],
        "rounds": {"off": off["all"], "on": on["all"]},
        "load": on["load"],
    }))
}

/// The leader dies, another one goes on, and what died is started again and follows.
fn die(kind: Kind, trial: &mut Trial) -> Death {
    let (leader, epoch, step) = trial.leader();
    let before = pids(kind, &trial.all, leader);
    let at_us = now_us();
    match kind {
        Kind::Process => trial.all.signal(leader, Signal::SIGKILL),
        Kind::Machine => trial.all.kill_machine(leader),
    }
    let shown = trial.another_leads(epoch, at_us);
    match kind {
        Kind::Process => trial.all.launch(leader),
        Kind::Machine => trial.all.boot(leader),
    }
    trial.goes_on_from(shown.step.max(step), STEPS_BETWEEN);
    let after = pids(kind, &trial.all, leader);
    Death {
        at_us,
        failover_us: shown.answer.answered_us - at_us,
        restarted: before.difference(&after).count(),
    }
}

/// The roles that the death of this leader does not strike.
fn pids(kind: Kind, all: &Controllers, leader: usize) -> BTreeSet<i32> {
    let roles = match kind {
        Kind::Process => all.roles(),
        Kind::Machine => all.roles_elsewhere(leader),
    };
    roles.into_iter().map(|(pid, _)| pid).collect()
}

/// The last commit before an instant, the first one after it, and the instant.
fn around(commits: &[u64], at: u64) -> (u64, u64, u64) {
    let next = commits.partition_point(|commit| *commit < at);
    (commits[next - 1], commits[next], at)
}

fn median_between(commits: &[u64]) -> u64 {
    let mut between: Vec<u64> = commits.windows(2).map(|pair| pair[1] - pair[0]).collect();
    between.sort_unstable();
    between[between.len() / 2]
}

fn spread(mut us: Vec<u64>) -> Value {
    us.sort_unstable();
    let at = |part: usize| seconds(us[(us.len() * part / 100).min(us.len() - 1)]);
    let all: Vec<f64> = us.iter().map(|us| seconds(*us)).collect();
    json!({"median": at(50), "p90": at(90), "max": at(100), "min": at(0), "all": all})
}

/// To the millisecond.
fn seconds(us: u64) -> f64 {
    f64::from(u32::try_from(us / 1000).unwrap_or(u32::MAX)) / 1000.0
}

fn load() -> Value {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let parts = text.split_whitespace().take(3);
    parts
        .map(|part| part.parse::<f64>().unwrap_or(0.0))
        .collect()
}
