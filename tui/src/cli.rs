//! The command line.
mod sim;

pub use sim::{PaperArgs, ReplayArgs, ScaleRunArgs, SearchArgs, SimArgs, SimCommand, WeightsArgs};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use robust_shared::ids::Role;
use std::path::PathBuf;

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  it did not come out well: a recovery did not finish, the job failed
  2  wrong use
  3  no daemon reachable (the message names the socket that was tried)
  4  refused by the daemon (the reason is printed)
  5  protocol error: daemon and robustctl do not understand each other
  130, 143  a drill was ended by SIGINT, SIGTERM

Without --state-dir or --connect the local daemon is looked for in $ROBUST_STATE_DIR,
else $XDG_RUNTIME_DIR/robust, else /tmp/robust-UID.";

/// Shows and steers a training job that robustd keeps running.
#[derive(Debug, Parser)]
#[command(name = "robustctl", version, after_help = EXIT_CODES)]
pub struct Args {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, ClapArgs)]
pub struct Global {
    /// State directory of the daemon
    #[arg(long, global = true, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Loopback address of a daemon started with --listen, instead of its socket
    #[arg(long, global = true, value_name = "IP:PORT")]
    pub connect: Option<String>,
    /// File with the token for --connect [default: `token` in the state directory]
    #[arg(long, global = true, value_name = "FILE", requires = "connect")]
    pub token_file: Option<PathBuf>,
    /// Print JSON; errors too, as one object on stderr
    #[arg(long, global = true)]
    pub json: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Open the console: the job at a glance, with keys to inject faults
    Tui(TuiArgs),
    /// Show the job, its roles and its incidents once
    Status,
    /// Print one line a step until the job is over (with --json every status)
    Watch(WatchArgs),
    /// Print what happened, oldest first
    Events(EventsArgs),
    /// Strike an instance with a real fault
    Inject(InjectArgs),
    /// Run a drill file: real jobs with planned faults, measured against each other
    Drill(DrillArgs),
    /// Summarise the run
    Report(ReportArgs),
    /// More or fewer instances of a role while the job runs
    Scale(ScaleArgs),
    /// New values for one role, which alone is restarted with them
    Update(UpdateArgs),
    /// Start nothing new on a node; what runs there goes on
    Cordon(NodeArgs),
    /// The end of a cordon
    Uncordon(NodeArgs),
    /// A lost slot is there again
    RestoreSlot(RestoreSlotArgs),
    /// Take an engine out of traffic: it finishes its turns and gets no new ones, until `readmit`
    Quarantine(EngineArgs),
    /// Let a quarantined engine have traffic again
    Readmit(EngineArgs),
    /// Print the detection rules and restart budgets in force, and where each value came from
    Rules(RulesArgs),
    /// Checkpoints on disk: list, show, verify, pin, collect, export, import (needs no daemon)
    #[command(subcommand)]
    Ckpt(CkptCommand),
    /// Stored trajectories: list, show, export as JSON lines or Parquet
    #[command(subcommand)]
    Traj(TrajCommand),
    /// Measure on this machine, beside what else can do the same
    #[command(subcommand)]
    Bench(BenchCommand),
    /// The store: check everything in it against its digests and itself
    #[command(subcommand)]
    Store(StoreCommand),
    /// Run the controller in virtual time: the fault search, the paper's runs, scale, weights
    Sim(SimArgs),
    /// End the job and its daemon in order
    Stop,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Options of `tui`.
#[derive(Clone, Debug, ClapArgs)]
pub struct TuiArgs {
    /// Draw with ASCII only [default: when LC_ALL, LC_CTYPE or LANG is not UTF-8]
    #[arg(long)]
    pub ascii: bool,
    /// Colours for a dark or a light terminal (NO_COLOR switches them off)
    #[arg(long, value_enum, default_value = "dark")]
    pub theme: ThemeName,
    /// Leave when the job is over: exit 0 if it ended well, 1 if not
    #[arg(long)]
    pub exit_when_done: bool,
    /// Open the console also when no daemon can be reached yet
    #[arg(long)]
    pub wait_for_daemon: bool,
    /// Only look: nothing that changes the job can be done from here
    #[arg(long)]
    pub read_only: bool,
    /// Leave the mouse to the terminal
    #[arg(long)]
    pub no_mouse: bool,
    /// Write all that the daemon says to this file, to be played again with --replay
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Play a recording instead of looking at a daemon
    #[arg(long, value_name = "FILE", conflicts_with_all = ["exit_when_done", "wait_for_daemon"])]
    pub replay: Option<PathBuf>,
    /// Folder of the drill files [default: fixtures/drills, here or above robustctl]
    #[arg(long, value_name = "DIR")]
    pub drills: Option<PathBuf>,
}

/// Colour themes of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThemeName {
    /// Bright on dark.
    Dark,
    /// Dark on bright.
    Light,
}

/// Options of `watch`.
#[derive(Debug, ClapArgs)]
pub struct WatchArgs {
    /// Time between two looks, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    pub interval: f64,
}

/// Options of `events`.
#[derive(Debug, ClapArgs)]
pub struct EventsArgs {
    /// Go on with those to come, also across a restart of the daemon
    #[arg(long, short)]
    pub follow: bool,
    /// Start at this sequence number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub since: u64,
}

/// Options of `inject`.
#[derive(Debug, ClapArgs)]
#[command(group(clap::ArgGroup::new("fault").required(true).args(["kill", "hang", "lose_slot"])))]
pub struct InjectArgs {
    /// Kill (SIGKILL) an instance of this role
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub kill: Option<Role>,
    /// Hang (SIGSTOP) an instance of this role
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub hang: Option<Role>,
    /// Take an instance of this role out with its slot, until `restore-slot`
    #[arg(long, value_name = "ROLE", value_parser = role())]
    pub lose_slot: Option<Role>,
    /// Which of them [default: the first that lives]
    #[arg(long, value_name = "N")]
    pub index: Option<u32>,
    /// Only this life of it; refused when another runs there by now
    #[arg(long, value_name = "NUMBER")]
    pub incarnation: Option<u64>,
    /// Wait until the recovery is over and print its timings
    #[arg(long)]
    pub wait: bool,
    /// With --wait: give up after this time
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub timeout: f64,
}

/// Options of `scale`.
#[derive(Debug, ClapArgs)]
pub struct ScaleArgs {
    /// The role
    #[arg(value_name = "ROLE", value_parser = role())]
    pub role: Role,
    /// How many instances it shall have
    #[arg(value_name = "N")]
    pub count: u32,
}

/// Options of `update`.
#[derive(Debug, ClapArgs)]
pub struct UpdateArgs {
    /// The role
    #[arg(value_name = "ROLE", value_parser = role())]
    pub role: Role,
    /// A key of the job file and its new value; may be given several times
    #[arg(long, value_name = "KEY=VALUE", required = true)]
    pub set: Vec<String>,
}

/// Which node `cordon` and `uncordon` are about.
#[derive(Debug, ClapArgs)]
pub struct NodeArgs {
    /// Its name
    #[arg(value_name = "NODE")]
    pub node: String,
}

/// Which slot `restore-slot` is about.
#[derive(Debug, ClapArgs)]
pub struct RestoreSlotArgs {
    /// The node's name
    #[arg(value_name = "NODE")]
    pub node: String,
    /// The pool's name
    #[arg(value_name = "POOL")]
    pub pool: String,
    /// The slot within the pool on that node, from 0
    #[arg(value_name = "N")]
    pub index: u32,
}

/// Which engine `quarantine` and `readmit` are about.
#[derive(Debug, ClapArgs)]
pub struct EngineArgs {
    /// A role that generates
    #[arg(value_name = "ROLE", value_parser = role())]
    pub role: Role,
    /// Which of them
    #[arg(value_name = "N")]
    pub index: u32,
}

/// Options of `rules`.
#[derive(Debug, ClapArgs)]
pub struct RulesArgs {
    /// What this job file would set, instead of asking a daemon
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
}

/// Options of `drill`.
#[derive(Debug, ClapArgs)]
pub struct DrillArgs {
    /// The drill file (TOML)
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Leave the runs' folders (logs, checkpoints) in place; their names are printed
    #[arg(long)]
    pub keep: bool,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Transfers of weights between processes: against UCX's perf tool, TCP, memcpy and gloo
    Weights(BenchWeightsArgs),
    /// The console with 1,000 instances at 200x60: time of a frame, CPU while nothing is touched
    Console(BenchConsoleArgs),
    /// Snapshots, checkpoints and the store, beside plain copies and writes, and torch's ways to save
    Store(BenchStoreArgs),
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
    pub only: Vec<String>,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// What to do with trajectories.
#[derive(Debug, Subcommand)]
pub enum TrajCommand {
    /// List them, oldest first
    Ls(TrajFilter),
    /// One with all its turns
    Show {
        /// Its name, as `ls` prints it: BATCH.GROUP.MEMBER
        #[arg(value_name = "TRAJECTORY")]
        id: String,
    },
    /// Write them with tokens, logprobs, versions, tools and rewards
    Export {
        /// Which
        #[command(flatten)]
        filter: TrajFilter,
        /// The file to write; with `-`, JSON lines go to stdout
        #[arg(value_name = "FILE")]
        to: PathBuf,
        /// The format [default: by the file's name, .parquet or JSON lines]
        #[arg(long, value_enum)]
        format: Option<TrajFormat>,
    },
}

/// Which trajectories.
#[derive(Clone, Debug, ClapArgs)]
pub struct TrajFilter {
    /// First batch
    #[arg(long, value_name = "BATCH", default_value_t = 0)]
    pub from: u64,
    /// Last batch [default: no end]
    #[arg(long, value_name = "BATCH")]
    pub to_batch: Option<u64>,
    /// Only those in this state
    #[arg(long, value_parser = ["running", "finished", "consumed"])]
    pub state: Option<String>,
}

/// How trajectories are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TrajFormat {
    /// One JSON object a line.
    Jsonl,
    /// Apache Parquet, one row a trajectory.
    Parquet,
}

/// What to do with the store.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum StoreCommand {
    /// Read every entry, turn and checkpoint; exit 1 if anything is wrong
    Check,
}

/// What to do with checkpoints.
#[derive(Debug, Subcommand)]
pub enum CkptCommand {
    /// List them, oldest first
    Ls(RemoteArgs),
    /// What one consists of
    Show(StepArgs),
    /// Read every byte and compare with the digests; exit 1 if anything differs
    Verify {
        /// Only this step's
        #[arg(value_name = "STEP")]
        step: Option<u64>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Bring one back from the object store, where a job goes on from it like from any other
    Fetch {
        /// The step, or `latest`
        #[arg(value_name = "STEP")]
        step: String,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Keep one, whatever the job's retention says
    Pin(StepArgs),
    /// Let it go with the others again
    Unpin(StepArgs),
    /// Remove what the job's retention need not keep
    Gc {
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
    },
    /// Write its weights as a Hugging Face folder: config.json, model.safetensors, tokenizer
    Export {
        /// The step, or `latest`
        #[arg(value_name = "STEP")]
        step: String,
        /// The folder to make
        #[arg(value_name = "DIR")]
        to: PathBuf,
    },
    /// Check a Hugging Face folder and write a job file that begins from it
    Import {
        /// The folder
        #[arg(value_name = "DIR")]
        from: PathBuf,
        /// Everything but model and tokenizer is taken from this job file
        #[arg(long, value_name = "FILE")]
        job: PathBuf,
        /// The job file to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

/// Where checkpoints are looked for.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct RemoteArgs {
    /// In the object store: the job's own, or this one
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub remote: Option<String>,
    /// Of this run only: a life of a job, as `ckpt ls --remote` shows it
    #[arg(long, value_name = "RUN", requires = "remote")]
    pub run: Option<String>,
}

/// Which checkpoint.
#[derive(Debug, ClapArgs)]
pub struct StepArgs {
    /// The step
    #[arg(value_name = "STEP")]
    pub step: u64,
}

/// Options of `report`.
#[derive(Debug, ClapArgs)]
pub struct ReportArgs {
    /// Also one line for every step
    #[arg(long)]
    pub steps: bool,
}

/// A role by name; clap offers the nearest valid name for a wrong one.
fn role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::name))
        .try_map(|name| name.parse::<Role>().map_err(|e| e.to_string()))
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.05..=86_400.0).contains(&s) => Ok(s),
        Ok(_) => Err("must lie between 0.05 and 86400 seconds".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}
