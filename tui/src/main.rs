//! The operators' program. See [`robustctl`].
use std::process::ExitCode;

/// The controller makes and drops many small values with each input; with the C library's allocator a
/// quarter of the simulator's time goes into that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    robustctl::main()
}
