//! Options of `store`.
use clap::Subcommand;

/// What to do with the store.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum StoreCommand {
    /// Read every entry, turn and checkpoint; exit 1 if anything is wrong
    Check,
}
