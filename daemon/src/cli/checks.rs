//! Everything that can be known to be wrong before anything starts.
use super::args::Args;
use super::data;
use super::failure::Failure;
use super::sampled::Sampled;
use crate::control::Prompts;
use crate::files::{Kind, Located, Paths};
use crate::grpc::{for_nodes, reachable};
use crate::nodes::{JoinToken, OutsideFiles};
use crate::services;
use crate::state::FILES_JSON;
use crate::traces;
use crate::webhook::Receiver;
use crate::worker::WorkerProgram;
use robust_remote::{Remote, SigningKey};
use robust_shared::job::Job;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What the checks found.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Paths absolute; `model.path` is the warm start's folder where none is named. Prompts, tokenizer and model are where they
    /// are on this machine, once [`data`] has looked for them.
    pub job: Job,
    /// The job file.
    pub job_file: PathBuf,
    /// Where that has prompts, tokenizer and model.
    pub paths: Paths,
    /// They are looked for once it is known what they are: it may be that the log of the job says that.
    pub is_deferred: bool,
    /// Where they are, of a job whose log says what they are.
    pub located: Option<Located>,
    /// The same without the warm start's folder, if that is still to be made.
    pub warmup: Option<Job>,
    /// The dataset.
    pub prompts: Prompts,
    /// Its digest, where it was read before it was known which one the job's is.
    pub prompts_read: Option<blake3::Hash>,
    /// The worker program.
    pub worker: WorkerProgram,
    /// Where to listen besides the socket.
    pub listen: Option<SocketAddr>,
    /// Where the token is for those who may only look.
    pub viewer_token: Option<PathBuf>,
    /// Who has this token may inject faults on a protected job, and nobody else then.
    pub break_glass_token: Option<PathBuf>,
    /// Where to serve metrics.
    pub metrics: Option<SocketAddr>,
    /// Where to serve the engines to other clients.
    pub router: Option<SocketAddr>,
    /// Where traces of incidents are sent.
    pub otlp: Option<String>,
    /// Who is told of alarms and incidents; the job does not say it any more.
    pub webhook: Option<Receiver>,
    /// Where to listen for nodes, and where those reach this one's roles.
    pub nodes: Option<(SocketAddr, IpAddr)>,
    /// With which machines become nodes, where it is not that of the state directory.
    pub join_token: Option<JoinToken>,
    /// The leader's certificate from outside.
    pub outside: Option<OutsideFiles>,
    /// Whether there is no such token for all.
    pub single_use_tokens: bool,
    /// Where checkpoints are put besides the disk.
    pub remote: Option<Remote>,
    /// Where everything is written that is remembered, besides the disk.
    pub log: Option<Remote>,
    /// What is sampled besides the processes.
    pub sampled: Sampled,
}

/// Reads and checks all that the command line names.
pub(super) fn prepare(args: &Args) -> Result<Prepared, Failure> {
    let address = |flag, given: &Option<String>| {
        let given = given.as_deref();
        given.map(|given| reachable(flag, given)).transpose()
    };
    let listen = address("--listen", &args.listen)?;
    let metrics = address("--metrics", &args.metrics)?;
    let router = address("--router", &args.router)?;
    let otlp = args.otlp.as_deref().map(traces::endpoint).transpose()?;
    let nodes = args.listen_nodes.as_deref();
    let nodes = nodes
        .map(|given| for_nodes(given, args.advertise))
        .transpose()?;
    let join_token = args.token_file.as_deref();
    let join_token = join_token.map(JoinToken::read).transpose()?;
    let outside = args.outside().map(OutsideFiles::of_leader).transpose()?;
    // Required where no leader is named.
    let path = args.job.clone().unwrap_or_default();
    let mut job = read_job(&path)?;
    job.job.steps = args.steps.or(job.job.steps);
    // Those that the job's log may bring along are looked for once that is known.
    let of_data = |key: &str| Kind::ALL.iter().any(|kind| kind.key() == key);
    for file in job.required_files() {
        if of_data(file.key) {
            continue;
        }
        File::open(&file.path).map_err(|source| Failure::Missing {
            key: file.key,
            job: path.clone(),
            path: file.path.clone(),
            source,
        })?;
    }
    let remote = job.checkpoint.remote.as_deref();
    let remote = remote.map(Remote::open).transpose()?;
    let signing_key = job.checkpoint.remote_signing_key_file.as_deref();
    let signing_key = signing_key.map(SigningKey::read).transpose()?;
    let remote = remote.map(|remote| remote.signed_with(signing_key));
    let log = job.store.remote_log.as_deref();
    let log = log.map(Remote::open).transpose()?;
    // Whom to tell is this start's to say. The job that roles, nodes and reports read has neither address nor file.
    let webhook = Receiver::of(&std::mem::take(&mut job.alarms))?;
    let worker = find_worker(args)?;
    find_shim(&job, &worker)?;
    services::check(&job)?;
    let state = args.state_dir()?;
    let is_recorded = state.join(FILES_JSON).exists() && !args.fresh;
    let is_deferred = log.is_some() || args.restore_from.is_some() || is_recorded;
    let mut prepared = Prepared {
        paths: Paths::of(&job),
        is_deferred,
        located: None,
        job,
        job_file: path,
        warmup: None,
        prompts: Prompts::default(),
        prompts_read: None,
        worker,
        listen,
        viewer_token: args.viewer_token_file.clone(),
        break_glass_token: args.break_glass_token_file.clone(),
        metrics,
        router,
        otlp,
        webhook,
        nodes,
        join_token,
        outside,
        single_use_tokens: args.single_use_tokens,
        remote,
        log,
        sampled: Sampled::new(args),
    };
    if !is_deferred {
        data::read(&mut prepared)?;
    }
    Ok(prepared)
}

fn read_job(path: &Path) -> Result<Job, Failure> {
    let unreadable = |source| Failure::JobUnreadable {
        path: path.to_owned(),
        source,
    };
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let mut job = Job::parse(&text, path).map_err(|e| Failure::Job(Box::new(e)))?;
    let absolute = fs::canonicalize(path).map_err(unreadable)?;
    job.resolve(absolute.parent().unwrap_or(Path::new("/")));
    Ok(job)
}

/// Whether the program beside foreign engines and services is there, for a job that has some.
fn find_shim(job: &Job, worker: &WorkerProgram) -> Result<(), Failure> {
    let path = worker.shim();
    let commands = job.rollout.command.is_some()
        || job.trainer.command.is_some()
        || job.agent.command.is_some();
    match commands || !job.services.is_empty() {
        true => check_executable(&path).map_err(|source| Failure::NoWorker { path, source }),
        false => Ok(()),
    }
}

fn check_executable(path: &Path) -> io::Result<()> {
    let meta = fs::metadata(path)?;
    match meta.is_file() && meta.permissions().mode() & 0o111 != 0 {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "not executable",
        )),
    }
}

pub(super) fn find_worker(args: &Args) -> Result<WorkerProgram, Failure> {
    let beside = || {
        let own = std::env::current_exe().unwrap_or_default();
        own.parent().unwrap_or(Path::new(".")).join("robust-worker")
    };
    let path = args.worker.clone().unwrap_or_else(beside);
    let missing = |source| Failure::NoWorker {
        path: path.clone(),
        source,
    };
    let found = fs::canonicalize(&path).map_err(missing)?;
    check_executable(&found).map_err(missing)?;
    Ok(WorkerProgram {
        path: found,
        logs: args.log_format,
    })
}
