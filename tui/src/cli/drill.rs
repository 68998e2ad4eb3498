//! Options of `drill`.
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Options of `drill`.
#[derive(Debug, ClapArgs)]
pub struct DrillArgs {
    /// The drill file (TOML)
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Leave the runs' folders (logs, checkpoints) in place; their names are printed
    #[arg(long)]
    pub keep: bool,
}
