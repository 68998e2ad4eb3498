//! One leader and as many nodes as are asked for, light ones that speak the protocol over real connections: what the leader
//! costs, and how fast it answers: `make bench-load`.
//!
//! | figure | |
//! | --- | --- |
//! | `verdict_ms` | from an instance's end, as its node tells of it, until a node is ordered to start it again |
//! | `loop_ms` | from an agent's request for a rollout to the answer: it waits in the queue in which beats wait |
//! | `append_ms` | from a turn that an agent stores to the leader's acknowledgement, which it gives once it is durable |
//! | `leader_cores` | processor time of the leader a second |
//! | `leader_us_per_node_s` | the same for each node, in microseconds |
//! | `waited_of_1000` | requests for a rollout that took longer than the quarter of a second between two beats |
//! | `bench_cores`, `bench_late_ms` | what the nodes themselves took, and what they were late: they share the machine |
//!
//! The programs are those in $ROBUST_PROGRAMS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use robust_tests::load::{Fleet, Shape, Used};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long nodes may take to join, all together.
const PATIENCE: Duration = Duration::from_secs(600);
/// After the last node joined, before anything is measured.
const SETTLING: Duration = Duration::from_secs(5);
/// How long the last ends may wait for their verdict.
const LAST: Duration = Duration::from_secs(20);

/// Measures a leader with many nodes.
#[derive(Parser)]
struct Args {
    /// Numbers of nodes, one after the other.
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000")]
    nodes: Vec<u32>,
    /// Instances on each node.
    #[arg(long, default_value_t = 8)]
    instances: u32,
    /// So long is measured.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Turns that the agents of a node store a second.
    #[arg(long, default_value_t = 20.0)]
    turns_per_s: f64,
    /// Instances that end by themselves a second, of all together.
    #[arg(long, default_value_t = 5.0)]
    ends_per_s: f64,
    /// Where the figures go.
    #[arg(long)]
    out: PathBuf,
    /// Keep what the leader logged there.
    #[arg(long)]
    logs: Option<PathBuf>,
}

fn main() {
    let args = Args::parse();
    // A node has a connection, with an end here and one at the leader.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("as many files as may be");
    let mut figures = json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "runs": [],
    });
    println!("{HEAD}");
    for nodes in &args.nodes {
        let shape = Shape {
            turns_per_s: args.turns_per_s,
            ..Shape::of(*nodes, args.instances)
        };
        let run = measure(shape, &args);
        println!("{}", row(&run));
        figures["runs"].as_array_mut().unwrap().push(run);
        let text = serde_json::to_string_pretty(&figures).unwrap();
        std::fs::write(&args.out, text).expect("the figures are written");
    }
}

fn measure(shape: Shape, args: &Args) -> Value {
    let load_before = load();
    let began = Instant::now();
    let all = u64::from(shape.all());
    let bar = ProgressBar::new(all);
    bar.set_style(ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}").unwrap());
    bar.set_message(format!("{} nodes join", shape.nodes));
    let mut fleet = Fleet::start(shape);
    let mut told = Instant::now();
    fleet.until_it_works(PATIENCE, |ledger| {
        bar.set_position(ledger.linked.load(Ordering::Relaxed));
        if bar.is_hidden() && told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            eprintln!("{ledger:?}");
        }
    });
    let joined_s = began.elapsed().as_secs_f64();
    bar.finish_and_clear();
    std::thread::sleep(SETTLING);
    let (before, counted) = (used(&fleet), counts(&fleet));
    fleet.ledger().measure(true);
    let measured = Instant::now();
    strike_for(
        &mut fleet,
        Duration::from_secs(args.seconds),
        args.ends_per_s,
    );
    let seconds = measured.elapsed().as_secs_f64();
    let (after, done) = (used(&fleet), counts(&fleet));
    let waited = Instant::now();
    while !fleet.ledger().unanswered().is_empty() && waited.elapsed() < LAST {
        std::thread::sleep(Duration::from_millis(10));
    }
    fleet.ledger().measure(false);
    if let Some(folder) = &args.logs {
        fleet.keep_logs(folder);
    }
    let rate = |at: usize| round((done[at] - counted[at]) as f64 / seconds);
    let cores = |at: usize| (after[at].cpu_s - before[at].cpu_s) / seconds;
    let ledger = fleet.ledger();
    let routes = ledger.routes.take();
    let late = routes.iter().filter(|us| **us > 250_000).count();
    let late = 1000.0 * late as f64 / routes.len().max(1) as f64;
    json!({
        "nodes": shape.nodes,
        "instances": shape.all(),
        "seconds": round(seconds),
        "joined_s": round(joined_s),
        "verdict_ms": spread(&ledger.verdicts.take()),
        "unanswered": ledger.unanswered(),
        "loop_ms": spread(&routes),
        "waited_of_1000": round(late),
        "append_ms": spread(&ledger.turns.take()),
        "appends_per_s": rate(0),
        "conversations_per_s": rate(1),
        "steps": done[2] - counted[2],
        "pulls": done[3] - counted[3],
        "nodes_let_go": ledger.let_go.load(Ordering::Relaxed),
        "calls_refused": ledger.refused.load(Ordering::Relaxed),
        "last_refusal": ledger.why.lock().unwrap().clone(),
        "leader_cores": round(cores(0)),
        "leader_us_per_node_s": round(1e6 * cores(0) / f64::from(shape.nodes)),
        "leader_rss_mib": round(after[0].rss_mib),
        "leader_peak_mib": round(after[0].peak_mib),
        "bench_cores": round(cores(1)),
        "bench_late_ms": spread(&ledger.late.take()),
        "load_before": load_before,
        "load_after": load(),
    })
}

/// Of the leader, and of this process.
fn used(fleet: &Fleet) -> [Used; 2] {
    let own = Used::by(std::process::id()).expect("this process is in /proc");
    [fleet.leader_used(), own]
}

fn counts(fleet: &Fleet) -> [u64; 4] {
    let ledger = fleet.ledger();
    let all = [
        &ledger.appends,
        &ledger.finished,
        &ledger.steps,
        &ledger.pulls,
    ];
    all.map(|count| count.load(Ordering::Relaxed))
}

/// Instances end by themselves, one after the other.
fn strike_for(fleet: &mut Fleet, lasts: Duration, per_s: f64) {
    let begun = Instant::now();
    let bar = ProgressBar::new(lasts.as_secs());
    bar.set_style(ProgressStyle::with_template("measuring {wide_bar} {pos}/{len} s").unwrap());
    for number in 1.. {
        let due = begun + Duration::from_secs_f64(f64::from(number) / per_s);
        if due > begun + lasts {
            break;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        fleet.strike();
        bar.set_position(begun.elapsed().as_secs());
    }
    std::thread::sleep((begun + lasts).saturating_duration_since(Instant::now()));
    bar.finish_and_clear();
}

/// In milliseconds, of waits in microseconds that are in order.
fn spread(us: &[u32]) -> Value {
    let at = |part: usize| {
        let at = (us.len() * part / 100).min(us.len().saturating_sub(1));
        us.get(at).map(|us| round(f64::from(*us) / 1000.0))
    };
    json!({"count": us.len(), "p50": at(50), "p99": at(99), "max": at(100)})
}

fn round(figure: f64) -> f64 {
    (figure * 1000.0).round() / 1000.0
}

const HEAD: &str = "nodes  joined  verdict p50/p99 ms     loop p50/p99 ms   appends/s  p50/p99 ms        \
                    leader cores  us/node  RSS MiB  bench cores";

fn row(run: &Value) -> String {
    let figure = |key: &str| run[key].as_f64().unwrap_or(0.0);
    let both = |key: &str| {
        let at = |part: &str| run[key][part].as_f64().unwrap_or(f64::NAN);
        format!("{:8.1}/{:<9.1}", at("p50"), at("p99"))
    };
    format!(
        "{:5.0} {:6.1}s  {}  {}  {:8.0}  {}  {:8.2}  {:9.0}  {:7.0}  {:8.2}",
        figure("nodes"),
        figure("joined_s"),
        both("verdict_ms"),
        both("loop_ms"),
        figure("appends_per_s"),
        both("append_ms"),
        figure("leader_cores"),
        figure("leader_us_per_node_s"),
        figure("leader_rss_mib"),
        figure("bench_cores"),
    )
}

fn load() -> Value {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let parts = text.split_whitespace().take(3);
    parts
        .map(|part| part.parse::<f64>().unwrap_or(0.0))
        .collect()
}
