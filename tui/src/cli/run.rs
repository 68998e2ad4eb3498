//! Options of `run`.
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Options of `run`.
#[derive(Debug, ClapArgs)]
pub struct RunArgs {
    /// The job file (TOML)
    #[arg(value_name = "JOB")]
    pub job: PathBuf,
    /// Leave as soon as the job runs; robustd goes on
    #[arg(long, short)]
    pub detach: bool,
    /// Run that many steps, whatever the job file says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Discard what an earlier job left in the state directory
    #[arg(long)]
    pub fresh: bool,
    /// Options of robustd, after `--`
    #[arg(last = true, value_name = "OPTION")]
    pub options: Vec<String>,
}
