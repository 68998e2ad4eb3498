//! The node daemon's program. See [`robustd::cli`].
use std::process::ExitCode;

/// As `robustctl` has it: what its simulator says that an input costs is what it costs here.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    robustd::cli::main()
}
