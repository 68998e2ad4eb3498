//! A service of the job: any other program of the user's that the job needs. It has no link to the
//! daemon, which asks the service itself whether it is well; this process only hosts it.
//!
//! ```text
//!  what an earlier life left is ended ──► started ──► answers ──► ended, with its reason
//!                                            │ one of its processes dies ──┘ ▲
//!                                            └ SIGTERM, or no daemon ── gently ┘
//! ```

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use robust_role::exit::code;
use robust_role::{RoleArgs, StartError};
use robust_shared::job::{Job, Service};
use robust_tree::{Died, Policy};
use tokio::net::{TcpStream, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::client::Client;
use crate::connect::Address;
use crate::error::ShimError;
use crate::home::Home;
use crate::hosted::{Hosted, LEDGER_EVERY, failure, says_why};
use crate::process::{self, Command, OfService};
use crate::ready;
use crate::sight::Sight;

/// Pause between questions to a service that starts.
const AGAIN: Duration = Duration::from_millis(100);
/// A service without a port counts as up when it ran so long.
const SETTLED: Duration = Duration::from_secs(1);
/// How often it is looked whether there is a daemon.
const DAEMON_EVERY: Duration = Duration::from_secs(2);

/// The arguments with which the daemon starts the shim of a service.
#[derive(Debug, Clone, clap::Args)]
pub struct ServiceArgs {
    /// The resolved job file.
    #[arg(long)]
    pub job: PathBuf,
    /// The service's name.
    #[arg(long)]
    pub name: String,
    /// Which of its processes.
    #[arg(long)]
    pub index: u32,
    /// Number of this life.
    #[arg(long)]
    pub incarnation: u64,
    /// The daemon's socket for roles: while it answers, there is a daemon.
    #[arg(long)]
    pub host_socket: PathBuf,
    /// Folder of the shared-memory snapshots.
    #[arg(long)]
    pub snapshot_dir: PathBuf,
    /// A folder of the service's own on the disk.
    #[arg(long)]
    pub folder: PathBuf,
    /// Where it is to listen.
    #[arg(long, default_value = "127.0.0.1")]
    pub bind: IpAddr,
    /// A port that it is lent; as often as it has ports.
    #[arg(long = "port")]
    pub ports: Vec<u16>,
}

/// What ends a life.
enum End {
    Died(Died),
    Asked,
    NoDaemon,
}

/// Hosts a service until it ends, or is to end; the exit code for that.
pub fn run(args: &ServiceArgs) -> Result<u8, ShimError> {
    let job = RoleArgs::read_job(&args.job)?;
    let service = job.services.get(&args.name);
    let service = service.ok_or_else(|| ShimError::NoService(args.name.clone()))?;
    let name = format!("service-{}-{}", args.name, args.index);
    let home = Home::of(&args.snapshot_dir, &name);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    // Before there is anything to end.
    let asked = runtime.block_on(async { signal(SignalKind::terminate()) });
    let asked = asked.map_err(StartError::Runtime)?;
    home.take()?;
    std::fs::create_dir_all(&args.folder).map_err(|error| ShimError::File {
        path: args.folder.clone(),
        reason: error.to_string(),
    })?;
    let of = OfService {
        job: &job,
        name: &args.name,
        index: args.index,
        incarnation: args.incarnation,
        ports: &args.ports,
        bind: args.bind,
        folder: &args.folder,
    };
    let sight = Sight {
        hide: job.job.hide_state,
        socket: Some(&args.host_socket),
        home: &home,
        folder: &args.folder,
        model: job.model.path.as_deref(),
        rank: false,
    };
    let command = Command::of_service(&of, service, &home)?.with(&sight)?;
    let (deaths, died) = mpsc::unbounded_channel();
    let (mut hosted, _) = Hosted::start(command, &home, Policy::default(), deaths)?;
    let (end, was_up) = runtime.block_on(host(args, (&job, service), &mut hosted, (died, asked)));
    let (plan, result) = match end {
        End::Asked => (process::gently(&service.stop), Ok(code::ENDED)),
        End::NoDaemon => (process::gently(&service.stop), Ok(code::NO_DAEMON)),
        End::Died(death) => {
            let reason = death.to_string();
            let failed = failure("service", was_up, says_why(&death), reason);
            (process::at_once(), Err(failed))
        }
    };
    if let Err(error) = &result {
        tracing::error!("{error}");
    }
    hosted.end(&plan);
    result
}

/// Waits for what ends the life; also whether the service was up by then.
async fn host(
    args: &ServiceArgs,
    (job, service): (&Job, &Service),
    hosted: &mut Hosted,
    (mut died, mut asked): (UnboundedReceiver<Died>, Signal),
) -> (End, bool) {
    let up = answers(args.bind, &args.ports, service);
    let alone = alone(args, job.job.daemon_grace());
    tokio::pin!(up, alone);
    let mut is_up = false;
    let mut due = tokio::time::interval(LEDGER_EVERY);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let end = loop {
        tokio::select! {
            biased;
            Some(()) = asked.recv() => break End::Asked,
            Some(death) = died.recv() => break End::Died(death),
            () = &mut up, if !is_up => {
                is_up = true;
                hosted.ready();
                tracing::info!("the service is up");
            }
            () = &mut alone => {
                tracing::warn!("no daemon for {:?}: the service ends", job.job.daemon_grace());
                break End::NoDaemon;
            }
            _ = due.tick() => hosted.note(),
        }
    };
    (end, is_up)
}

/// Comes as soon as the service answers; how long that may take is the asker's affair.
pub(crate) async fn answers(bind: IpAddr, ports: &[u16], service: &Service) {
    let Some(port) = ports.first() else {
        return tokio::time::sleep(SETTLED).await;
    };
    let address = SocketAddr::new(bind, *port);
    let client = Client::new(Address::Tcp(address), None);
    loop {
        let there = match &service.ready.path {
            Some(path) => matches!(ready::answers(&client, path).await, Ok(200)),
            None => TcpStream::connect(address).await.is_ok(),
        };
        if there {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Comes when there was no daemon for as long as roles wait for one.
async fn alone(args: &ServiceArgs, grace: Duration) {
    let mut seen = Instant::now();
    while seen.elapsed() <= grace {
        if UnixStream::connect(&args.host_socket).await.is_ok() {
            seen = Instant::now();
        }
        tokio::time::sleep(DAEMON_EVERY).await;
    }
}
