//! Options of the commands that only look: `watch`, `events`, `rules`, `report`.
use super::values::seconds;
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Options of `watch`.
#[derive(Debug, ClapArgs)]
pub struct WatchArgs {
    /// Time between two looks, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    pub interval: f64,
}

/// Options of `events`.
#[derive(Debug, ClapArgs)]
pub struct EventsArgs {
    /// Go on with those to come, also across a restart of the daemon
    #[arg(long, short)]
    pub follow: bool,
    /// Start at this sequence number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub since: u64,
}

/// Options of `rules`.
#[derive(Debug, ClapArgs)]
pub struct RulesArgs {
    /// Only this rule and its budget
    #[arg(value_name = "RULE")]
    pub rule: Option<String>,
    /// What this job file would set, instead of asking a daemon
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
}

/// Options of `report`.
#[derive(Debug, ClapArgs)]
pub struct ReportArgs {
    /// Also one line for every step
    #[arg(long)]
    pub steps: bool,
}
