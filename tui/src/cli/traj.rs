//! Options of `traj` and of what is below it.
use clap::builder::PossibleValuesParser;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use robust_shared::wire::{TrajectoryState, Word as _};
use std::path::PathBuf;

/// What to do with trajectories.
#[derive(Debug, Subcommand)]
pub enum TrajCommand {
    /// List them, oldest first
    Ls(TrajFilter),
    /// One with all its turns: which committed step consumed it, on which attempt, or what it is and why
    Show {
        /// Its name, as `ls` prints it: BATCH.GROUP.MEMBER
        #[arg(value_name = "TRAJECTORY")]
        id: String,
    },
    /// Write them with tokens, logprobs, versions, tools and rewards
    Export {
        /// Which
        #[command(flatten)]
        filter: TrajFilter,
        /// The file to write; with `-`, JSON lines go to stdout
        #[arg(value_name = "FILE")]
        to: PathBuf,
        /// The format [default: by the file's name, .parquet or JSON lines]
        #[arg(long, value_enum)]
        format: Option<TrajFormat>,
    },
}

/// Which trajectories.
#[derive(Clone, Debug, ClapArgs)]
pub struct TrajFilter {
    /// First batch
    #[arg(long, value_name = "BATCH", default_value_t = 0)]
    pub from: u64,
    /// Last batch [default: no end]
    #[arg(long, value_name = "BATCH")]
    pub to_batch: Option<u64>,
    /// Only those in this state
    #[arg(long, value_parser = states())]
    pub state: Option<String>,
}

fn states() -> PossibleValuesParser {
    let words = TrajectoryState::ALL.iter().map(|state| state.word());
    PossibleValuesParser::new(words)
}

/// How trajectories are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TrajFormat {
    /// One JSON object a line.
    Jsonl,
    /// Apache Parquet, one row a trajectory.
    Parquet,
}
