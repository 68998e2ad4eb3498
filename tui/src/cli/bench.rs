//! Options of `bench` and of what is below it.
use super::values::seconds;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Transfers of weights between processes: against UCX's perf tool, TCP, memcpy and gloo
    Weights(BenchWeightsArgs),
    /// The console with 1,000 instances at 200x60 and its fleet view with 10,000: time of a frame, CPU while nothing is touched
    Console(BenchConsoleArgs),
    /// Snapshots, checkpoints and the store, beside plain copies and writes, and torch's ways to save
    Store(BenchStoreArgs),
    /// The controller's state with each record: what changed of it, beside all of it
    State(BenchStateArgs),
    /// Engines of the user's, killed and stopped under a job that trains; their loads; the shim's CPU
    Hosting(BenchHostingArgs),
}

/// Options of `bench console`.
#[derive(Debug, ClapArgs)]
pub struct BenchConsoleArgs {
    /// Instances of the job that is shown
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub instances: u32,
    /// Frames of each screen
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub frames: u32,
    /// How long the idle console is watched
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub idle: f64,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Options of `bench weights`.
#[derive(Debug, ClapArgs)]
pub struct BenchWeightsArgs {
    /// Rounds of each measurement; medians are shown
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: u32,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Size of a chunk in the simulated network
    #[arg(long, value_name = "MIB", default_value_t = 8)]
    pub sim_chunk_mib: u64,
}

/// Options of `bench store`.
#[derive(Debug, ClapArgs)]
pub struct BenchStoreArgs {
    /// Rounds of each measurement; medians are shown
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: u32,
    /// Size of a rank's snapshot
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub mib: u32,
    /// A folder on the disk to measure [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Only these parts
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    #[arg(value_parser = ["snapshot", "persist", "appends", "calls", "peers", "reopen"])]
    pub only: Vec<String>,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Options of `bench state`.
#[derive(Debug, ClapArgs)]
pub struct BenchStateArgs {
    /// Writes that are measured at each size, at least; medians are shown
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub writes: usize,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Options of `bench hosting`.
#[derive(Debug, ClapArgs)]
pub struct BenchHostingArgs {
    /// Real engines, of `scripts/engines.sh`, which ENGINES names [default: the tests' engine, beside this]
    #[arg(long, value_name = "NAME", value_parser = ["vllm", "sglang"])]
    pub engines: Option<String>,
    /// The job with a [rollout.command] [default: fixtures/jobs/engines-fake.toml or demo-NAME.toml]
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Kills of a child or of the leader
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub kills: u32,
    /// Stops of all processes of an engine
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub stops: u32,
    /// Decides whose engine is struck, and what of it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How long processor times are watched before the first kill
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds)]
    pub watch: f64,
    /// Leave the job's folder
    #[arg(long)]
    pub keep: bool,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}
