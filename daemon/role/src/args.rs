//! What every role process is started with, and why a start fails.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use robust_identity::{EngineClient, EngineKey, EngineKeys, EngineServer};
use robust_shared::core::RuleSet;
use robust_shared::ids::Role;
use robust_shared::job::Job;
use robust_transport::{Identity, JobToken, Net, Rdma};

use crate::{Busy, LinkConfig, WELCOME_WITHIN, identity, rdma, spare};

/// Where a role finds the job's token.
const TOKEN_VARIABLE: &str = robust_proto::JOB_TOKEN_VARIABLE;
/// Where it finds its certificate.
pub(crate) const IDENTITY_VARIABLE: &str = robust_proto::IDENTITY_VARIABLE;

/// Which roads its weights take; nothing: that of one machine.
const ROADS_VARIABLE: &str = robust_proto::ROADS_VARIABLE;
/// Where roles of one machine find each other, in the folder for snapshots.
const ROADS_FOLDER: &str = "roads";

/// Arguments of a role process.
#[derive(Debug, Clone)]
pub struct RoleArgs {
    /// The resolved job file.
    pub job: Job,
    /// Rank or replica number.
    pub index: u32,
    /// Fencing number.
    pub incarnation: u64,
    /// The gang's fencing number.
    pub generation: u64,
    /// The daemon's socket.
    pub host_socket: PathBuf,
    /// Where trainers keep their shared-memory snapshots.
    pub snapshot_dir: PathBuf,
    /// Where to listen for other roles.
    pub bind: IpAddr,
    /// What other roles of the job prove to know, and this one to them.
    pub token: JobToken,
    /// What requests to the job's engines show.
    pub engines: EngineKeys,
    /// Which roads its weights take, with commas between: `shm`, `tls`, `ucx`.
    pub roads: String,
    /// How long the process may outlive its link; none where it is not a process of its own.
    pub end_within: Option<Duration>,
}

/// A role process could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The daemon gave no token.
    #[error("{TOKEN_VARIABLE} is not set; robustd gives it to the roles that it starts")]
    NoToken,
    /// It gave no certificate, though there are roles on other machines.
    #[error(
        "{IDENTITY_VARIABLE} is not set; robustd gives it to roles that others reach over a network"
    )]
    NoIdentity,
    /// That cannot be used.
    #[error("{IDENTITY_VARIABLE}: {0}")]
    Identity(#[from] robust_identity::IdentityError),
    /// Nothing can be asked.
    #[error("making an HTTP client: {0}")]
    Client(#[from] reqwest::Error),
    /// A file could not be read or made.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// job.json is not a job.
    #[error("{path} is not a resolved job file: {source}")]
    Job {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// The job names no model folder.
    #[error("model.path is not set; the daemon fills it in after the warm-up")]
    NoModel,
    /// The transport did not start.
    #[error("starting the transport: {0}")]
    Transport(#[from] robust_transport::TransportError),
    /// Memory for weights or gradients is missing.
    #[error(transparent)]
    Buffer(#[from] robust_transport::BufferError),
    /// The runtime of the process's talk did not start.
    #[error("starting the runtime: {0}")]
    Runtime(#[source] io::Error),
    /// A thread ended that must not.
    #[error("the {0} thread ended before it was ready")]
    Thread(&'static str),
}

impl RoleArgs {
    /// What is made of the job's token, which is in the environment: arguments can be read by every user of the
    /// machine.
    pub fn of_token() -> Result<(JobToken, EngineKeys), StartError> {
        let text = spare::variable(TOKEN_VARIABLE).filter(|text| !text.is_empty());
        let text = text.ok_or(StartError::NoToken)?;
        let text = text.as_bytes();
        Ok((JobToken::new(text), EngineKeys::of(text)))
    }

    /// How this process is asked from other machines, if it is an engine; none in a job of one machine.
    pub fn engine_server() -> Result<Option<EngineServer>, StartError> {
        let own = identity::member()?;
        Ok(own.map(|own| EngineServer::of(&own)).transpose()?)
    }

    /// How it asks engines of other machines; none in a job of one machine.
    pub fn engine_client() -> Result<Option<EngineClient>, StartError> {
        let own = identity::member()?;
        let client = own.map(|own| EngineClient::of_member(&own));
        Ok(client.transpose()?)
    }

    /// What requests to this process show, if it is an engine.
    pub fn engine_key(&self) -> EngineKey {
        self.engines.of_engine(self.incarnation)
    }

    /// The roads that the daemon names.
    pub fn named_roads() -> String {
        std::env::var(ROADS_VARIABLE).unwrap_or_else(|_| "shm".to_owned())
    }

    /// Reads `job.json`.
    pub fn read_job(path: &Path) -> Result<Job, StartError> {
        let text = std::fs::read(path).map_err(|source| StartError::Io {
            doing: "reading",
            path: path.to_owned(),
            source,
        })?;
        Job::from_json(&text).map_err(|source| StartError::Job {
            path: path.to_owned(),
            source,
        })
    }

    /// The folder of the initial weights.
    pub fn model_folder(&self) -> Result<&Path, StartError> {
        model_folder(&self.job)
    }

    /// How often an engine reads again what it serves.
    pub fn scrub_every(&self, role: Role) -> Duration {
        // The daemon checked the job before it wrote it down.
        let rules = RuleSet::from_job(&self.job.detect).unwrap_or_default();
        rules.corruption.scrub.of(role)
    }

    /// How this process attaches.
    pub fn link(&self, role: Role) -> LinkConfig {
        LinkConfig {
            socket: self.host_socket.clone(),
            role,
            index: self.index,
            incarnation: self.incarnation,
            generation: self.generation,
            sample_interval: self
                .job
                .detect
                .sample_interval()
                .max(Duration::from_millis(10)),
            busy: Busy::default(),
            daemon_grace: self.job.job.daemon_grace(),
            welcome_within: WELCOME_WITHIN,
            end_within: self.end_within,
        }
    }

    /// Settings of the weights' transport.
    pub fn transport(&self) -> Result<robust_transport::Config, StartError> {
        let stall_timeout = self.job.weights.stall_timeout();
        let has = |road: &str| self.roads.split(',').any(|named| named == road);
        let net = match (has("tls"), has("ucx")) {
            (true, _) => Some(Net::Tls(identity()?)),
            (false, true) => Some(Net::Ucx),
            (false, false) => None,
        };
        Ok(robust_transport::Config {
            local: has("shm").then(|| self.snapshot_dir.join(ROADS_FOLDER)),
            net,
            rdma: self.rdma().filter(|_| has("rdma")),
            bind: self.bind,
            stall_timeout,
            ..robust_transport::Config::new(self.token.clone())
        })
    }
}

/// The folder of a job's initial weights.
pub fn model_folder(job: &Job) -> Result<&Path, StartError> {
    job.model.path.as_deref().ok_or(StartError::NoModel)
}

impl RoleArgs {
    /// The RDMA that the job names and this machine has.
    fn rdma(&self) -> Option<Rdma> {
        let (devices, manager) = (Path::new(rdma::DEVICES), Path::new(rdma::MANAGER));
        rdma::active(&self.job.weights.net_devices, devices, manager)
    }
}

/// Who this process is to those of other machines.
fn identity() -> Result<Identity, StartError> {
    let own = identity::member()?.ok_or(StartError::NoIdentity)?;
    Ok(Identity::of(&own)?)
}
