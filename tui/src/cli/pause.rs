//! Options of `pause`.
use super::values::seconds;
use clap::Args as ClapArgs;

/// Options of `pause`.
#[derive(Debug, ClapArgs)]
pub struct PauseArgs {
    /// Wait until the step under way is over and nothing new is begun
    #[arg(long)]
    pub wait: bool,
    /// With --wait: give up after this time; the job still pauses
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = seconds)]
    pub timeout: f64,
}
