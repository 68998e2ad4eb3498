//! The process around a role: its command line, its log, its threads' panics and its end.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::runtime::Handle;
use tracing_subscriber::EnvFilter;

use crate::exit::{self, code};
use crate::{LinkEnd, RoleArgs, StartError};

/// How long a role may take to end after its link did.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The arguments with which the daemon starts every role program.
#[derive(Debug, Clone, Args)]
pub struct Process {
    /// The resolved job file.
    #[arg(long)]
    pub job: PathBuf,
    /// Rank or replica number.
    #[arg(long)]
    pub index: u32,
    /// Fencing number of this process.
    #[arg(long)]
    pub incarnation: u64,
    /// Fencing number of the gang.
    #[arg(long, default_value_t = 0)]
    pub generation: u64,
    /// The daemon's socket for roles.
    #[arg(long)]
    pub host_socket: PathBuf,
    /// Folder of the shared-memory snapshots.
    #[arg(long)]
    pub snapshot_dir: PathBuf,
    /// Where to listen for other roles.
    #[arg(long, default_value = "127.0.0.1")]
    pub bind: IpAddr,
}

impl Process {
    /// Reads the job file, and the job's token from the environment.
    pub fn role_args(&self) -> Result<RoleArgs, StartError> {
        let job = RoleArgs::read_job(&self.job)?;
        let (token, engines) = RoleArgs::of_token()?;
        Ok(RoleArgs {
            job,
            index: self.index,
            incarnation: self.incarnation,
            generation: self.generation,
            host_socket: self.host_socket.clone(),
            snapshot_dir: self.snapshot_dir.clone(),
            bind: self.bind,
            token,
            engines,
            roads: RoleArgs::named_roads(),
            end_within: Some(END_WITHIN),
        })
    }
}

/// The `main` of a role program: starts the log, does the work and ends the process with the exit
/// code that it returns. An error is the last line on stderr, from where the daemon takes the reason
/// of the exit; the process also ends as soon as any of its threads panics.
pub fn main<E: Display>(work: impl FnOnce() -> Result<u8, E>) -> ! {
    start_log();
    end_with_any_thread();
    let code = match work() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            code::START
        }
    };
    exit::now(code)
}

/// Runs a role until its link ends, and returns the exit code for that end. `started` is when the
/// process began; `role` computes on this thread, and its link talks on the runtime's.
pub fn run<E: From<StartError>>(
    args: &RoleArgs,
    started: Instant,
    role: impl FnOnce(&RoleArgs, &Handle, Instant) -> Result<LinkEnd, E>,
) -> Result<u8, E> {
    // One thread for all talk; computing happens elsewhere, so it is never kept waiting.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("talk")
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    let end = role(args, runtime.handle(), started);
    runtime.shutdown_background();
    let end = end?;
    tracing::info!(?end, "ends");
    Ok(end.exit_code())
}

/// Lines or JSON objects on stderr, as the daemon says. The last words (`error: ...`, a panic) are
/// lines in both: the daemon shows them as the reason of an exit.
fn start_log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        // Told to stderr itself, by what panics if that is impossible: on a full disk it is.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    match std::env::var(robust_proto::LOG_FORMAT_VARIABLE).as_deref() {
        Ok("json") => lines.json().init(),
        _ => lines.init(),
    }
}

/// A process without one of its threads is of no use, and looks alive: it ends, which the daemon sees at
/// once.
fn end_with_any_thread() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        exit::now(code::EXCEPTION)
    }));
}
