//! Options of `ckpt` and of what is below it.
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

/// What to do with checkpoints.
#[derive(Debug, Subcommand)]
pub enum CkptCommand {
    /// List them, oldest first
    Ls(RemoteArgs),
    /// What one consists of
    Show(StepArgs),
    /// Read every byte and compare with the digests; exit 1 if anything differs
    Verify {
        /// Only this step's
        #[arg(value_name = "STEP")]
        step: Option<u64>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Bring one back from the object store, where a job goes on from it like from any other
    Fetch {
        /// The step, or `latest`
        #[arg(value_name = "STEP")]
        step: String,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Keep one, whatever the job's retention says
    Pin(PinArgs),
    /// Let it go with the others again
    Unpin(PinArgs),
    /// Remove what the job's retention need not keep
    Gc {
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
        /// In an object store: keep the last so many, whatever the job says
        #[arg(long, value_name = "N", requires = "remote", value_parser = clap::value_parser!(u32).range(1..))]
        keep: Option<u32>,
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Write its weights as a Hugging Face folder: config.json, model.safetensors, tokenizer
    Export {
        /// The step, or `latest`
        #[arg(value_name = "STEP")]
        step: String,
        /// The folder to make
        #[arg(value_name = "DIR")]
        to: PathBuf,
    },
    /// Check a Hugging Face folder and write a job file that begins from it
    Import {
        /// The folder
        #[arg(value_name = "DIR")]
        from: PathBuf,
        /// Everything but model and tokenizer is taken from this job file
        #[arg(long, value_name = "FILE")]
        job: PathBuf,
        /// The job file to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

/// Where checkpoints are looked for.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct RemoteArgs {
    /// In the object store: the job's own, or this one
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub remote: Option<String>,
    /// Of this run only: a life of a job, as `ckpt ls --remote` shows it
    #[arg(long, value_name = "RUN", requires = "remote")]
    pub run: Option<String>,
    /// What it has to be signed with; by default the job's own key, of its own store
    #[arg(long, value_name = "FILE", requires = "remote")]
    pub signing_key_file: Option<PathBuf>,
}

/// Which checkpoint stays, or goes with the others again.
#[derive(Debug, ClapArgs)]
pub struct PinArgs {
    /// Which
    #[command(flatten)]
    pub step: StepArgs,
    /// Where
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// Which checkpoint.
#[derive(Debug, ClapArgs)]
pub struct StepArgs {
    /// The step
    #[arg(value_name = "STEP")]
    pub step: u64,
}
