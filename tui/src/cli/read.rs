//! Options of the commands that only look: `status`, `watch`, `events`, `rules`, `report`, `compare`.
use super::values::seconds;
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Options of `status`.
#[derive(Debug, ClapArgs)]
pub struct StatusArgs {
    /// How each role is hosted, and what is therefore promised of the job, I-1 to I-9, with reasons
    #[arg(long)]
    pub promises: bool,
    /// Every incident, those that follow from another one below it (--json has all of them)
    #[arg(long)]
    pub all: bool,
    /// The jobs of these contexts, a line each, the worst first; of all contexts where none is named
    #[arg(long, value_name = "NAME,..", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["promises", "all"])]
    pub contexts: Option<String>,
}

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
    /// Only this committed step: every trajectory that entered it, and what was given back, set aside or generated again on
    /// the way
    #[arg(long, value_name = "N", conflicts_with_all = ["steps", "html", "points", "ascii"])]
    pub step: Option<u64>,
    /// Only this incident, as Markdown: what failed, what was done, timings, what followed, earlier ones of its kind, evidence
    #[arg(long, value_name = "N", conflicts_with_all = ["step", "steps", "html", "points", "ascii"])]
    pub incident: Option<u64>,
    /// Write it as one HTML page that needs nothing else: charts, incidents, configuration
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Points of each curve and stretches of each lane, at most
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(10..=5_000))]
    pub points: u32,
    /// Curves with ASCII only [default: when LC_ALL, LC_CTYPE or LANG is not UTF-8]
    #[arg(long)]
    pub ascii: bool,
}

/// Options of `compare`.
#[derive(Debug, ClapArgs)]
pub struct CompareArgs {
    /// A run: its state directory (it may be over), a file that `report --json` wrote, HOST:PORT of a daemon whose token is
    /// in the state directory, or the name of a context
    #[arg(value_name = "A")]
    pub a: String,
    /// The run it is compared with, likewise; differences are B less A, ratios B by A
    #[arg(value_name = "B")]
    pub b: String,
    /// Steps that means are taken over: the last ones that both runs have
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub last: u32,
}
