//! Options of `stop`.
use super::values::seconds;
use clap::Args as ClapArgs;

/// Options of `stop`.
#[derive(Debug, ClapArgs)]
pub struct StopArgs {
    /// Wait until the daemon has ended and let its state directory go
    #[arg(long)]
    pub wait: bool,
    /// With --wait: give up after this time; the job ends all the same
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    pub timeout: f64,
}
