//! The node daemon's program. See [`robustd::cli`].
use clap::Parser;
use robustd::cli::{Args, run};
use std::process::ExitCode;

/// As `robustctl` has it: what its simulator says that an input costs is what it costs here.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
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
