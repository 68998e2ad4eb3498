//! Options of `inspect` and `probe`.
use super::values::{Who, who};
use clap::{Args as ClapArgs, ValueEnum};
use robust_shared::wire::InspectWay;

/// Options of `inspect`.
#[derive(Debug, ClapArgs)]
pub struct InspectArgs {
    /// Roles, or single instances (`rollout-1`) [default: all]
    #[arg(value_name = "ROLE[-N]", value_parser = who)]
    pub who: Vec<Who>,
    /// Which stacks are shown of each thread
    #[arg(long, value_enum, default_value = "running")]
    pub stacks: Stacks,
}

/// Which stacks are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stacks {
    /// The kernel's, where robustd may read them
    None,
    /// Also Python's, by py-spy: the process goes on meanwhile
    Running,
    /// Also those of native code, by gdb or py-spy: each process is stopped for up to two seconds
    Native,
}

impl Stacks {
    /// As the daemon knows it.
    pub fn word(self) -> &'static str {
        let way = match self {
            Stacks::None => InspectWay::Threads,
            Stacks::Running => InspectWay::Stacks,
            Stacks::Native => InspectWay::Native,
        };
        way.word()
    }
}

/// Options of `probe`.
#[derive(Debug, ClapArgs)]
pub struct ProbeArgs {
    /// Roles, or single instances (`rollout-1`) [default: all, and the job's services]
    #[arg(value_name = "ROLE[-N]", value_parser = who)]
    pub who: Vec<Who>,
}
