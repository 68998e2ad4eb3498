//! `robust-bench store`: what durable state costs on this machine, with what the machine can do at best beside it.
//!
//! Rounds of what is compared alternate, so that they see about the same load. A part that fails is left out, with the
//! reason in the report.
mod appends;
mod calls;
mod disk;
mod logged;
mod memory;
mod peers;
mod persist;
mod reopen;
mod snapshot;

use crate::goals::{Goal, Named, show};
use crate::report::Report;
use robustctl::measuring::CliError;
use serde_json::json;
use std::path::PathBuf;

pub use reopen::fill;

/// What is measured, and where.
#[derive(Debug, clap::Args)]
pub struct StoreArgs {
    /// Rounds of each measurement; medians are shown
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Size of a rank's snapshot
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    mib: usize,
    /// A folder on the disk to measure [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    #[arg(value_parser = ["snapshot", "persist", "appends", "calls", "peers", "reopen"])]
    only: Vec<String>,
    /// Appends also as under `[ha]`: with this log, as file:///DIR or s3://BUCKET/PREFIX
    #[arg(long, value_name = "URL", requires = "ha_etcd")]
    ha_log: Option<String>,
    /// The members of etcd that decide what of that log counts
    #[arg(long, value_name = "URL", value_delimiter = ',', requires = "ha_log")]
    ha_etcd: Vec<String>,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Figures with a goal, in the order they are shown.
const GOALS: [Named; 11] = [
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

/// Why a part was left out.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file or a socket.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A checkpoint.
    #[error(transparent)]
    Ckpt(#[from] robust_ckpt::CkptError),
    /// The store.
    #[error(transparent)]
    Store(#[from] robustd::store::StoreError),
    /// Something else, in words.
    #[error("{0}")]
    Else(String),
}

/// One part: its name and what it does in the folder it is given.
type Part = (
    &'static str,
    fn(&StoreArgs, &std::path::Path, &mut Report) -> Result<(), BenchError>,
);

const PARTS: [Part; 6] = [
    ("snapshot", snapshot::measure),
    ("persist", persist::measure),
    ("appends", appends::measure),
    ("calls", calls::measure),
    ("peers", peers::measure),
    ("reopen", reopen::measure),
];

/// Measures all parts and shows what was found.
pub fn run(args: &StoreArgs, json: bool) -> Result<(), CliError> {
    let mut report = Report::begin();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let unusable = |e| CliError::Usage(format!("{}: {e}", parent.display()));
    let folder = disk::Folder::make(&parent).map_err(unusable)?;
    for (name, measure) in PARTS {
        if args.only.is_empty() || args.only.iter().any(|only| only == name) {
            report.say(&format!("{name} ..."));
            if let Err(error) = measure(args, folder.path(), &mut report) {
                report.skip(name, error);
            }
        }
    }
    let cores = std::thread::available_parallelism().ok();
    let settings = json!({"rounds": args.rounds, "mib": args.mib, "cores": cores});
    show(&report.json(settings), &GOALS, args.out.as_deref(), json)
}
