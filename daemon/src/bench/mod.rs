//! What durable state costs on this machine, with what the machine can do at best beside it.
//!
//! `robustctl bench store` runs `robustd bench-store`, which prints JSON. Rounds of what is compared alternate, so
//! that they see about the same load. A part that fails is left out, with the reason in the report.
mod appends;
mod calls;
mod disk;
mod logged;
mod memory;
mod peers;
mod persist;
mod reopen;
mod snapshot;

use robust_shared::figure::Figures;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Instant;

/// What is measured, and where.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// Rounds of each measurement
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// MiB of a rank's snapshot
    #[arg(long, default_value_t = 1024)]
    mib: usize,
    /// A folder on the disk to measure [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Only these parts: snapshot, persist, appends, calls, peers, reopen
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Appends also as under [ha]: with this log, as file:///DIR or s3://BUCKET/PREFIX
    #[arg(long, value_name = "URL", requires = "ha_etcd")]
    ha_log: Option<String>,
    /// The members of etcd that decide what of that log counts
    #[arg(long, value_name = "URL", value_delimiter = ',', requires = "ha_log")]
    ha_etcd: Vec<String>,
}

/// All that was measured.
struct Report {
    figures: Figures,
    started: Instant,
}

impl Report {
    /// Says on standard error what is going on.
    fn say(&self, text: &str) {
        eprintln!("[{:5.1} s] {text}", self.started.elapsed().as_secs_f64());
    }

    fn skip(&mut self, what: &str, reason: impl std::fmt::Display) {
        let line = format!("{what} skipped: {reason}");
        self.say(&line);
        self.figures.skip(line);
    }

    /// Notes one round's value of a figure.
    fn add(&mut self, name: &str, value: f64) {
        self.figures.add(name, value, load());
    }

    /// Puts `name`, round by round `a` over `b`, if both were measured.
    fn ratio(&mut self, name: &str, a: &str, b: &str) {
        if let Some(ratio) = self.figures.ratio(a, b) {
            let median = ratio.median().unwrap_or(f64::NAN);
            self.say(&format!("{name}: {median:.3}"));
            self.figures.put(name, ratio);
        }
    }

    fn json(&self, args: &BenchArgs) -> Value {
        let cores = std::thread::available_parallelism().ok();
        let settings = json!({"rounds": args.rounds, "mib": args.mib, "cores": cores});
        self.figures
            .report(self.started.elapsed().as_secs_f64(), settings)
    }
}

/// Why a part was left out.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Ckpt(#[from] robust_ckpt::CkptError),
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    #[error("{0}")]
    Else(String),
}

/// One part: its name and what it does in the folder it is given.
type Part = (
    &'static str,
    fn(&BenchArgs, &std::path::Path, &mut Report) -> Result<(), BenchError>,
);

const PARTS: [Part; 6] = [
    ("snapshot", snapshot::measure),
    ("persist", persist::measure),
    ("appends", appends::measure),
    ("calls", calls::measure),
    ("peers", peers::measure),
    ("reopen", reopen::measure),
];

/// Measures all parts and prints the report.
pub fn run(args: &BenchArgs) -> Result<(), String> {
    let mut report = Report {
        figures: Figures::default(),
        started: Instant::now(),
    };
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = disk::Folder::make(&parent).map_err(|e| format!("{}: {e}", parent.display()))?;
    for (name, measure) in PARTS {
        if args.only.is_empty() || args.only.iter().any(|only| only == name) {
            report.say(&format!("{name} ..."));
            if let Err(error) = measure(args, folder.path(), &mut report) {
                report.skip(name, error);
            }
        }
    }
    println!("{:#}", report.json(args));
    Ok(())
}

/// Processes that want a core, over the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}
