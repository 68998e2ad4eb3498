//! Options of `sim` and of what is below it.
use clap::{Args as ClapArgs, Subcommand};
use robust_shared::sim::paper::STEPS;
use std::path::PathBuf;

/// Options of `sim`.
#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SimArgs {
    /// Without a subcommand: the fault search
    #[command(flatten)]
    pub search: SearchArgs,
    /// What to simulate
    #[command(subcommand)]
    pub command: Option<SimCommand>,
}

/// What to simulate.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Random faults under many seeds, every invariant looked at after every input
    Search(SearchArgs),
    /// Run a schedule of faults that a search printed
    Replay(ReplayArgs),
    /// The paper's experiments: workloads, modes and policies, beside the paper's figures
    Paper(PaperArgs),
    /// One job on very many machines for a long time, and what an input costs the controller
    Scale(ScaleRunArgs),
    /// A weight version's way to 1 to 256 rollouts on the paper's machines, beside the paper's figures
    Weights(WeightsArgs),
}

/// Options of `sim search`.
#[derive(Debug, ClapArgs)]
pub struct SearchArgs {
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub seeds: u64,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub from: u64,
    /// So many controllers, with etcd and an object store between them; 1: one, which decides by itself
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=7))]
    pub controllers: u32,
    /// Stop only at so many distinct failures
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub keep_going: usize,
    /// Folder that gets a file for each distinct failure, for `sim replay`
    #[arg(long, value_name = "DIR", default_value = "sim-found")]
    pub found: PathBuf,
    /// Print how often each input met each state of each machine, and what never did
    #[arg(long)]
    pub coverage: bool,
    /// File that gets the seeds that met something first
    #[arg(long, value_name = "FILE")]
    pub keep: Option<PathBuf>,
}

/// Options of `sim weights`.
#[derive(Debug, ClapArgs)]
pub struct WeightsArgs {
    /// Numbers of rollouts
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub rollouts: Vec<usize>,
    /// Size of a chunk
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub chunk_mib: u64,
}

/// Options of `sim paper`.
#[derive(Debug, ClapArgs)]
pub struct PaperArgs {
    /// Decides lengths and faults
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Steps of each run; one fault falls in every 10
    #[arg(long, value_name = "N", default_value_t = STEPS, value_parser = clap::value_parser!(u64).range(10..=1000))]
    pub steps: u64,
}

/// Options of `sim scale`.
#[derive(Debug, ClapArgs)]
pub struct ScaleRunArgs {
    /// Machines
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=60_000))]
    pub nodes: u32,
    /// Days of virtual time
    #[arg(long, value_name = "DAYS", default_value = "7", value_parser = days)]
    pub days: f64,
    /// Decides lengths and deaths
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
}

/// Options of `sim replay`.
#[derive(Debug, ClapArgs)]
pub struct ReplayArgs {
    /// The schedule, as JSON
    pub file: PathBuf,
    /// Print every input and output
    #[arg(long)]
    pub journal: bool,
}

fn days(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(d) if (0.01..=60.0).contains(&d) => Ok(d),
        Ok(_) => Err("must lie between 0.01 and 60 days".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}
