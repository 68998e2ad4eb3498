//! What every role process is started with, and why a start fails.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use robust_shared::ids::Role;
use robust_shared::job::Job;
use robust_transport::JobToken;

use super::LinkConfig;

/// Where a role finds the job's token.
const TOKEN_VARIABLE: &str = robust_proto::JOB_TOKEN_VARIABLE;

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
    /// The calculator's program; none: `robust-calc` beside this executable.
    pub calculator: Option<PathBuf>,
    /// How long the process may outlive its link; none where it is not a process of its own.
    pub end_within: Option<Duration>,
}

/// A role process could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The daemon gave no token.
    #[error("{TOKEN_VARIABLE} is not set; robustd gives it to the roles that it starts")]
    NoToken,
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
    /// The model folder is unusable.
    #[error(transparent)]
    Model(#[from] crate::model::hf::HfError),
    /// The model's shape is unusable.
    #[error(transparent)]
    Config(#[from] crate::model::config::ConfigError),
    /// The tokenizer is unusable.
    #[error(transparent)]
    Tokenizer(#[from] crate::model::tokenizer::TokenizerError),
    /// The sampler refused its sizes.
    #[error(transparent)]
    Sampler(#[from] crate::model::sampler::SamplerError),
    /// The transport did not start.
    #[error("starting the transport: {0}")]
    Transport(#[from] robust_transport::TransportError),
    /// Memory for weights or gradients is missing.
    #[error(transparent)]
    Buffer(#[from] robust_transport::BufferError),
    /// The weights' memory cannot be used.
    #[error(transparent)]
    Weights(#[from] crate::model::flat::LyingIn),
    /// A thread ended that must not.
    #[error("the {0} thread ended before it was ready")]
    Thread(&'static str),
}

impl RoleArgs {
    /// The job's token, from the environment: arguments can be read by every user of the machine.
    pub fn job_token() -> Result<JobToken, StartError> {
        let text = std::env::var_os(TOKEN_VARIABLE).filter(|text| !text.is_empty());
        let text = text.ok_or(StartError::NoToken)?;
        Ok(JobToken::new(text.as_encoded_bytes()))
    }

    /// Reads `job.json`.
    pub fn read_job(path: &Path) -> Result<Job, StartError> {
        let text = std::fs::read(path).map_err(|source| StartError::Io {
            doing: "reading",
            path: path.to_owned(),
            source,
        })?;
        serde_json::from_slice(&text).map_err(|source| StartError::Job {
            path: path.to_owned(),
            source,
        })
    }

    /// The folder of the initial weights.
    pub fn model_folder(&self) -> Result<&Path, StartError> {
        self.job.model.path.as_deref().ok_or(StartError::NoModel)
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
            daemon_grace: self.job.job.daemon_grace(),
            end_within: self.end_within,
        }
    }

    /// Settings of the weights' transport.
    pub fn transport(&self) -> robust_transport::Config {
        let stall_timeout = self.job.weights.stall_timeout();
        robust_transport::Config {
            bind: self.bind,
            stall_timeout,
            ..robust_transport::Config::new(self.token.clone())
        }
    }
}

/// Durations of the stages of a start, for one log line.
#[derive(Debug)]
pub struct Stages {
    since: Instant,
    line: String,
}

impl Stages {
    /// Counts from the beginning of `main`; what came before it (loading libtorch) is noted.
    pub fn since(since: Instant) -> Self {
        let before = process_age().map(|age| age.saturating_sub(since.elapsed()).as_millis());
        let line = before.map_or(String::new(), |ms| format!("load {ms} ms"));
        Self { since, line }
    }

    /// Notes the end of a stage.
    pub fn end(&mut self, stage: &str) {
        let comma = if self.line.is_empty() { "" } else { ", " };
        let ms = self.since.elapsed().as_millis();
        self.line.push_str(&format!("{comma}{stage} {ms} ms"));
        self.since = Instant::now();
    }

    /// The line.
    pub fn line(&self) -> &str {
        &self.line
    }
}

/// Time since this process was made, to 10 ms.
fn process_age() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold blanks; the start is the 20th field after it.
    let ticks: f64 = stat
        .rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(uptime - ticks / 100.0).ok()
}
