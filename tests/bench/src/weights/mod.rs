//! `robust-bench weights`: transfers of weights between processes, with what else can move bytes beside them, and the
//! curve of the simulator.
//!
//! Sources and pullers are processes of the program `robust-weights`, which end with this one. Rounds of what is compared
//! alternate, so that they see about the same load.
mod copies;
mod cores;
mod deltas;
mod gloo;
mod netns;
mod node;
mod pair;
mod recovery;
mod relays;
mod same_host;
mod simulated;
mod tls;
mod way;

use crate::goals::{Goal, Named, show};
use crate::programs;
use crate::report::Report;
use robustctl::measuring::CliError;
use serde_json::json;
use std::path::PathBuf;

pub use copies::{TcpSourceArgs, tcp_source};

/// What is measured, and where it goes.
#[derive(Debug, clap::Args)]
pub struct WeightsArgs {
    /// Rounds of each measurement; medians are shown
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Size of a version between two processes
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pair_mib: u64,
    /// Size of a version along relays
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    relay_mib: u64,
    /// Rate of the shaped links, as `tc` takes it
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    rate: String,
    /// Size of a chunk in the simulated network
    #[arg(long, value_name = "MIB", default_value_t = 8)]
    sim_chunk_mib: u64,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    #[arg(value_parser = ["pair", "same_host", "tls", "loopback", "links", "deltas", "recovery", "cut", "idle", "sim"])]
    only: Vec<String>,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl WeightsArgs {
    fn has(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

/// Figures with a goal, in the order they are shown.
const GOALS: [Named; 11] = [
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

/// One part: its name, and what it does.
type Part = (
    &'static str,
    fn(&WeightsArgs, &mut Report) -> anyhow::Result<()>,
);

const PARTS: [Part; 9] = [
    ("pair", pair::measure),
    ("same_host", same_host::measure),
    ("tls", tls::measure),
    ("loopback", relays::loopback),
    ("links", relays::links),
    ("deltas", deltas::measure),
    ("recovery", recovery::measure),
    ("cut", recovery::cut),
    ("idle", recovery::idle),
];

/// Measures all parts; one that fails is left out, with the reason in the report.
pub fn run(args: &WeightsArgs, json: bool) -> Result<(), CliError> {
    // Without these every part would fail, each with the same reason.
    programs::path("robust-weights")?;
    let mut report = Report::begin();
    for (name, measure) in PARTS {
        if !args.has(name) {
            continue;
        }
        report.say(&format!("{name} ..."));
        if let Err(error) = measure(args, &mut report) {
            report.skip(name, format!("{error:#}"));
        }
    }
    let settings = json!({"rounds": args.rounds, "pair_mib": args.pair_mib, "relay_mib": args.relay_mib,
        "rate": args.rate, "cores": std::thread::available_parallelism().ok().map(usize::from)});
    let mut all = report.json(settings);
    if args.has("sim") {
        simulated::add(args.sim_chunk_mib, &mut all)?;
    }
    show(&all, &GOALS, args.out.as_deref(), json)
}
