//! Options of `slurm`.
use clap::{Args, Subcommand};
use robust_shared::drill::duration;
use std::path::PathBuf;
use std::time::Duration;

/// What is done with a job on Slurm.
#[derive(Debug, Subcommand)]
pub enum SlurmCommand {
    /// Write the batch script of a job and submit it: a step of robustd on each machine
    Submit(SubmitArgs),
    /// Ask the controller of a job something: `robustctl slurm ask -- status`
    Ask(AskArgs),
    /// Machines more, each a Slurm job of its own that joins as a node
    Grow(GrowArgs),
    /// Nodes less: they move their roles elsewhere, leave, and give their machines back to Slurm
    Shrink(ShrinkArgs),
}

/// Where the job's script, token and logs are.
#[derive(Clone, Debug, Args)]
pub struct FolderArgs {
    /// The job's folder on the shared file system [default for submit: JOB.slurm beside the job file; else the only *.slurm
    /// of the working directory]
    #[arg(long, value_name = "DIR", env = "ROBUST_SLURM_DIR")]
    pub dir: Option<PathBuf>,
}

/// Options of `slurm submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// The job file (TOML), on the shared file system
    #[arg(value_name = "JOB")]
    pub job: PathBuf,
    /// How many machines; the first has the first node table of the job file, and so on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: u32,
    #[command(flatten)]
    pub folder: FolderArgs,
    /// Slots of machines for which the job file has no node table: train=2,rollout=1
    #[arg(long, value_name = "POOLS")]
    pub pools: Option<String>,
    /// Print the script; write nothing, and submit nothing
    #[arg(long, visible_alias = "dry-run")]
    pub print: bool,
    /// Where robustd is on the machines [default: beside robustctl]
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
    /// Folder for what the daemons keep on the machines, best on each one's own disk [default: $XDG_STATE_HOME/robust/NAME,
    /// else ~/.local/state/robust/NAME]
    #[arg(long, value_name = "DIR")]
    pub local: Option<PathBuf>,
    /// The port of the first controller; the others have the next ones [default: one by the Slurm job's number]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1024..65_000))]
    pub port: Option<u16>,
    /// How long a node that is to leave may take to move its roles elsewhere: 60s, 5min
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub drain: Duration,
    /// An option of robustd for the controllers; may be given several times
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub robustd: Vec<String>,
    /// Options of sbatch, after `--`: partition, time, account, GPUs
    #[arg(last = true, value_name = "SBATCH-OPTION")]
    pub sbatch: Vec<String>,
}

/// Options of `slurm ask`.
#[derive(Debug, Args)]
pub struct AskArgs {
    #[command(flatten)]
    pub folder: FolderArgs,
    /// A command of robustctl with its options, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Options of `slurm grow`.
#[derive(Debug, Args)]
pub struct GrowArgs {
    /// How many machines more
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub count: u32,
    #[command(flatten)]
    pub folder: FolderArgs,
    /// Their slots [default: those of the job file's nodes that join, where all have the same]
    #[arg(long, value_name = "POOLS", conflicts_with = "like")]
    pub pools: Option<String>,
    /// The slots of this node of the job file
    #[arg(long, value_name = "NODE")]
    pub like: Option<String>,
    /// Print the script; submit nothing
    #[arg(long, visible_alias = "dry-run")]
    pub print: bool,
    /// Options of sbatch, after `--` [default: those of submit]
    #[arg(last = true, value_name = "SBATCH-OPTION")]
    pub sbatch: Vec<String>,
}

/// Options of `slurm shrink`.
#[derive(Debug, Args)]
pub struct ShrinkArgs {
    /// Nodes, by the names that `status` shows
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<String>,
    #[command(flatten)]
    pub folder: FolderArgs,
    /// Give up waiting after this time; the nodes leave all the same
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = duration)]
    pub timeout: Duration,
}
