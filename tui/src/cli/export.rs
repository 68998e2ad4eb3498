//! Options of `export`.
use super::values::seconds;
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

/// For what the series of a run are written.
#[derive(Debug, Subcommand)]
pub enum ExportCommand {
    /// TensorBoard's event files, in a folder of the run's name (tensorboard --logdir DIR)
    Tensorboard(ExportArgs),
    /// MLflow's file store, whose folder DIR is: a run of the experiment that has the job's name
    Mlflow(ExportArgs),
}

/// Options of `export tensorboard` and `export mlflow`.
#[derive(Debug, ClapArgs)]
pub struct ExportArgs {
    /// Folder it goes into, which is made where there is none; what an earlier export of the same run left there is replaced
    #[arg(value_name = "DIR")]
    pub to: PathBuf,
    /// Go on with the steps to come until the job is over, also across a restart of the daemon
    #[arg(long, short)]
    pub follow: bool,
    /// With --follow: time between two looks, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub interval: f64,
}
