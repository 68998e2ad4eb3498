//! Why an incarnation failed, and the exit code that says so.

use std::net::SocketAddr;
use std::path::PathBuf;

use robust_shared::spare::NEVER_READY;

use crate::home::HomeError;
use crate::process;
use crate::weights::FilesError;

/// The program ended, or is of no use any more.
const ENGINE_ENDED: u8 = 6;
/// The engine was given up over its weights or its memory, hence over none of its requests.
const WRONG_WEIGHTS: u8 = 7;

/// An incarnation failed.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// Its part as a role could not start.
    #[error(transparent)]
    Role(#[from] robust_role::StartError),
    /// The job has no command for rollouts.
    #[error("the job file has no [rollout.command]: robust-worker is the program for its rollouts")]
    NoCommand,
    /// The job has no command for its trainer.
    #[error("the job file has no [trainer.command]: robust-worker is the program for its trainer")]
    NoTrainer,
    /// The job has no command for its agents.
    #[error("the job file has no [agent.command]: robust-worker is the program for its agents")]
    NoAgent,
    /// The job has no such service.
    #[error("the job file has no [service.{0}]")]
    NoService(String),
    /// A file of the job cannot be read, or a folder cannot be made.
    #[error("reading or making {path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The folder, or what an earlier incarnation left.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The folders of the weights cannot be made.
    #[error(transparent)]
    Weights(#[from] FilesError),
    /// The engine does not start.
    #[error(transparent)]
    Start(#[from] process::StartError),
    /// The engine's processes cannot be watched.
    #[error(transparent)]
    Tree(#[from] robust_tree::TreeError),
    /// Clients cannot be listened for.
    #[error("listening on {addr}: {source}")]
    Listen {
        /// Where.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The program said at its start what is wrong with it.
    #[error("{0}")]
    NeverUp(String),
    /// The program does not wait to be told which rank it is, and none like it will.
    #[error("{0}")]
    NeverReady(String),
    /// The program ended or was given up, and may work when it is started anew.
    #[error("{0}")]
    Engine(String),
    /// The engine does not serve what it was given, stands still in a load, or does not sleep or wake.
    #[error("{0}")]
    WrongWeights(String),
}

impl ShimError {
    /// The exit code that says of what the program ended; none where the shim's own start failed, or
    /// another incarnation would fail the same way.
    pub fn exit_code(&self) -> Option<u8> {
        match self {
            ShimError::Engine(_) => Some(ENGINE_ENDED),
            ShimError::WrongWeights(_) => Some(WRONG_WEIGHTS),
            ShimError::NeverReady(_) => Some(NEVER_READY),
            _ => None,
        }
    }
}
