//! What a program that measures takes from here (`robust-bench`): the console without a terminal, a job under a daemon of its
//! own, and how results are shown.
pub use crate::cli::seconds;
pub use crate::commands::{OwnJob, recovery, unless_interrupted};
pub use crate::console::{CheckpointRow, Offscreen, ScreenId, Stored};
pub use crate::error::CliError;
pub use crate::output::put;
pub use crate::paint::Paint;
pub use crate::table::Table;
