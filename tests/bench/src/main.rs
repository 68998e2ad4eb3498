//! `robust-bench`: measurements on this machine, beside what else can do the same.
//!
//! ```text
//!  robustctl bench ARGS ─► robust-bench ARGS ─┬─► weights   robust-weights as sources and pullers, robustctl sim weights
//!                                             ├─► store     the daemon's store and checkpoints, in this process
//!                                             ├─► state     the controller's core, in this process
//!                                             ├─► console   the console in memory; robustctl tui in a pseudo-terminal
//!                                             └─► hosting   robustd and a job, whose engines are struck
//! ```
//! None of it is in the programs that run jobs, nor in the packages. What it needs of `robustctl` is
//! [`robustctl::measuring`], of the daemon its library.
mod console;
mod goals;
mod hosting;
mod machine;
mod programs;
mod report;
mod state;
mod store;
mod weights;

use clap::{Parser, Subcommand};
use robustctl::measuring::CliError;
use std::path::PathBuf;
use std::process::ExitCode;

/// As the programs that are measured have it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AFTER: &str = "\
Exit codes:
  0    measured; a goal that was missed or a part that was left out is in the result
  1    it could not be measured
  2    wrong usage; a program, a file or a folder is missing
  3    the daemon that was started cannot be reached
  4    the daemon that was started refused
  5    what a program answered cannot be understood
  129  `hosting` was ended by SIGHUP
  130  `hosting` was ended by SIGINT
  143  `hosting` was ended by SIGTERM

Programs that are measured are those beside this one, or of the folder that ROBUST_PROGRAMS names.
Measure with a release build, on a machine that does nothing else: its load stands beside every figure.";

/// Measures RobustRL on this machine, beside what else can do the same.
#[derive(Debug, Parser)]
#[command(name = "robust-bench", version, after_help = AFTER)]
struct Args {
    /// What to measure.
    #[command(subcommand)]
    command: Command,
    /// Print the result as one line of JSON
    #[arg(long, global = true)]
    json: bool,
}

/// What to measure.
#[derive(Debug, Subcommand)]
enum Command {
    /// Transfers of weights between processes: against UCX's perf tool, TCP, memcpy and gloo
    Weights(weights::WeightsArgs),
    /// Snapshots, checkpoints and the store, beside plain copies and writes, and torch's ways to save
    Store(store::StoreArgs),
    /// The controller's state with each record: what changed of it, beside all of it
    State(state::StateArgs),
    /// The console with 1,000 instances at 200x60 and its fleet view with 10,000: time of a frame, CPU while nothing is touched
    Console(console::ConsoleArgs),
    /// Engines of the user's, killed and stopped under a job that trains; their loads; the shim's CPU
    Hosting(hosting::HostingArgs),
    /// Send bytes over plain TCP, to compare with (this program's own helper)
    #[command(hide = true)]
    TcpSource(weights::TcpSourceArgs),
    /// Fill a store, and die in the middle (this program's own helper)
    #[command(hide = true)]
    FillStore {
        /// The folder that it is made in
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let args = Args::parse();
    match run(&args) {
        Ok(()) | Err(CliError::OutputClosed) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("robust-bench: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(args: &Args) -> Result<(), CliError> {
    match &args.command {
        Command::Weights(what) => weights::run(what, args.json),
        Command::Store(what) => store::run(what, args.json),
        Command::State(what) => state::run(what, args.json),
        Command::Console(what) => runtime()?.block_on(console::run(what, args.json)),
        Command::Hosting(what) => runtime()?.block_on(hosting::run(what, args.json)),
        Command::TcpSource(what) => {
            weights::tcp_source(what).map_err(|e| CliError::Failed(format!("{e:#}")))
        }
        Command::FillStore { dir } => store::fill(dir).map_err(|e| CliError::Failed(e.to_string())),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| CliError::Failed(format!("cannot start: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_part_that_there_is_not_is_refused_with_the_nearest_one() {
        let parsed = Args::try_parse_from(["robust-bench", "store", "--only", "persits"]);
        let refused = parsed.map(drop).map_err(|e| e.to_string());
        assert!(
            refused.as_ref().is_err_and(|e| e.contains("persist")),
            "{refused:?}"
        );
    }
}
