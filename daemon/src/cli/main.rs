//! From the command line to the exit code.
use super::args::Args;
use super::run::run;
use clap::Parser;
use std::process::ExitCode;

/// Everything that the program does. It is here and not in the program's own file, because whoever polls a future
/// compiles all of it: there the whole daemon was compiled a second time.
pub fn main() -> ExitCode {
    let args = Args::parse();
    let logs = args.log_format;
    logs.start();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            logs.last_words(&format!("cannot start the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let code = match runtime.block_on(run(args)) {
        Ok(code) => code as u8,
        Err(failure) => {
            logs.last_words(&failure.to_string());
            failure.exit_code() as u8
        }
    };
    // Blocking work that nobody waits for any more (stacks of a hung process) must not hold the end.
    runtime.shutdown_background();
    ExitCode::from(code)
}
