//! Weights in motion without a job: a source, a puller, and what changed between two versions.
mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Weights in motion without a job: for tests and measurements.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a version of made-up bytes until standard input closes.
    Source(cli::SourceArgs),
    /// Pull what orders on standard input say, and relay it.
    Pull(cli::PullArgs),
    /// Say how much of a version of bfloat16 changed, and how long the patches are that would be sent.
    Compare(cli::CompareArgs),
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let result = match Args::parse().command {
        Command::Source(args) => cli::source(&args),
        Command::Pull(args) => cli::pull(&args),
        Command::Compare(args) => cli::compare(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("robust-weights: {error:#}");
            ExitCode::FAILURE
        }
    }
}
