//! Options of `sim` and of what is below it.
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use robust_sim::paper::STEPS;
use robust_sim::trace;
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
    /// The paper's experiments: trainers killed in place, beside what is known of the paper's figures
    Paper(PaperArgs),
    /// One job on very many machines for a long time, and what an input costs the controller
    Scale(ScaleRunArgs),
    /// A trace of faults, or one drawn from a table of causes, under restarts by role and of the whole task
    Trace(TraceArgs),
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

/// Options of `sim trace`.
#[derive(Debug, ClapArgs)]
#[command(after_help = TRACE_FILES)]
pub struct TraceArgs {
    /// The faults: JSON lines or CSV with time, node, class, cause, repair
    #[arg(required_unless_present = "mix")]
    pub file: Option<PathBuf>,
    /// Which field of FILE is what, in which unit, and what its words mean (TOML)
    #[arg(long, value_name = "FILE", conflicts_with = "mix")]
    pub map: Option<PathBuf>,
    /// Draw the faults from a table of causes and rates (TOML), as in fixtures/traces/llama3.toml
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub mix: Option<PathBuf>,
    /// File that gets the faults as JSON lines, as they were read or drawn
    #[arg(long, value_name = "FILE")]
    pub keep: Option<PathBuf>,
    /// Machines of the job
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pub nodes: u32,
    /// Machines that wait for one of them to fail
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub spares: u32,
    /// Days of virtual time [default: until a day after the last fault; with --mix those of the table]
    #[arg(long, value_name = "DAYS", value_parser = trace_days)]
    pub days: Option<f64>,
    /// How long a machine is away of which the trace does not say it, in hours
    #[arg(long, value_name = "HOURS", default_value = "24", value_parser = repair_hours)]
    pub repair: f64,
    /// What to compare
    #[arg(
        long,
        value_name = "NAME,..",
        value_delimiter = ',',
        default_value = "role,task"
    )]
    pub policies: Vec<TracePolicy>,
    /// Decides lengths, the faults that are drawn, and which machine has which name
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
}

/// What a fault costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TracePolicy {
    /// Only the role that failed is restarted
    Role,
    /// Any fault restarts everything
    Task,
}

/// What `sim trace --help` says of files.
const TRACE_FILES: &str = "\
A line of FILE: {\"time\": 86400, \"node\": \"gpu-017\", \"class\": \"node\", \"cause\": \"HBM3\", \"repair\": 7200}
  time    seconds since the trace begins (other units and dates: --map)
  node    a machine's number from 0, or any name
  class   node: it dies, and is away for its repair. process: its processes end. hang: they stand still.
          maintenance: an hour before, it is said that it will leave
  cause   any words; what is lost is summed up by it
  repair  seconds until the machine is there again (node, maintenance); --repair where it is missing
A CSV has the same names in its first line. A mapping file gives other names, units and words:
  time = \"start\"  node = \"host\"  class = \"kind\"  time_unit = \"rfc3339\"  repaired = \"end\"
  default_class = \"node\"  classes = { \"NCCL timeout\" = \"hang\" }
";

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
    between(text, 0.01, 60.0, "days")
}

fn trace_days(text: &str) -> Result<f64, String> {
    between(text, 0.01, trace::LONGEST.as_secs_f64() / 86_400.0, "days")
}

fn repair_hours(text: &str) -> Result<f64, String> {
    between(text, 0.0, 8760.0, "hours")
}

fn between(text: &str, least: f64, most: f64, unit: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        Ok(_) => Err(format!("must lie between {least} and {most} {unit}")),
        Err(e) => Err(e.to_string()),
    }
}
