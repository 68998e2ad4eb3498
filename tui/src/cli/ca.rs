//! Options of `ca`.
use clap::{Args, Subcommand};

/// What to do with the authority that certifies nodes and roles.
#[derive(Clone, Debug, Subcommand)]
pub enum CaCommand {
    /// Replace the leader's secret while the job runs: nodes and roles get certificates by the new one
    Rotate(RotateCaArgs),
    /// By which authority nodes and roles are certified, and until when
    Show,
}

/// How to replace it.
#[derive(Clone, Copy, Debug, Args)]
pub struct RotateCaArgs {
    /// End a rotation that is under way: whoever has no certificate by the new secret is cut off
    #[arg(long)]
    pub now: bool,
}
