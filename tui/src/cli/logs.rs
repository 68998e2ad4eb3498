//! Options of `logs`.
use super::values::{Who, who};
use clap::Args as ClapArgs;
use regex::Regex;

/// Options of `logs`.
#[derive(Debug, ClapArgs)]
pub struct LogsArgs {
    /// An instance (`rollout-1`), or a role: all of its instances, each line with its name
    #[arg(value_name = "ROLE[-N]", value_parser = who)]
    pub who: Who,
    /// Go on with what is written, also across a restart of the daemon
    #[arg(long, short)]
    pub follow: bool,
    /// Only lines in which this regular expression is found
    #[arg(long, value_name = "RE", value_parser = regex)]
    pub grep: Option<Regex>,
    /// Begin with the last N lines of each log (--grep chooses among them) [default: all]
    #[arg(long, value_name = "N")]
    pub tail: Option<u32>,
}

fn regex(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|e| e.to_string())
}
