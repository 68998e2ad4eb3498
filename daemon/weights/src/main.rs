//! Weights in motion without a job: a source, a puller, and the measurements.
mod bench;
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
    /// Measure transfers, with what else can move bytes beside them.
    Bench(bench::BenchArgs),
    /// Send bytes over plain TCP, to compare with.
    #[command(hide = true)]
    TcpSource {
        #[arg(long)]
        bytes: usize,
        /// Over sockets that are set up as those of the TLS road are on loopback.
        #[arg(long)]
        tuned: bool,
    },
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
        Command::Bench(args) => bench::bench(&args),
        Command::TcpSource { bytes, tuned } => bench::tcp_source(bytes, tuned),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("robust-weights: {error:#}");
            ExitCode::FAILURE
        }
    }
}
