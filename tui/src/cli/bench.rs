//! Options of `bench`.
use clap::Args as ClapArgs;
use std::ffi::OsString;

/// Options of `bench`.
#[derive(Debug, ClapArgs)]
pub struct BenchArgs {
    /// What it is started with: weights, store, state, console or hosting, and options (`help`: all of them)
    #[arg(
        value_name = "ARGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub args: Vec<OsString>,
}
