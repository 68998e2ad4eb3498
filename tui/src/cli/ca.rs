//! Options of `ca`.
use clap::{Args, Subcommand};
use robust_shared::verbs;
use std::path::PathBuf;

/// What to do with the authority that certifies nodes and roles.
#[derive(Clone, Debug, Subcommand)]
pub enum CaCommand {
    #[command(about = verbs::ca_rotate::VERB.about)]
    Rotate(RotateCaArgs),
    /// By which authority nodes and roles are certified, and until when
    Show,
    /// Make an authority of your own for daemons, in a new folder: it is never sent anywhere
    Init(InitCaArgs),
    /// Certify a daemon by such an authority: the files for robustd --certificate, --key and --authority
    Issue(IssueCaArgs),
}

/// Where to make one.
#[derive(Clone, Debug, Args)]
pub struct InitCaArgs {
    /// The folder, which is made: ca.crt is for everybody, ca.key certifies daemons
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// How many days its certificates are believed at most
    #[arg(long, value_name = "N", default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
}

/// Whom to certify.
#[derive(Clone, Debug, Args)]
pub struct IssueCaArgs {
    /// The folder of the authority
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The daemon: node/NAME, or control/NAME of one that leads
    #[arg(value_name = "DAEMON")]
    pub daemon: String,
    /// The job, or whatever else its daemons have in common
    #[arg(long, value_name = "JOB")]
    pub job: String,
    /// The folder for tls.crt, tls.key and ca.crt; those that are there are replaced, which a running daemon notices
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// How many days the certificate is good
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
}

/// How to replace it.
#[derive(Clone, Copy, Debug, Args)]
pub struct RotateCaArgs {
    /// End a rotation that is under way: whoever has no certificate by the new secret is cut off
    #[arg(long)]
    pub now: bool,
}
