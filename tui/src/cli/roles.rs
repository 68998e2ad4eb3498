//! Options of `roles`.
use super::values::{Who, who};
use clap::Args as ClapArgs;

/// Options of `roles`.
#[derive(Debug, ClapArgs)]
pub struct RolesArgs {
    /// Only this role, or one instance of it (`rollout-1`) with its past [default: all]
    #[arg(value_name = "ROLE[-N]", value_parser = who)]
    pub who: Option<Who>,
    /// Go on: a line for each that changes its state, phase or process, until the job is over (with
    /// --json every second all of them)
    #[arg(long, short)]
    pub follow: bool,
}
