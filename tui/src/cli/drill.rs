//! Options of `drill`.
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Options of `drill`.
#[derive(Debug, ClapArgs)]
#[command(after_help = after_help())]
pub struct DrillArgs {
    /// The drill: a file (TOML), or a name of the catalogue; with --list a folder
    #[arg(value_name = "FILE", required_unless_present = "list")]
    pub file: Option<PathBuf>,
    /// Show the drills of a folder [default: fixtures/drills, here or above robustctl]
    #[arg(long, conflicts_with_all = ["out", "report", "keep", "attach", "i_know"])]
    pub list: bool,
    /// Strike the job of the running daemon (--state-dir, --connect) instead of one of its own
    #[arg(long, conflicts_with = "keep")]
    pub attach: bool,
    /// Strike a job that is marked `protected` all the same
    #[arg(long)]
    pub i_know: bool,
    /// Switch this rule off in the drill's job: what is expected of it must then fail, and the run ends as
    /// soon as that is certain
    #[arg(long, value_name = "RULE", conflicts_with_all = ["attach", "list"])]
    pub without: Option<String>,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write a report to this file: Markdown for .md, else plain text
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Leave the runs' folders (logs, checkpoints) in place; their names are printed
    #[arg(long)]
    pub keep: bool,
}

/// What a drill may expect.
fn after_help() -> String {
    let mut text = "Expectations, the keys of `[expect]`:\n".to_owned();
    for (form, means) in robust_shared::drill::EXPECTATIONS {
        text += &format!("  {form:<34}  {means}\n");
    }
    text + "Those below `[expect.runs.NAME]` are of that run alone."
}
