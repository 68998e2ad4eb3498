//! The command line: a file for the options of each group of commands.
mod bench;
mod ca;
mod ckpt;
mod doctor;
mod drill;
mod export;
mod inject;
mod inspect;
mod logs;
mod man;
mod pause;
mod read;
mod restart;
mod roles;
mod run;
mod sim;
mod slurm;
mod steer;
mod stop;
mod store;
mod token;
mod traj;
mod tui;
mod values;
#[cfg(test)]
mod verbs_tests;

pub use bench::BenchArgs;
pub use ca::{CaCommand, InitCaArgs, IssueCaArgs};
pub use ckpt::{CkptCommand, RemoteArgs};
pub use doctor::DoctorArgs;
pub use drill::DrillArgs;
pub use export::{ExportArgs, ExportCommand};
pub use inject::{AuditArgs, InjectArgs, Which};
pub use inspect::{InspectArgs, ProbeArgs};
pub use logs::LogsArgs;
pub use man::ManArgs;
pub use pause::PauseArgs;
pub use read::{CompareArgs, EventsArgs, ReportArgs, RulesArgs, StatusArgs, WatchArgs};
pub use restart::{RestartArgs, RestartTarget};
pub use roles::RolesArgs;
pub use run::RunArgs;
pub use sim::{
    PaperArgs, ReplayArgs, ScaleRunArgs, SearchArgs, SimArgs, SimCommand, TraceArgs, TracePolicy,
    WeightsArgs,
};
#[cfg(test)]
pub use slurm::FolderArgs;
pub use slurm::{AskArgs, GrowArgs, ShrinkArgs, SlurmCommand, SubmitArgs};
pub use steer::SteerCommand;
pub use stop::StopArgs;
pub use store::StoreCommand;
pub use token::{TTL_OF_NODE, TTL_OF_PERSON, TokenCommand};
pub use traj::{TrajCommand, TrajFilter, TrajFormat};
pub use tui::{PictureArgs, ThemeName, TuiArgs};
pub use values::{Who, seconds};

use crate::error::{CliError, ExitCode};
use clap::{Args as ClapArgs, Parser, Subcommand};
use robust_proto::endpoint::default_state_dir;
use robust_shared::verbs;
use std::path::PathBuf;

const AFTER_EXIT_CODES: &str = "\
`run` without --detach ends with the exit code of robustd (robustd --help), 0 when the job completed.
`bench` ends with the exit code of robust-bench (robust-bench --help), 2 when that is not installed.

Without --state-dir or --connect the local daemon is looked for in $ROBUST_STATE_DIR,
else $XDG_RUNTIME_DIR/robust, else $XDG_STATE_HOME/robust, else ~/.local/state/robust.";

fn after_help() -> String {
    let lines = ExitCode::ALL.map(|code| format!("\n  {:<5}{}", code as u8, code.meaning()));
    format!("Exit codes:{}\n{AFTER_EXIT_CODES}", lines.concat())
}

/// Shows and steers a training job that robustd keeps running.
#[derive(Debug, Parser)]
#[command(name = "robustctl", version, after_help = after_help())]
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
    /// Address of a daemon started with --listen, here or on another machine, instead of its socket; of several
    /// controllers all addresses, with commas between: the one that leads is found
    #[arg(long, global = true, value_name = "HOST:PORT,..")]
    pub connect: Option<String>,
    /// File with the token for --connect [default: `token` in the state directory]
    #[arg(long, global = true, value_name = "FILE", requires = "connect")]
    pub token_file: Option<PathBuf>,
    /// Named daemon of ~/.config/robust/contexts.toml: its state_dir, or connect and token_file
    #[arg(long, global = true, value_name = "NAME", conflicts_with_all = ["state_dir", "connect", "token_file"])]
    pub context: Option<String>,
    /// Print JSON; errors too, as one object on stderr
    #[arg(long, global = true)]
    pub json: bool,
}

impl Global {
    /// The state directory that is named, or the user's own.
    pub fn state_dir(&self) -> Result<PathBuf, CliError> {
        match &self.state_dir {
            Some(named) => Ok(named.clone()),
            None => default_state_dir().map_err(|e| CliError::Usage(e.to_string())),
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start robustd with a job, and see it through or leave it running
    Run(RunArgs),
    /// Open the console: the job at a glance, with keys to inject faults
    Tui(TuiArgs),
    /// Show the job, its roles and its incidents once
    Status(StatusArgs),
    /// Print one line a step until the job is over (with --json every status)
    Watch(WatchArgs),
    /// Show each instance: what it does, uses and went through
    Roles(RolesArgs),
    /// Print what the processes of an instance or a role wrote, whichever node they run on
    Logs(LogsArgs),
    /// Show what the processes of roles do now: states, threads, stacks
    Inspect(InspectArgs),
    /// Ask every role whether it answers, and how fast; exit code 1 if one does not
    Probe(ProbeArgs),
    /// Print what happened, oldest first
    Events(EventsArgs),
    #[command(about = verbs::inject::VERB.about)]
    Inject(InjectArgs),
    /// Print who asked for what, and what came of it
    Audit(AuditArgs),
    /// Run a drill file: real jobs with planned faults, measured against each other
    Drill(DrillArgs),
    /// Summarise the run
    Report(ReportArgs),
    /// Two runs side by side: speed, time lost, incidents, restarts, training at the same steps, what differs in their job files
    Compare(CompareArgs),
    /// Write the series of the run for TensorBoard or MLflow, once or while it runs
    #[command(subcommand)]
    Export(ExportCommand),
    /// Verbs of a job that runs.
    #[command(flatten)]
    Steer(SteerCommand),
    /// The nodes of the job: what they have, who is cordoned, and how much failed on each by its own fault
    Nodes,
    /// The authority that certifies nodes and roles: show it, or replace its secret while the job runs
    #[command(subcommand)]
    Ca(CaCommand),
    /// Join tokens, each of which makes one machine a node, and certificates of nodes
    #[command(subcommand)]
    Token(TokenCommand),
    /// Print the detection rules and restart budgets in force, and where each value came from
    Rules(RulesArgs),
    /// Checkpoints on disk: list, show, verify, pin, collect, export, import (needs no daemon)
    #[command(subcommand)]
    Ckpt(CkptCommand),
    /// Stored trajectories: list, show, export as JSON lines or Parquet
    #[command(subcommand)]
    Traj(TrajCommand),
    /// Measure on this machine, beside what else can do the same: starts robust-bench where it is installed
    Bench(BenchArgs),
    /// The store: check everything in it against its digests and itself
    #[command(subcommand)]
    Store(StoreCommand),
    /// Run the controller in virtual time: the fault search, the paper's runs, scale, weights
    Sim(SimArgs),
    /// A job on machines that Slurm lends: submit it, ask it, give it machines more, take some back
    #[command(subcommand)]
    Slurm(SlurmCommand),
    /// Check this machine before a job: driver, libraries, limits, disks, addresses, clocks
    Doctor(DoctorArgs),
    #[command(about = verbs::stop::VERB.about)]
    Stop(StopArgs),
    /// Print the manual's page of a command (robustctl man inject | man -l -)
    Man(ManArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}
