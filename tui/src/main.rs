//! `robustctl`: shows and steers a job that a `robustd` runs.
//!
//! ```text
//!  cli (arguments) ─► commands ─┐                        ┌─► text tables or JSON on stdout
//!                               ├─► endpoint ─► robustd ─┤
//!  console (`tui`) ─────────────┘    gRPC                └─► State ─► draw
//! ```
//! Exit codes are listed in [`error::CliError::exit_code`].
mod cascade;
mod cli;
mod commands;
mod console;
mod contexts;
mod controllers;
mod endpoint;
mod error;
mod format;
mod output;
mod paint;
mod table;

use clap::Parser;
use std::process::ExitCode;

/// The controller makes and drops many small values with each input; with the C library's allocator a
/// quarter of the simulator's time goes into that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = cli::Args::parse();
    let json = args.global.json;
    let outcome = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let outcome = runtime.block_on(commands::run(args));
            // A reader of stdin blocks in a thread that nothing can cancel.
            runtime.shutdown_background();
            outcome
        }
        Err(e) => Err(error::CliError::Failed(format!("cannot start: {e}"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            error::print(&e, json);
            ExitCode::from(e.exit_code())
        }
    }
}
