//! `robustctl`: shows and steers a job that a `robustd` runs.
//!
//! ```text
//!                ┌─► commands ─┐                        ┌─► text tables or JSON on stdout
//!  cli ─► main ─┤              ├─► endpoint ─► robustd ─┤
//!                └─► console ──┘    gRPC                └─► State ─► draw
//! ```
//! Commands and console know nothing of each other; what both need lies below them.
//! Exit codes are listed in [`error::CliError::exit_code`].
//!
//! The program is [`main`]. Beside it this library has [`measuring`], for programs that measure, and nothing else.
mod cascade;
mod cli;
mod commands;
mod console;
mod contexts;
mod controllers;
mod drills;
mod ending;
mod endpoint;
mod error;
mod format;
mod glance;
mod inside;
mod machine;
pub mod measuring;
mod output;
mod pace;
mod paint;
mod postmortem;
mod steer;
mod table;
mod trajectories;

use clap::Parser;
use cli::{Args, Command};
use error::CliError;
use std::process::ExitCode;

/// Everything that the program does.
pub fn main() -> ExitCode {
    let args = Args::parse();
    let json = args.global.json;
    let outcome = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let outcome = runtime.block_on(run(args));
            // A reader of stdin blocks in a thread that nothing can cancel.
            runtime.shutdown_background();
            outcome
        }
        Err(e) => Err(CliError::Failed(format!("cannot start: {e}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            output::print_error(&e, json);
            ExitCode::from(e.exit_code())
        }
    }
}

/// Begins the console, or runs the command.
async fn run(args: Args) -> Result<(), CliError> {
    let Args { global, command } = args;
    match command {
        Command::Tui(tui) => console::run(&global.in_context()?, tui).await,
        command => commands::run(Args { global, command }).await,
    }
}
