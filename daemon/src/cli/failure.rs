//! Why the daemon does not run, or ran into its end; each with its exit code.
use super::args::ExitCode;
use super::warmup::WarmupError;
use crate::audit::KeptError;
use crate::control::DatasetError;
use crate::driver::{AdoptError, DriverError};
use crate::files::FilesError;
use crate::grouping::GroupingError;
use crate::grouplog::{BeginError, RestoreError};
use crate::grpc::ListenError;
use crate::ha::HaError;
use crate::node::{CredentialsError, NodeConfigError, NodeError};
use crate::nodes::{AuthoritiesError, JoinTokenError, MembersError, OutsideFilesError};
use crate::services::ServicesError;
use crate::state::{JobFileError, StateDirError};
use crate::store::StoreError;
use crate::traces::TracesError;
use crate::webhook::WebhookError;
use robust_ckpt::CkptError;
use robust_grouplog::LogError;
use robust_proto::endpoint::NoFolder;
use robust_remote::RemoteError;
use robust_shared::job::{JobError, NoSuchDevice};
use std::io;
use std::path::PathBuf;

/// Why the daemon does not run. The text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The job file cannot be read.
    #[error("cannot read the job file {path}: {source}")]
    JobUnreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The job file is wrong.
    #[error("{0}")]
    Job(Box<JobError>),
    /// The audit log cannot be brought together with what the job's log has of it.
    #[error("the audit log: {0}")]
    Audit(#[from] KeptError),
    /// The secret of the job's log cannot be used.
    #[error("store.secret_file: {path}: {source}")]
    Secret {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The job's log cannot go on.
    #[error(transparent)]
    Log(#[from] BeginError),
    /// This controller cannot be one of several.
    #[error(transparent)]
    Ha(#[from] HaError),
    /// The command line does not go with the job file.
    #[error("{0}")]
    Candidate(&'static str),
    /// There is no job to go on with.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// Nobody said where the state is to lie, and there is no folder of the user's own.
    #[error(transparent)]
    NoFolder(#[from] NoFolder),
    /// There is nothing to show.
    #[error("{dir} has no job: job.json: {source}; name its state directory with --state-dir")]
    NoJob {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The job's services cannot be hosted.
    #[error("{0}")]
    Services(#[from] ServicesError),
    /// The job file names a device that there is not.
    #[error("{0}")]
    Devices(#[from] NoSuchDevice),
    /// Its lives cannot be in control groups as the job asks for.
    #[error(transparent)]
    Grouping(#[from] GroupingError),
    /// The dataset is wrong.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// A file the job names is not there.
    #[error("{key} in {job}: {path}: {source}")]
    Missing {
        /// The key of the job file.
        key: &'static str,
        /// The job file.
        job: PathBuf,
        /// The file that is not there.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// What the job is made of is not here.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// The model's weights are not whole.
    #[error("model.path in {job}: {source}")]
    Weights {
        /// The job file.
        job: PathBuf,
        /// What is wrong with which file.
        source: CkptError,
    },
    /// The object store cannot be used.
    #[error("checkpoint.remote: {0}")]
    Remote(#[from] RemoteError),
    /// The worker program is not there.
    #[error("the worker program {path}: {source}; build it, or name it with --worker")]
    NoWorker {
        /// Where it was looked for.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The warm start could not be made.
    #[error(transparent)]
    Warmup(#[from] WarmupError),
    /// The address is in use or refused.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Traces cannot be sent.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// Nobody can be told of alarms.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// The state directory cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// The state directory is another job's.
    #[error(transparent)]
    OtherJob(#[from] JobFileError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What an earlier life left cannot be gone on with.
    #[error(transparent)]
    Past(#[from] AdoptError),
    /// The job could not go on; its roles were ended and its state is kept.
    #[error("{0}; the job's state is kept: start robustd again to go on")]
    Driver(#[from] DriverError),
    /// A thread or a signal handler could not be had.
    #[error("cannot start {what}: {source}")]
    Start {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The job in the state directory is over.
    #[error(
        "the job {job} {state} at step {step}{reason}; start with --fresh to run it anew, which deletes its checkpoints, or with another --state-dir, which keeps them"
    )]
    Over {
        /// Its name.
        job: String,
        /// How it ended.
        state: String,
        /// Where.
        step: u64,
        /// Why, with a colon before it, or empty.
        reason: String,
    },
    /// The command line of a node is wrong.
    #[error(transparent)]
    NodeConfig(#[from] NodeConfigError),
    /// The token file cannot be used.
    #[error(transparent)]
    JoinToken(#[from] JoinTokenError),
    /// The certificate from outside cannot be used.
    #[error(transparent)]
    Outside(#[from] OutsideFilesError),
    /// A node has two ways to prove itself.
    #[error("--token-file and --certificate: a node shows one of both; leave the token away")]
    TwoProofs,
    /// Who may become a node cannot be known.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// The authorities cannot be had.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    /// It is no node, or none any more.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Old role processes are in the way.
    #[error("processes {pids:?} of the discarded job cannot be killed; end them and try again")]
    Leftovers {
        /// Which.
        pids: Vec<u32>,
    },
}

impl Failure {
    /// How the program ends.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::JobUnreadable { .. }
            | Self::NoJob { .. }
            | Self::Job(_)
            | Self::Candidate(_)
            | Self::Webhook(WebhookError::Url(_))
            | Self::Ha(HaError::Url { .. })
            | Self::Services(_)
            | Self::Devices(_) => ExitCode::BadJob,
            Self::Dataset(DatasetError::Io { .. }) => ExitCode::Environment,
            Self::Dataset(_) => ExitCode::BadJob,
            Self::Remote(_)
            | Self::Secret { .. }
            | Self::Webhook(_)
            | Self::Grouping(_)
            | Self::Missing { .. }
            | Self::Files(_)
            | Self::Ha(HaError::Files(_))
            | Self::Weights { .. }
            | Self::NoWorker { .. }
            | Self::Warmup(_) => ExitCode::Environment,
            Self::Listen(ListenError::PathTooLong { .. } | ListenError::Mode(_)) => ExitCode::Store,
            Self::Listen(_) => ExitCode::Address,
            Self::Store(StoreError::Locked { .. })
            | Self::OtherJob(JobFileError::OtherJob { .. }) => ExitCode::InUse,
            Self::Restore(
                RestoreError::NoLog { .. } | RestoreError::Remote(_) | RestoreError::Seal(_),
            )
            | Self::Log(BeginError::Log(LogError::Store { .. })) => ExitCode::Environment,
            Self::Log(
                BeginError::Elsewhere { .. }
                | BeginError::AnotherLife { .. }
                | BeginError::NoHead { .. },
            )
            | Self::Restore(RestoreError::NotEmpty { .. } | RestoreError::Half { .. }) => {
                ExitCode::InUse
            }
            Self::Ha(HaError::Setting(_)) => ExitCode::Environment,
            Self::Ha(HaError::Store(StoreError::Locked { .. })) => ExitCode::InUse,
            Self::Ha(_)
            | Self::Audit(_)
            | Self::Log(_)
            | Self::Restore(_)
            | Self::StateDir(_)
            | Self::NoFolder(_)
            | Self::OtherJob(_)
            | Self::Store(_)
            | Self::Past(_)
            | Self::Members(_)
            | Self::Authorities(_)
            | Self::Driver(_) => ExitCode::Store,
            Self::NodeConfig(_)
            | Self::Traces(TracesError::Url { .. } | TracesError::Tls { .. }) => ExitCode::BadJob,
            Self::TwoProofs
            | Self::Outside(OutsideFilesError::Kind { .. } | OutsideFilesError::Name { .. }) => {
                ExitCode::BadJob
            }
            Self::JoinToken(_) | Self::Outside(_) | Self::Traces(TracesError::Ca { .. }) => {
                ExitCode::Environment
            }
            Self::Node(error) => node_error(error),
            Self::Start { .. } | Self::Over { .. } | Self::Leftovers { .. } | Self::Traces(_) => {
                ExitCode::Failed
            }
        }
    }
}

fn node_error(error: &NodeError) -> ExitCode {
    match error {
        NodeError::Refused { .. } => ExitCode::NotJoined,
        NodeError::Lock(StoreError::Locked { .. }) => ExitCode::InUse,
        NodeError::Start { .. } => ExitCode::Failed,
        NodeError::Credentials(CredentialsError::NoToken) => ExitCode::BadJob,
        NodeError::Credentials(_)
        | NodeError::Memory(_)
        | NodeError::State(_)
        | NodeError::Lock(_)
        | NodeError::Listen(_) => ExitCode::Store,
    }
}
