//! One thread that waits on all pidfds.
mod spares;

use super::groups::LifeGroups;
use super::oom::OomKills;
use super::patience::Patience;
use super::proc_stat::ProcStat;
use super::spares::{Spare, Spares};
use super::spawn::Started;
use super::{LaunchEvent, LifeGroup, Running, SpawnError, SpawnSpec, spawn, tail};
use robust_shared::core::Exit;
use robust_shared::ids::Incarnation;
use robust_tree::{Group, Groups};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// How long the end of a process waits for the last lines of its log: an exit is told within 100 ms.
const LAST_LINES: Duration = Duration::from_millis(50);

/// How often the kernel's counts of processes that it killed are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Wakes the thread to end; no incarnation has this number.
const WAKE: u64 = u64::MAX;

/// Starts processes and sees their ends. Cheap to clone; the processes live on when the last clone
/// is dropped, only nobody watches them then.
#[derive(Clone)]
pub struct Launcher {
    shared: Arc<Shared>,
    _ending: Arc<Ending>,
}

struct Shared {
    epoll: OwnedFd,
    wake: OwnedFd,
    table: Mutex<HashMap<u64, Watched>>,
    events: UnboundedSender<LaunchEvent>,
    /// For drills: until then no program is found.
    refuses_until: Mutex<Option<Instant>>,
    patience: Patience,
    oom: Mutex<OomKills>,
    groups: LifeGroups,
    spares: Mutex<Spares>,
    /// Held by who has spares started.
    keeping: Mutex<()>,
}

/// Ends the thread with the last launcher.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
    }
}

struct Watched {
    pidfd: OwnedFd,
    pid: Pid,
    process: Running,
    is_child: bool,
    log: Option<(PathBuf, u64)>,
    /// Its own control group.
    group: Option<Group>,
    /// Where the kernel counts what it kills in its control group.
    oom: Option<PathBuf>,
    /// It was sent a signal from here.
    asked: bool,
}

/// A process that is to be watched.
struct Watch {
    incarnation: Incarnation,
    pid: u32,
    log: Option<(PathBuf, u64)>,
    group: Option<Group>,
    /// The table of the job file with its limits.
    table: String,
    /// When one started that an earlier daemon is the parent of; none of a child.
    adopted: Option<u64>,
}

impl Launcher {
    /// Starts the watching thread; ends of processes are sent to `events`. Its processes have no control
    /// groups.
    pub fn new(events: UnboundedSender<LaunchEvent>) -> io::Result<Self> {
        Self::start(events, LifeGroups::default())
    }

    /// The same, with these control groups.
    pub fn with_groups(events: UnboundedSender<LaunchEvent>, groups: Groups) -> io::Result<Self> {
        Self::start(events, LifeGroups::of(groups))
    }

    fn start(events: UnboundedSender<LaunchEvent>, groups: LifeGroups) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(WAKE);
        epoll::add(&epoll, &wake, data, epoll::EventFlags::IN)?;
        let shared = Arc::new(Shared {
            epoll,
            wake,
            table: Mutex::default(),
            events,
            refuses_until: Mutex::default(),
            patience: Patience::default(),
            oom: Mutex::default(),
            groups,
            spares: Mutex::default(),
            keeping: Mutex::default(),
        });
        let watching = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("launcher".to_owned())
            .spawn(move || watching.run())?;
        Ok(Self {
            _ending: Arc::new(Ending(Arc::clone(&shared))),
            shared,
        })
    }

    /// Starts a process in a session and group of its own, and in a control group of its own if it is to have
    /// one; or makes a spare that waits for it this life. Blocks for the exec, or the spare's answer, only.
    pub fn spawn(&self, mut spec: SpawnSpec) -> Result<Running, SpawnError> {
        if let Some(program) = spec.argv.first_mut().filter(|_| self.shared.refuses()) {
            // Nothing has this name, so it is the system that refuses, as where a program is gone.
            program.push_str(" (gone on request)");
        }
        if self.shared.table().contains_key(&spec.incarnation.0) {
            return Err(SpawnError::Running(spec.incarnation));
        }
        // A drill that lets no program be found means all starts.
        if !self.shared.refuses()
            && let Some(running) = self.shared.take_spare(&spec)
        {
            return Ok(running);
        }
        let group = self.shared.groups.make(&spec)?;
        let (Started { pid, from }, group) = self.shared.begin(&spec, group, None)?;
        // The child cannot be reaped before the thread knows it, so its id cannot be reused.
        let watched = self.shared.watch(Watch {
            incarnation: spec.incarnation,
            pid,
            log: Some((spec.log_path, from)),
            group,
            table: spec.group.map(|of| of.table).unwrap_or_default(),
            adopted: None,
        });
        watched.map_err(|source| {
            kill_and_reap(pid);
            SpawnError::Watch { pid, source }
        })
    }

    /// For drills: for so long no process can be started.
    pub fn refuse_starts(&self, lasts: Duration) {
        *self.shared.refuses_until() = Instant::now().checked_add(lasts);
    }

    /// Watches a process that an earlier daemon started, which is in that control group if it is there. False
    /// when it is not that process any more; then nothing is watched and no event will come.
    pub fn adopt(
        &self,
        incarnation: Incarnation,
        process: Running,
        log: Option<&Path>,
        group: Option<&LifeGroup>,
    ) -> bool {
        let end = |path: &Path| std::fs::metadata(path).map_or(0, |m| m.len());
        // What it wrote under the earlier daemon counts too; the tail is short anyway.
        let log = log.map(|path| (path.to_owned(), end(path).saturating_sub(4096)));
        let Running { pid, start_time } = process;
        let watch = Watch {
            incarnation,
            pid,
            log,
            group: group.and_then(|of| self.shared.groups.find(of, pid)),
            table: group.map(|of| of.table.clone()).unwrap_or_default(),
            adopted: Some(start_time),
        };
        self.shared.watch(watch).is_ok()
    }

    /// Ends the control groups of lives that are not watched here, with whatever is in them: what an earlier daemon
    /// left, once all that lives on is adopted. Those of `others` are left.
    pub fn sweep_groups(&self, others: &[&Launcher]) {
        let names = |of: &Launcher| {
            let table = of.shared.table();
            let groups = table.values().filter_map(|w| w.group.as_ref());
            groups.map(|g| g.name().to_owned()).collect::<Vec<_>>()
        };
        let all = [self].into_iter().chain(others.iter().copied());
        self.shared.groups.sweep(all.flat_map(names).collect());
    }

    /// Removes the folder of control groups if no life is left in it; waits a second at most for those that
    /// die.
    pub fn forget_groups(&self) {
        self.shared.groups.forget();
    }

    /// SIGKILL to its whole group; never waits for the end. False when it is not running.
    pub fn kill(&self, incarnation: Incarnation) -> bool {
        self.signal(incarnation, Signal::KILL)
    }

    /// A signal to its whole group. False when it is not running.
    pub fn signal(&self, incarnation: Incarnation, signal: Signal) -> bool {
        // The table stays locked, so that the process cannot be reaped and its id reused between.
        let mut table = self.shared.table();
        let Some(watched) = table.get_mut(&incarnation.0) else {
            return false;
        };
        watched.asked |= signal != Signal::STOP && signal != Signal::CONT;
        watched.is_itself() && kill_process_group(watched.pid, signal).is_ok()
    }

    /// A signal to the leader alone, which passes it on as it sees fit. False when it is not running.
    pub fn ask(&self, incarnation: Incarnation, signal: Signal) -> bool {
        let mut table = self.shared.table();
        let watched = table.get_mut(&incarnation.0);
        watched.is_some_and(|w| {
            w.asked = true;
            pidfd_send_signal(&w.pidfd, signal).is_ok()
        })
    }

    /// What runs as this life.
    pub fn process(&self, incarnation: Incarnation) -> Option<Running> {
        self.shared.table().get(&incarnation.0).map(|w| w.process)
    }

    /// The processes watched now.
    pub fn running(&self) -> Vec<(Incarnation, Running)> {
        self.shared
            .table()
            .iter()
            .map(|(n, w)| (Incarnation(*n), w.process))
            .collect()
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, HashMap<u64, Watched>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn oom(&self) -> MutexGuard<'_, OomKills> {
        self.oom.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuses_until(&self) -> MutexGuard<'_, Option<Instant>> {
        let until = self.refuses_until.lock();
        until.unwrap_or_else(PoisonError::into_inner)
    }

    fn refuses(&self) -> bool {
        self.refuses_until()
            .is_some_and(|until| Instant::now() < until)
    }

    /// Starts a process in this group; without one where it does not get in and does not need to.
    fn begin(
        &self,
        spec: &SpawnSpec,
        group: Option<Group>,
        stdin: Option<&OwnedFd>,
    ) -> Result<(Started, Option<Group>), SpawnError> {
        let error = match spawn::start(spec, group.as_ref(), stdin) {
            Ok(started) => return Ok((started, group)),
            Err(error) => error,
        };
        let Some(group) = group else {
            return Err(error);
        };
        self.groups.end(group, Instant::now());
        let of_group = matches!(error, SpawnError::Join { .. } | SpawnError::Group { .. });
        match &spec.group {
            Some(of) if of_group && !of.needed => {
                self.groups.say(&of.name, &error);
                Ok((spawn::start(spec, None, stdin)?, None))
            }
            _ => Err(error),
        }
    }

    fn watch(&self, watch: Watch) -> io::Result<Running> {
        let Watch {
            incarnation, pid, ..
        } = watch;
        let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let id = id.ok_or(io::ErrorKind::InvalidInput)?;
        let pidfd = pidfd_open(id, PidfdFlags::empty())?;
        // Read after the pidfd is open: what it says is of the process the pidfd holds.
        let stat = ProcStat::read(pid)?;
        if let Some(expected) = watch.adopted
            && (stat.start_time != expected || stat.is_dead())
        {
            return Err(io::ErrorKind::NotFound.into());
        }
        let process = Running {
            pid,
            start_time: stat.start_time,
        };
        let mut table = self.table();
        if table.contains_key(&incarnation.0) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let data = epoll::EventData::new_u64(incarnation.0);
        epoll::add(&self.epoll, &pidfd, data, epoll::EventFlags::IN)?;
        let memory = watch.group.as_ref().and_then(Group::memory);
        let oom = match memory {
            Some(limit) => {
                let key = format!("{}.memory", watch.table);
                Some(self.oom().begin_limited(limit, key))
            }
            None => self.oom().begin(pid),
        };
        table.insert(
            incarnation.0,
            Watched {
                pidfd,
                pid: id,
                process,
                is_child: watch.adopted.is_none(),
                log: watch.log,
                group: watch.group,
                oom,
                asked: false,
            },
        );
        Ok(process)
    }

    fn run(&self) {
        let mut ready = Vec::with_capacity(64);
        loop {
            ready.clear();
            let wait = self.groups.due(Instant::now()).unwrap_or(LOOK).min(LOOK);
            let wait = Timespec {
                tv_sec: i64::try_from(wait.as_secs()).unwrap_or(1),
                tv_nsec: wait.subsec_nanos().into(),
            };
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut ready),
                Some(&wait),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    tracing::error!("cannot wait for process ends: {e}");
                    return;
                }
            }
            // Before anything else is done, so that everything after it counts as the daemon's.
            let at = Instant::now();
            if ready.is_empty() {
                self.oom().look(at);
            }
            self.groups.look(at);
            for event in &ready {
                match event.data.u64() {
                    WAKE => return,
                    data => match Spare::of_data(data) {
                        Some(number) => self.on_spare_end(number, at),
                        None => self.on_end(Incarnation(data), at),
                    },
                }
            }
        }
    }

    fn on_end(&self, incarnation: Incarnation, at: Instant) {
        let ended = {
            let mut table = self.table();
            // Removal decides who reports: the event is sent once.
            let Some(watched) = table.remove(&incarnation.0) else {
                return;
            };
            let _ = epoll::delete(&self.epoll, &watched.pidfd);
            let exit = watched.reap();
            // One that ended well needs no explanation, nor one that was told to.
            let unasked = !watched.asked && exit != Exit::Code(0);
            (exit, unasked, watched)
        };
        let (exit, unasked, watched) = ended;
        let Watched {
            log, group, oom, ..
        } = watched;
        let said = oom.and_then(|file| {
            let mut kills = self.oom();
            let said = unasked.then(|| kills.explain(&file, at)).flatten();
            kills.forget(&file);
            said
        });
        if let Some(group) = group {
            // Before the end is told: what comes next may want what it held.
            self.groups.end(group, at);
        }
        let tail = |(path, from): (PathBuf, u64)| {
            let read = move || tail::tail(&path, from);
            self.patience.read(LAST_LINES, read)
        };
        let mut tail_of_log = log.and_then(tail).unwrap_or_default();
        if let Some(said) = said {
            if !tail_of_log.is_empty() {
                tail_of_log.push('\n');
            }
            tail_of_log.push_str(&said);
        }
        // The receiver is gone when the daemon ends.
        let _ = self.events.send(LaunchEvent::Exited {
            incarnation,
            at,
            exit,
            tail_of_log,
        });
    }
}

/// A child that nobody watches.
fn kill_and_reap(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
    }
}

impl Watched {
    /// Kills what is left of the group, then reaps the leader: as long as its zombie stands, its
    /// id names this group and no other.
    fn reap(&self) -> Exit {
        if self.is_itself() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        if !self.is_child {
            return Exit::Gone;
        }
        let id = WaitId::PidFd(self.pidfd.as_fd());
        match waitid(id, WaitIdOptions::EXITED) {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => Exit::Gone,
            },
            Ok(None) | Err(_) => Exit::Gone,
        }
    }

    /// False when the id is another process's by now. Somebody else reaps an adopted process, so
    /// its id may be free (its group may yet have members) or taken.
    fn is_itself(&self) -> bool {
        self.is_child
            || ProcStat::read(self.process.pid)
                .map_or(true, |stat| stat.start_time == self.process.start_time)
    }
}
