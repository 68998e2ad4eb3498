//! `robustctl compare`: two runs side by side, each where it is found.
//!
//! ```text
//!  folder ──┬─ a daemon answers ───────────┐
//!           └─ nobody: robustd --inspect ──┤ GetReport, GetSteps, GetHistory
//!  context, HOST:PORT ─────────────────────┴──► Side ─┐               ┌─► text (80 columns)
//!  file of `report --json` ───────────────────► Side ─┴─► Comparison ─┴─► JSON
//! ```
//! What a run does not tell is none, never zero.
mod comparison;
mod file;
mod incidents;
mod job;
mod row;
mod run;
mod shown;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod training;

use crate::cli::{CompareArgs, Global};
use crate::error::CliError;
use crate::output::{put, put_json};
use crate::paint::Paint;
use comparison::Comparison;
use robust_proto::v1;
use source::Source;

/// A run that is compared.
pub struct Side {
    /// What the operator called it.
    pub name: String,
    /// All that it tells, its history and the lines of its steps among it.
    pub report: v1::Report,
}

/// Prints what differs.
pub async fn run(args: &CompareArgs, global: &Global) -> Result<(), CliError> {
    // Both are looked up before one of them is read, which may take its time.
    let (a, b) = (Source::of(&args.a, global)?, Source::of(&args.b, global)?);
    // One after the other: two daemons do not serve one folder.
    let (a, b) = (a.read().await?, b.read().await?);
    let comparison = Comparison::of(&a, &b, args.last);
    match global.json {
        true => put_json(&comparison),
        false => put(&text::of(&comparison, Paint::stdout())),
    }
}
