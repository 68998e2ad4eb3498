//! `robust-shim`: an instance that is the user's own program: an engine, a rank of the trainer, an agent
//! worker's environments, or a service of the job.
//!
//! Exit codes: as every role program's (0 told to end, 1 an exception, 2 wrong usage, 3 fenced, 4 could not
//! start or its program never came up, 5 no daemon), 6: its program ended or was given up, and 7: its engine
//! does not serve the weights that it was given, stands still in a load, or does not sleep or wake on a
//! trainer's slot, 8: a spare whose program does not wait, so that no other like it would. The last line on stderr says
//! more.

use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use robust_role::RoleArgs;
use robust_role::exit::code;
use robust_role::program::{self, Process};
use robust_shared::ids::Role;
use robust_shim::agent;
use robust_shim::check::{self, CheckArgs};
use robust_shim::error::ShimError;
use robust_shim::run;
use robust_shim::service::{self, ServiceArgs};
use robust_shim::trainer;
use robust_shim::trainer::waiting::{self, SpareArgs, Waiting};
use tokio::runtime::Handle;

/// What ending takes besides the engine's own grace.
const ENDING: Duration = Duration::from_secs(15);

/// Starts an inference engine, watches it, feeds it weights and answers for it, or hosts a rank of the
/// trainer, environments or a service of the job; robustd starts this program.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A rollout replica that is the job's `[rollout.command]`.
    Rollout(Process),
    /// The same on the slot of a trainer's rank.
    Hybrid(Process),
    /// A rank of the trainer that is the job's `[trainer.command]`.
    Trainer(Process),
    /// An agent worker whose environments are the job's `[agent.command]`.
    Agent(Process),
    /// A process of a `[service.NAME]`.
    Service(ServiceArgs),
    /// A process whose program waits in `robustrl.attach()`, until robustd makes it a rank of the trainer.
    Spare(SpareArgs),
    /// Start a program of the job once, outside of any job, and say on stdout what came of it; it ends
    /// when stdin is closed.
    Check(CheckArgs),
}

fn main() {
    let started = Instant::now();
    let cli = Cli::parse();
    program::main(|| execute(&cli.command, started))
}

fn execute(command: &Command, started: Instant) -> Result<u8, ShimError> {
    let ended = match command {
        Command::Rollout(process) => engine(Role::Rollout, process, started),
        Command::Hybrid(process) => engine(Role::Hybrid, process, started),
        Command::Trainer(process) => trainer(process, started, None),
        Command::Agent(process) => agent(process, started),
        Command::Service(service) => service::run(service),
        Command::Spare(spare) => stand_by(spare),
        Command::Check(check) => check::run(check),
    };
    match ended {
        Err(error) => match error.exit_code() {
            Some(code) => {
                eprintln!("error: {error}");
                Ok(code)
            }
            None => Err(error),
        },
        ended => ended,
    }
}

/// Waits, and goes on as the command line that it is handed.
fn stand_by(spare: &SpareArgs) -> Result<u8, ShimError> {
    let Some((argv, waiting)) = waiting::stand_by(spare)? else {
        return Ok(code::ENDED);
    };
    let taken = Instant::now();
    match Cli::try_parse_from(argv).map(|cli| cli.command) {
        Ok(Command::Trainer(process)) => trainer(&process, taken, Some(waiting)),
        Ok(_) => Err(ShimError::NeverUp(
            "a spare of the trainer was told to become something else".to_owned(),
        )),
        Err(error) => Err(ShimError::NeverUp(format!(
            "the command line that was handed over: {error}"
        ))),
    }
}

fn trainer(process: &Process, started: Instant, waiting: Option<Waiting>) -> Result<u8, ShimError> {
    let mut args = process.role_args()?;
    let grace = args.job.trainer.command.as_ref().map(|c| c.stop.grace());
    args.end_within = Some(grace.unwrap_or_default() + ENDING);
    program::run(&args, started, |args, runtime, started| {
        trainer::run(args, runtime, started, waiting)
    })
}

fn agent(process: &Process, started: Instant) -> Result<u8, ShimError> {
    let mut args = process.role_args()?;
    let grace = args.job.agent.command.as_ref().map(|c| c.stop.grace());
    args.end_within = Some(grace.unwrap_or_default() + ENDING);
    program::run(&args, started, agent::run)
}

fn engine(role: Role, process: &Process, started: Instant) -> Result<u8, ShimError> {
    let mut args = process.role_args()?;
    let grace = args.job.rollout.command.as_ref().map(|c| c.stop.grace());
    args.end_within = Some(grace.unwrap_or_default() + ENDING);
    let engine =
        |args: &RoleArgs, runtime: &Handle, started| run::run(role, args, runtime, started);
    program::run(&args, started, engine)
}
