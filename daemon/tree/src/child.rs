//! Starting the child.
use crate::hidden::{Hidden, NotHidden};
use crate::netns::{Namespace, Way};
use crate::unshared::Plan;
use crate::{apart, hidden};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, getppid, pidfd_open, pidfd_send_signal,
    set_child_subreaper, set_parent_process_death_signal, waitid,
};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

/// `setproctitle` writes over the memory that `/proc/PID/environ` shows, and the owner by which
/// [`leftovers`](crate::leftovers) knows a process with it, unless this variable is set.
const KEEP_ENVIRONMENT: (&str, &str) = ("SPT_NOENV", "1");

/// What to start.
#[derive(Debug)]
pub struct ChildSpec {
    /// Program and arguments; the program is looked for in the `PATH` of `env`.
    pub argv: Vec<String>,
    /// Its whole environment: nothing of the caller's is added but `SPT_NOENV=1`.
    pub env: Vec<(OsString, OsString)>,
    /// The folder it starts in.
    pub cwd: PathBuf,
    /// Where its output goes.
    pub stdout: OwnedFd,
    /// Where its errors go.
    pub stderr: OwnedFd,
    /// A network of its own, made in the way that [`permitted`](crate::permitted) found.
    pub network: Option<Way>,
    /// What it does not see, and who it is; [`Hidden::permitted`] says whether that can be.
    pub hidden: Option<Hidden>,
    /// A descriptor that it inherits under the number that it has here.
    pub beside: Option<OwnedFd>,
}

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The argv is empty.
    #[error("nothing to start: the command line is empty")]
    NoProgram,
    /// The caller cannot become the one to whom orphans are given.
    #[error("cannot become the subreaper of {program}: {source}")]
    Subreaper {
        /// The program.
        program: String,
        /// The system's words.
        source: io::Error,
    },
    /// The program does not start.
    #[error("cannot start {program}: {source}")]
    Exec {
        /// The program.
        program: String,
        /// The system's words.
        source: io::Error,
    },
    /// The program cannot be started, or what it was to have for itself cannot be made.
    #[error("cannot start {program} with a network or a view of files of its own: {source}")]
    ExecIsolated {
        /// The program.
        program: String,
        /// The system's words.
        source: io::Error,
    },
    /// Nothing can be hidden from it.
    #[error("cannot hide anything from {program}: {source}")]
    NotHidden {
        /// The program.
        program: String,
        /// Why.
        source: NotHidden,
    },
    /// It started, cannot be held, and was killed again.
    #[error("cannot hold {program}, process {pid}: {source}")]
    Hold {
        /// The program.
        program: String,
        /// Its process id.
        pid: u32,
        /// The system's words.
        source: io::Error,
    },
}

/// Makes this process the one to whom the kernel gives the orphans among its descendants.
pub fn become_subreaper() -> io::Result<()> {
    // Any process id switches it on.
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// A started process. When this is dropped before [`Tree::watch`](crate::Tree::watch) has taken
/// it, the process is killed and reaped.
#[derive(Debug)]
pub struct Child {
    pub(crate) pid: u32,
    /// Taken by the tree.
    pub(crate) pidfd: Option<OwnedFd>,
    namespace: Option<Namespace>,
}

impl Child {
    /// Starts a process in the session and process group of the caller, which becomes a
    /// subreaper. It gets SIGKILL when the caller dies, and inherits descriptors 0 (null), 1, 2 and the
    /// one beside them only. Blocks until it runs its program.
    pub fn start(spec: ChildSpec) -> Result<Self, StartError> {
        let program = spec.argv.first().ok_or(StartError::NoProgram)?.clone();
        if spec.hidden.as_ref().is_some_and(|of| of.way().is_none()) {
            let source = NotHidden::Root;
            return Err(StartError::NotHidden { program, source });
        }
        become_subreaper().map_err(|source| StartError::Subreaper {
            program: program.clone(),
            source,
        })?;
        // Whatever appears from now on belongs to the child's tree.
        apart::set_present_apart();
        let way = spec.way();
        let network = spec.network.and(way);
        let started = on_lasting_thread(move || spawn(spec)).and_then(|started| started);
        let pid = started.map_err(|source| {
            let program = program.clone();
            match way {
                None => StartError::Exec { program, source },
                Some(_) => StartError::ExecIsolated { program, source },
            }
        })?;
        Self::hold(pid, network).map_err(|source| {
            kill_child(pid);
            StartError::Hold {
                program,
                pid,
                source,
            }
        })
    }

    fn hold(pid: u32, network: Option<Way>) -> io::Result<Self> {
        // Nobody else reaps it, so the id is its own until the pidfd is open.
        let pidfd = pidfd_open(raw(pid)?, PidfdFlags::empty())?;
        let namespace = network.map(|way| Namespace::of(pid, way)).transpose()?;
        Ok(Self {
            pid,
            pidfd: Some(pidfd),
            namespace,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Takes its network, when it was given one.
    pub fn take_namespace(&mut self) -> Option<Namespace> {
        self.namespace.take()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(pidfd) = self.pidfd.take() {
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
        }
    }
}

pub(crate) fn raw(pid: u32) -> io::Result<Pid> {
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    id.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn kill_child(pid: u32) {
    if let Ok(pid) = raw(pid) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
    }
}

fn spawn(spec: ChildSpec) -> io::Result<u32> {
    let way = spec.way();
    let mut command = Command::new(&spec.argv[0]);
    command
        .args(&spec.argv[1..])
        .env_clear()
        .envs([KEEP_ENVIRONMENT])
        .envs(spec.env)
        .stdin(Stdio::null())
        .stdout(spec.stdout)
        .stderr(spec.stderr);
    let unshared = match (way, spec.hidden) {
        (Some(way), Some(hidden)) => {
            let hidden = hidden::Plan::new(&hidden, &spec.cwd)?;
            Some(Plan::new(way, spec.network.is_some(), Some(hidden)))
        }
        (way, _) => {
            command.current_dir(spec.cwd);
            way.map(Plan::network)
        }
    };
    prepare(&mut command, unshared, spec.beside);
    Ok(command.spawn()?.id())
}

impl ChildSpec {
    /// In which way all that it has for itself is made. None where there is nothing of that.
    fn way(&self) -> Option<Way> {
        let hidden = self.hidden.as_ref().and_then(Hidden::way);
        match (self.network, hidden) {
            // One user namespace is made for both.
            (Some(Way::UserNamespace), Some(_)) | (Some(_), Some(Way::UserNamespace)) => {
                Some(Way::UserNamespace)
            }
            (network, hidden) => hidden.or(network),
        }
    }
}

/// What the child does between fork and exec.
#[allow(unsafe_code)]
fn prepare(command: &mut Command, mut unshared: Option<Plan>, beside: Option<OwnedFd>) {
    let parent = getpid();
    let in_child = move || {
        // First, since new credentials clear the parent-death signal.
        if let Some(unshared) = &mut unshared {
            unshared.enter()?;
        }
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(parent) {
            // The parent died before that was set: nobody would kill this one.
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let (first, last) = (3 as libc::c_uint, libc::c_uint::MAX);
        // SAFETY: a plain system call on integers, marking descriptors of the forked child. Before
        // Linux 5.11 it fails, which is fine: Rust opens everything with close-on-exec.
        unsafe {
            libc::syscall(
                libc::SYS_close_range,
                first,
                last,
                libc::CLOSE_RANGE_CLOEXEC,
            );
        }
        if let Some(beside) = &beside {
            fcntl_setfd(beside, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes async-signal-safe system calls only, and
    // neither allocates nor locks; errors are made of their numbers.
    unsafe {
        command.pre_exec(in_child);
    }
}

type Job = Box<dyn FnOnce() + Send>;

static FORKER: Mutex<Option<Sender<Job>>> = Mutex::new(None);

/// Runs something on a thread that lives as long as this process: the parent-death signal comes
/// when the thread that forked ends, not only when its process does.
fn on_lasting_thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, result) = channel();
    let job: Job = Box::new(move || {
        let _ = sender.send(run());
    });
    let mut forker = FORKER.lock().unwrap_or_else(PoisonError::into_inner);
    if forker.is_none() {
        let (jobs, queue) = channel::<Job>();
        let run_all = move || queue.into_iter().for_each(|job| job());
        std::thread::Builder::new()
            .name("forker".to_owned())
            .spawn(run_all)?;
        *forker = Some(jobs);
    }
    let sent = forker.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
    drop(forker);
    let gone = || io::Error::other("the thread that starts processes is gone");
    if !sent {
        return Err(gone());
    }
    result.recv().map_err(|_| gone())
}
