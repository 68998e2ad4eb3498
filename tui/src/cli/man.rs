//! Options of `man`.
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Options of `man`.
#[derive(Debug, ClapArgs)]
pub struct ManArgs {
    /// The command whose page is printed: `inject`, `ckpt verify` [default: robustctl itself]
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write the pages of all commands into this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}
