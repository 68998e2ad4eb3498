//! A rank's program that is started before it is known which rank it will be, and waits in `robustrl.attach()`.
//!
//! ```text
//!  robustd                     robust-shim spare trainer                python train.py
//!     │ ── starts ──────────────► │ ── starts, in its session and group ──► │ imports
//!     │                           │ ◄─────────────────────────────── READY │ attach(): waits
//!     │ ◄──────────────── READY   │                                        │
//!     │ Handed: it is trainer-0 ► │ attaches, learns who its fellows are   │
//!     │ ◄──────────────── TAKEN   │ Handed: its environment, and the log ► │ attach() goes on
//!     │                           │ ◄─────────────────────────────── TAKEN │
//!     │                           │ GO, if that was in time ─────────────► │
//! ```
//! Until it is told it has nothing of the job's: no token, no key, no socket and no place in a gang. Devices are not
//! hidden from it, which one it will have being unknown: one that used a device before is ended in `attach()`. The
//! program and all that it starts are watched from its first moment. They end with this process, and this process ends
//! with the daemon, while the program still imports too.
//!
//! A program that ended by itself before it waited, or that does not wait within the time that a start may take, says
//! that none like it will: no other is started before the job file changes. One that was killed, or ended while it
//! waited, says nothing of the kind.

use std::fmt::Display;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use robust_proto::{ROUTER_KEY_VARIABLE, ROUTER_VARIABLE};
use robust_role::{RoleArgs, spare};
use robust_shared::ids::{InstanceId, Role};
use robust_shared::job::{Job, TrainerCommand};
use robust_shared::spare::{GO, MOST_BYTES, READY, TAKEN};
use robust_tree::{Child, Died, How, Policy, Tree, hand_over};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{retry_on_intr, write};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::error::ShimError;
use crate::gang::{self, UNTIL_ATTACHED};
use crate::home::Home;
use crate::hosted::Hosted;
use crate::log;
use crate::process::{AsStarted, Command, StartError, folder_of};
use crate::sight::hidden_from_waiting;

/// Where the program finds the number of the descriptor on which it waits.
const VARIABLE: &str = "ROBUST_SPARE";
/// How often it is looked whether the program's files were changed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a program may take to answer that it goes on: it only waits for that.
const ANSWERS: Duration = Duration::from_secs(2);
/// How long the word of a death may take that the end of its socket foretold: where the machine has no processor left,
/// the thread that watches gets none either.
const DIES: Duration = Duration::from_secs(10);

/// What robustd starts a spare with.
#[derive(Debug, Args)]
pub struct SpareArgs {
    /// What it can become.
    role: Kind,
    /// The resolved job file.
    #[arg(long)]
    job: PathBuf,
    /// Folder of the shared-memory snapshots.
    #[arg(long)]
    snapshot_dir: PathBuf,
    /// The daemon's state directory, which the program does not see.
    #[arg(long)]
    state_dir: PathBuf,
}

/// The roles that programs wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Trainer,
}

impl Kind {
    fn role(self) -> Role {
        match self {
            Self::Trainer => Role::Trainer,
        }
    }
}

/// A program that waits.
pub struct Waiting {
    tree: Arc<Tree>,
    died: UnboundedReceiver<Died>,
    /// Rings when one is told there, for who waits for several things.
    bell: Arc<OwnedFd>,
    socket: OwnedFd,
    started: AsStarted,
    files: Files,
    /// Marks its processes.
    home: Home,
}

/// What there is to be heard.
struct Heard {
    /// The daemon says something, or ended.
    daemon: bool,
    /// So does the program, or what it waits on.
    program: bool,
}

/// Starts the program, and waits until this process is to be a life: its command line, and the program. None where this
/// process is to end instead, without a reason against others like it.
pub fn stand_by(args: &SpareArgs) -> Result<Option<(Vec<String>, Waiting)>, ShimError> {
    let job = RoleArgs::read_job(&args.job)?;
    let command = job.trainer.command.as_ref().ok_or(ShimError::NoTrainer)?;
    // The daemon starts no other. One that is to run as another user would run here as this one.
    if !command.can_wait() {
        let reason = "trainer.command starts no program that waits in robustrl.attach()";
        return Err(ShimError::NeverReady(reason.to_owned()));
    }
    let mut waiting = Waiting::start(&job, command, args)?;
    let comes = waiting.comes_to_wait(command.ready.timeout())?;
    if !comes || !spare::say_ready() || !waiting.is_wanted()? {
        return Ok(None);
    }
    let argv = spare::become_life().map_err(not_held)?;
    Ok(argv.map(|argv| (argv, waiting)))
}

impl Waiting {
    fn start(job: &Job, command: &TrainerCommand, args: &SpareArgs) -> Result<Self, ShimError> {
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (socket, its) = pair.map_err(not_held)?;
        let role = args.role.role();
        let home = Home::of(&args.snapshot_dir, &mark(role));
        let mut variables = gang::of_waiting(&job.job.name);
        // A rank has those that this process has.
        let of_router = [ROUTER_VARIABLE, ROUTER_KEY_VARIABLE].into_iter();
        let of_router = of_router.filter(|name| std::env::var_os(name).is_some());
        variables.extend(of_router.map(|name| (name.into(), UNTIL_ATTACHED.into())));
        variables.insert(VARIABLE.into(), its.as_raw_fd().to_string().into());
        let folder = |index| folder_of(&args.state_dir, InstanceId { role, index });
        let folders = (0..job.trainer.ranks).map(folder);
        let folders = folders.collect::<Result<Vec<_>, StartError>>()?;
        let around = (args.state_dir.as_path(), args.snapshot_dir.as_path());
        let hidden = hidden_from_waiting(job.job.hide_state, around, folders, &command.cwd);
        let line = Command::of_spare(job, command, &variables, &home)?;
        let line = line.hiding(hidden.map_err(StartError::from)?);
        let started = line.as_started();
        // From before it reads them.
        let files = Files::of(&started);
        let child = line.start_beside(its)?;
        let Watched { tree, died, bell } = watch(child)?;
        Ok(Self {
            tree,
            died,
            bell,
            socket,
            started,
            files,
            home,
        })
    }

    /// Whether the program waits within this time, which is an error if it does not. False where the daemon ended.
    fn comes_to_wait(&mut self, limit: Duration) -> Result<bool, ShimError> {
        let begun = Instant::now();
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            let heard = self.hear(left.min(LOOK_EVERY)).map_err(not_held)?;
            if heard.daemon {
                // It says nothing before it is told that all is ready.
                return Ok(false);
            }
            self.still_lives(false)?;
            if heard.program {
                let mut word = [0u8; 16];
                let read = recv(&self.socket, &mut word, RecvFlags::DONTWAIT);
                return match read {
                    Ok((_, read)) if word.get(..read) == Some(READY) => Ok(true),
                    _ => self.let_go(false),
                };
            }
            if begun.elapsed() >= limit {
                return Err(ShimError::NeverReady(format!(
                    "the program does not wait in robustrl.attach(): it did not call it within {} s \
                     (trainer.command.ready.timeout_s)",
                    limit.as_secs_f64()
                )));
            }
        }
    }

    /// Waits until the daemon has something to say. False where the files were changed that the program had read.
    fn is_wanted(&mut self) -> Result<bool, ShimError> {
        loop {
            let heard = self.hear(LOOK_EVERY).map_err(not_held)?;
            self.still_lives(true)?;
            if heard.program {
                return self.let_go(true);
            }
            if let Some(changed) = self.files.changed() {
                tracing::info!("ends: {} was changed", changed.display());
                return Ok(false);
            }
            if heard.daemon {
                return Ok(true);
            }
        }
    }

    /// Waits for any of it, so long at most.
    fn hear(&self, within: Duration) -> io::Result<Heard> {
        let stdin = io::stdin();
        let mut all = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(&self.bell, PollFlags::IN),
        ];
        let wait = Timespec::try_from(within).unwrap_or_default();
        retry_on_intr(|| poll(&mut all, Some(&wait)))?;
        let [daemon, program, _] = all.map(|one| !one.revents().is_empty());
        Ok(Heard { daemon, program })
    }

    /// An error where it ended, which `waits` or did not come to that.
    fn still_lives(&mut self, waits: bool) -> Result<(), ShimError> {
        match self.died.try_recv() {
            Ok(death) => Err(ended(&death, waits)),
            Err(_) => Ok(()),
        }
    }

    /// Why it does not wait any more: mostly for it just died. False where the daemon ended before that is known.
    fn let_go(&mut self, waits: bool) -> Result<bool, ShimError> {
        let stdin = io::stdin();
        let mut all = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::new(&self.bell, PollFlags::IN),
        ];
        let begun = Instant::now();
        let polled = retry_on_intr(|| {
            let left = DIES.saturating_sub(begun.elapsed());
            let left = Timespec::try_from(left).unwrap_or_default();
            poll(&mut all, Some(&left))
        });
        polled.map_err(not_held)?;
        let [daemon, _] = all.map(|one| !one.revents().is_empty());
        self.still_lives(waits)?;
        let lives = "the program let go of what it was to wait on, or said something else";
        match (waits, daemon) {
            (false, true) => Ok(false),
            (false, false) => Err(ShimError::NeverReady(lives.to_owned())),
            (true, _) => Err(ShimError::Engine(lives.to_owned())),
        }
    }

    /// The program goes on as that of this rank, as `command` would have been started, and its deaths are told there.
    /// None where it cannot, and is ended: `command` is to be started.
    pub fn become_rank(
        mut self,
        command: &Command,
        home: &Home,
        deaths: UnboundedSender<Died>,
    ) -> Option<Hosted> {
        if let Err(why) = self.tell(command, home) {
            tracing::warn!("the program that waited is ended, and another one started: {why}");
            return None;
        }
        tracing::info!(
            pid = self.tree.leader(),
            "the program is the one that waited"
        );
        let Self { tree, mut died, .. } = self;
        tokio::spawn(async move {
            while let Some(death) = died.recv().await {
                if deaths.send(death).is_err() {
                    return;
                }
            }
        });
        Some(Hosted::of(tree, home))
    }

    fn tell(&mut self, command: &Command, home: &Home) -> Result<(), String> {
        if let Ok(death) = self.died.try_recv() {
            return Err(death.to_string());
        }
        if let Some(changed) = self.files.changed() {
            return Err(format!("{} was changed", changed.display()));
        }
        let handed = command.handed_to(&self.started)?;
        // Texts alone: it always encodes.
        let text = serde_json::to_vec(&handed).unwrap_or_default();
        if text.len() > MOST_BYTES {
            return Err(format!("its environment has {} bytes", text.len()));
        }
        let noted = home.note_waited(self.home.owner());
        noted.map_err(|error| format!("its mark is not written down: {error}"))?;
        // The life's log by now.
        let log = io::stderr();
        hand_over(self.socket.as_fd(), &text, log.as_fd(), TAKEN, ANSWERS)
            .map_err(|error| error.to_string())?;
        // One that answers later hears the end instead, and asks nothing of this rank, whose program is another one.
        send(&self.socket, GO, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            .map_err(|error| format!("it is gone: {error}"))?;
        Ok(())
    }
}

/// A program that is watched.
struct Watched {
    tree: Arc<Tree>,
    died: UnboundedReceiver<Died>,
    bell: Arc<OwnedFd>,
}

/// Watches the program and all that it starts.
fn watch(child: Child) -> Result<Watched, ShimError> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(not_held)?);
    let (deaths, died) = mpsc::unbounded_channel();
    let ring = Arc::clone(&bell);
    let tree = Tree::watch(child, Policy::of_program(), move |death| {
        // Nobody listens only when this process is ending.
        let _ = deaths.send(death);
        let _ = write(&ring, &1u64.to_ne_bytes());
    })?;
    let tree = Arc::new(tree);
    Ok(Watched { tree, died, bell })
}

/// The end of a program before it was told which rank it is: one that ended by itself before it waited will do so again.
fn ended(death: &Died, waits: bool) -> ShimError {
    let told = log::last_exception().or_else(log::last_uncaught);
    let reason = match told.or_else(log::last_line) {
        Some(line) => format!("{death}: {line}"),
        None => death.to_string(),
    };
    match death.how {
        How::Exit(_) if death.leader && !waits => ShimError::NeverReady(format!(
            "the program does not wait in robustrl.attach(): {reason}"
        )),
        _ => ShimError::Engine(format!("the program that waited ended: {reason}")),
    }
}

/// The system refuses what holds a program that waits.
fn not_held(error: impl Display) -> ShimError {
    ShimError::Engine(format!("no program that waits can be held: {error}"))
}

/// Names a spare among all of this machine.
fn mark(role: Role) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_us = since.map_or(0, |since| since.as_micros());
    format!("spare-{role}-{}-{now_us}", std::process::id())
}

/// The files that a command line names, as they were.
struct Files(Vec<(PathBuf, Stamp)>);

/// When a file was written, its number and its bytes.
type Stamp = (SystemTime, u64, u64);

impl Files {
    fn of(started: &AsStarted) -> Self {
        let named = started.argv().iter().map(|text| started.cwd().join(text));
        let files = named.filter_map(|path| {
            let stamp = stamp(&path)?;
            Some((path, stamp))
        });
        Self(files.collect())
    }

    /// One that is another now, or none.
    fn changed(&self) -> Option<&Path> {
        let is_other = |(path, was): &&(PathBuf, Stamp)| stamp(path).as_ref() != Some(was);
        self.0.iter().find(is_other).map(|(path, _)| path.as_path())
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let about = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((about.modified().ok()?, about.ino(), about.len()))
}
