//! Starts a program of the user's once, outside of any job, and says on stdout what came of it:
//! [`robust_shared::trial`]. `robustctl doctor --check-roles` starts this.
//!
//! ```text
//!  started ──► answers ──► asked once ──► Up ──► stdin is closed, or SIGTERM ──► gently ──┐
//!     │           │             │          └─► one of its processes dies ─► Failed ──► killed ──► Ended
//!     └───────────┴─────────────┴─► Failed ──────────────────────────────────────────────────┘
//! ```
//! Nothing outlives whoever asked: its end closes stdin.
mod ask;
mod cure;

use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Instant;

use robust_role::exit::code;
use robust_role::{RoleArgs, StartError};
use robust_shared::job::{Job, RolloutCommand, Service, Stop};
use robust_shared::trial::{Ended, Failure, Said, Up};
use robust_tree::{Died, ENGINE_VARIABLE, Policy, leftovers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::oneshot;

use self::ask::{engine, of_service};
use self::cure::{ended_itself, failure, not_started};
use crate::connect::Address;
use crate::error::ShimError;
use crate::home::Home;
use crate::hosted::{Hosted, LEDGER_EVERY};
use crate::process::{self, Command, OfReplica, OfService};
use crate::sight::Sight;

/// What is started, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct CheckArgs {
    /// The resolved job file.
    #[arg(long)]
    pub job: PathBuf,
    /// The service's name; without it `[rollout.command]`.
    #[arg(long)]
    pub service: Option<String>,
    /// A folder in shared memory that is nobody else's.
    #[arg(long)]
    pub snapshot_dir: PathBuf,
    /// A folder on the disk that is the program's own.
    #[arg(long)]
    pub folder: PathBuf,
    /// A port that a service is lent; as often as it has ports.
    #[arg(long = "port")]
    pub ports: Vec<u16>,
}

/// A program of the job.
#[derive(Clone, Copy)]
enum Program<'a> {
    Engine(&'a RolloutCommand),
    Service(&'a str, &'a Service),
}

/// What became of it.
enum Outcome {
    Up(Up),
    Failed(Failure),
    Asked,
}

/// Starts the program, says whether it came up, and ends it when that is wanted.
pub fn run(args: &CheckArgs) -> Result<u8, ShimError> {
    let job = RoleArgs::read_job(&args.job)?;
    let program = Program::of(&job, args.service.as_deref())?;
    let home = Home::of(&args.snapshot_dir, &program.folder());
    home.take()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Runtime)?;
    let mut asked = runtime.block_on(async { asked() })?;
    let (deaths, mut died) = mpsc::unbounded_channel();
    let started = Instant::now();
    let hosted = program.command(&job, args, &home);
    let hosted = hosted
        .map_err(ShimError::from)
        .and_then(|command| Hosted::start(command, &home, Policy::default(), deaths));
    let (mut hosted, address) = match hosted {
        Ok(hosted) => hosted,
        Err(error) => {
            say(&Said::Failed(not_started(&error)))?;
            say(&Said::Ended(Ended::default()))?;
            return Ok(code::ENDED);
        }
    };
    let outcome = runtime.block_on(async {
        let up = program.comes_up(args, address, started);
        tokio::pin!(up);
        let mut due = tokio::time::interval(LEDGER_EVERY);
        loop {
            tokio::select! {
                biased;
                _ = &mut asked => break Outcome::Asked,
                Some(death) = died.recv() => break Outcome::Failed(ended_itself(&death)),
                outcome = &mut up => break outcome,
                _ = due.tick() => hosted.note(),
            }
        }
    });
    hosted.note();
    let good = match outcome {
        Outcome::Asked => true,
        Outcome::Failed(failure) => {
            say(&Said::Failed(failure))?;
            false
        }
        Outcome::Up(up) => {
            hosted.tree.ready();
            say(&Said::Up(up))?;
            runtime.block_on(stays(&mut asked, &mut died))?
        }
    };
    say(&Said::Ended(end(program.stop(), good, hosted, &home)))?;
    Ok(code::ENDED)
}

/// Waits until its end is wanted; false when it ended by itself.
async fn stays(
    asked: &mut oneshot::Receiver<()>,
    died: &mut UnboundedReceiver<Died>,
) -> Result<bool, ShimError> {
    tokio::select! {
        biased;
        _ = asked => Ok(true),
        Some(death) = died.recv() => {
            say(&Said::Failed(ended_itself(&death)))?;
            Ok(false)
        }
    }
}

/// Ends the program and sees that nobody of it is left.
fn end(stop: &Stop, good: bool, hosted: Hosted, home: &Home) -> Ended {
    let plan = match good {
        true => process::gently(stop),
        false => process::at_once(),
    };
    let began = Instant::now();
    let ended = hosted.end(&plan);
    let mut left: Vec<String> = ended.left.iter().map(ToString::to_string).collect();
    // Who left the tree still bears its mark.
    for process in leftovers(&[(ENGINE_VARIABLE, home.owner())]) {
        if !ended.left.iter().any(|known| known.pid == process.pid) {
            left.push(format!("{} (pid {})", process.name, process.pid));
        }
    }
    let killed = ended.killed.iter().filter(|_| good);
    Ended {
        after_s: began.elapsed().as_secs_f64(),
        killed: killed
            .map(|(pid, name)| format!("{name} (pid {pid})"))
            .collect(),
        left,
    }
}

impl<'a> Program<'a> {
    fn of(job: &'a Job, service: Option<&'a str>) -> Result<Self, ShimError> {
        match service {
            None => {
                let command = job.rollout.command.as_ref();
                command.map(Self::Engine).ok_or(ShimError::NoCommand)
            }
            Some(name) => {
                let service = job.services.get(name);
                let service = service.ok_or_else(|| ShimError::NoService(name.to_owned()))?;
                Ok(Self::Service(name, service))
            }
        }
    }

    fn folder(self) -> String {
        match self {
            Self::Engine(_) => "engine".to_owned(),
            Self::Service(name, _) => format!("service-{name}"),
        }
    }

    fn stop(self) -> &'a Stop {
        match self {
            Self::Engine(command) => &command.stop,
            Self::Service(_, service) => &service.stop,
        }
    }

    fn command(
        self,
        job: &Job,
        args: &CheckArgs,
        home: &Home,
    ) -> Result<Command, process::StartError> {
        let here = Ipv4Addr::LOCALHOST.into();
        let sight = |folder| Sight {
            hide: job.job.hide_state,
            socket: None,
            home,
            folder,
            model: job.model.path.as_deref(),
            rank: false,
        };
        match self {
            Self::Engine(command) => {
                let folder = home.run();
                let of = OfReplica {
                    job,
                    folder: &folder,
                    index: 0,
                    incarnation: 1,
                    advertise: here,
                };
                Command::of(&of, command, home)?.with(&sight(&folder))
            }
            Self::Service(name, service) => {
                let of = OfService {
                    job,
                    name,
                    index: 0,
                    incarnation: 1,
                    ports: &args.ports,
                    bind: here,
                    folder: &args.folder,
                };
                Command::of_service(&of, service, home)?.with(&sight(&args.folder))
            }
        }
    }

    async fn comes_up(
        self,
        args: &CheckArgs,
        address: Option<Address>,
        started: Instant,
    ) -> Outcome {
        let came = match (self, address) {
            (Self::Engine(command), Some(address)) => engine(command, address, started).await,
            // An engine's command always has an address.
            (Self::Engine(_), None) => Err(failure("it has no address", "pass it `{port}`")),
            (Self::Service(_, service), _) => of_service(service, &args.ports, started).await,
        };
        match came {
            Ok(up) => Outcome::Up(up),
            Err(failure) => Outcome::Failed(failure),
        }
    }
}

/// Comes when stdin is closed, or a signal asks for the end. To be made on a runtime.
fn asked() -> Result<oneshot::Receiver<()>, ShimError> {
    let mut term = signal(SignalKind::terminate()).map_err(StartError::Runtime)?;
    let mut int = signal(SignalKind::interrupt()).map_err(StartError::Runtime)?;
    let (closed, closes) = oneshot::channel::<()>();
    let (tell, told) = oneshot::channel();
    let reads = move || {
        // Nothing is said there; what counts is its end.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(closed);
    };
    // Not the runtime's: it would wait for a thread that nothing can cancel.
    let thread = std::thread::Builder::new().name("stdin".to_owned());
    thread.spawn(reads).map_err(StartError::Runtime)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = closes => {}
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        // Whoever waits for it may have gone.
        let _ = tell.send(());
    });
    Ok(told)
}

fn say(said: &Said) -> Result<(), ShimError> {
    let failed = |reason: String| ShimError::File {
        path: PathBuf::from("stdout"),
        reason,
    };
    let line = serde_json::to_string(said).map_err(|error| failed(error.to_string()))?;
    let mut out = io::stdout().lock();
    // Who asked may be gone; what was started is ended all the same.
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(error.to_string())),
        _ => Ok(()),
    }
}
