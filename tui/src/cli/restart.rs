//! Options of `restart`.
use super::values::{Who, who};
use clap::Args as ClapArgs;

/// Options of `restart`.
#[derive(Debug, ClapArgs)]
pub struct RestartArgs {
    /// An instance (`rollout-1`), a role (one after the other; the trainer's ranks together between
    /// two steps), or `task`: everything, between two steps
    #[arg(value_name = "ROLE[-N]|task", value_parser = target)]
    pub target: RestartTarget,
    /// Do nothing; say what it would bring
    #[arg(long)]
    pub dry_run: bool,
}

/// Whose processes are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartTarget {
    /// Everybody's.
    Task,
    /// Those of a role, or of one instance.
    Who(Who),
}

fn target(text: &str) -> Result<RestartTarget, String> {
    match text {
        "task" => Ok(RestartTarget::Task),
        other => who(other)
            .map(RestartTarget::Who)
            .map_err(|e| format!("{e}, or `task`")),
    }
}
