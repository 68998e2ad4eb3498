//! The node daemon's program. See [`robustd::cli`].
use clap::Parser;
use robustd::cli::{Args, run};
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("robustd: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = match runtime.block_on(run(args)) {
        Ok(code) => code as u8,
        Err(failure) => {
            eprintln!("robustd: {failure}");
            failure.exit_code() as u8
        }
    };
    // Blocking work that nobody waits for any more (stacks of a hung process) must not hold the end.
    runtime.shutdown_background();
    ExitCode::from(code)
}
