//! Spares as the launcher watches them: they wait beside its lives, and become one.
use super::super::spares::{Begun, NotTaken, Spare, SpareEnd, Spares, sockets};
use super::super::{Parked, Running, SpareSeen, SpawnError, SpawnSpec, spawn};
use super::{Launcher, Shared, Watched, kill_and_reap};
use crate::launcher::proc_stat::ProcStat;
use crate::launcher::tail::tail;
use robust_tree::Group;
use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use std::collections::hash_map::Entry;
use std::io;
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

impl Launcher {
    /// Has so many spares of each of these wait, and no others. Blocks for the starts; nothing is done where another
    /// call is at it.
    pub fn keep_spares(&self, wanted: &[(Parked, u32)]) {
        let Ok(_only) = self.shared.keeping.try_lock() else {
            return;
        };
        let round = {
            let mut spares = self.shared.spares();
            spares.end_others(wanted);
            spares.round()
        };
        for (parked, count) in wanted {
            let missing = self.shared.spares().missing(parked, *count);
            for _ in 0..missing {
                self.shared.start_spare(round, parked);
            }
        }
    }

    /// Whether [`Self::keep_spares`] would find nothing to do.
    pub fn has_spares(&self, wanted: &[(Parked, u32)]) -> bool {
        self.shared.spares().are(wanted)
    }

    /// Kills all spares, those too that are being started.
    pub fn end_spares(&self) {
        self.shared.spares().end_all();
    }

    /// The spares that wait.
    pub fn spares(&self) -> Vec<SpareSeen> {
        self.shared.spares().seen()
    }
}

impl Shared {
    fn spares(&self) -> MutexGuard<'_, Spares> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_spare(&self, round: u64, parked: &Parked) {
        let number = {
            let mut spares = self.spares();
            if spares.round() != round {
                return;
            }
            spares.next()
        };
        if let Err(error) = self.begin_spare((number, round), parked) {
            let times = self.spares().failed(parked, Instant::now());
            tracing::warn!("a spare for {} is not started: {error}", parked.role.name());
            say_given_up(parked, times);
        }
    }

    fn begin_spare(&self, (number, round): (u64, u64), parked: &Parked) -> Result<(), SpawnError> {
        let spec = parked.spec(number);
        let (ours, its) = sockets()?;
        let group = self.groups.make(&spec)?;
        let (spawn::Started { pid, .. }, group) = self.begin(&spec, group, Some(&its))?;
        let begun = match self.begun(number, pid) {
            Ok(begun) => Begun { group, ..begun },
            Err(source) => {
                kill_and_reap(pid);
                if let Some(group) = group {
                    self.groups.end(group, Instant::now());
                }
                return Err(SpawnError::Watch { pid, source });
            }
        };
        let spare = Spare::new(number, parked.clone(), begun, ours);
        let mut spares = self.spares();
        match spares.round() == round {
            true => spares.add(spare),
            // All were ended while it was started.
            false => spares.end(spare),
        }
        Ok(())
    }

    /// In no group yet.
    fn begun(&self, number: u64, pid: u32) -> io::Result<Begun> {
        let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let id = id.ok_or(io::ErrorKind::InvalidInput)?;
        let pidfd = pidfd_open(id, PidfdFlags::empty())?;
        let start_time = ProcStat::read(pid)?.start_time;
        let data = epoll::EventData::new_u64(Spare::data(number));
        epoll::add(&self.epoll, &pidfd, data, epoll::EventFlags::IN)?;
        Ok(Begun {
            pidfd,
            pid: id,
            process: Running { pid, start_time },
            group: None,
        })
    }

    /// A spare that is this life from now on; none where none is ready, and it is started as any other.
    pub(super) fn take_spare(&self, spec: &SpawnSpec) -> Option<Running> {
        let parked = spec.parked.as_deref()?;
        loop {
            let spare = self.spares().take(parked)?;
            let pid = spare.process.pid;
            match self.make_life(spare, spec) {
                Ok(running) => return Some(running),
                Err(not_taken) => {
                    let (spare, why) = *not_taken;
                    self.spares().end(spare);
                    tracing::warn!(
                        "{}: its spare, process {pid}, is ended: {why}",
                        spec.incarnation
                    );
                    // The others may be as slow: no start waits for a second one, nor does the next start.
                    if why.may_be_of_others() {
                        self.spares().end_like(parked);
                        return None;
                    }
                }
            }
        }
    }

    fn make_life(&self, spare: Spare, spec: &SpawnSpec) -> Result<Running, Box<(Spare, NotTaken)>> {
        let (log, from) = match spawn::open_log(spec) {
            Ok((log, from)) => (OwnedFd::from(log), from),
            // The start that follows says so.
            Err(error) => return untaken(spare, NotTaken::Untold(io::Error::other(error))),
        };
        if let Err(why) = spare.hand_over(spec, &log) {
            return untaken(spare, why);
        }
        let mut table = self.table();
        let Entry::Vacant(place) = table.entry(spec.incarnation.0) else {
            let running = io::ErrorKind::AlreadyExists.into();
            return untaken(spare, NotTaken::Untold(running));
        };
        let data = epoll::EventData::new_u64(spec.incarnation.0);
        if let Err(error) = epoll::modify(&self.epoll, &spare.pidfd, data, epoll::EventFlags::IN) {
            return untaken(spare, NotTaken::Untold(error.into()));
        }
        let (process, table_key) = (spare.process, spare.parked.limits.as_ref());
        let memory = spare.group.as_ref().and_then(Group::memory);
        let oom = match (memory, table_key) {
            (Some(limit), Some(of)) => {
                let key = format!("{}.memory", of.table);
                Some(self.oom().begin_limited(limit, key))
            }
            _ => self.oom().begin(process.pid),
        };
        tracing::info!(
            "{} is the spare that waited as process {}",
            spec.incarnation,
            process.pid
        );
        place.insert(Watched {
            pidfd: spare.pidfd,
            pid: spare.pid,
            process,
            is_child: true,
            log: Some((spec.log_path.clone(), from)),
            group: spare.group,
            oom,
            asked: false,
        });
        Ok(process)
    }

    pub(super) fn on_spare_end(&self, number: u64, at: Instant) {
        let ended = self.spares().ended(number, at);
        let spare = match ended {
            // It was made a life meanwhile: its end is told again, as that life's.
            None => return,
            Some(SpareEnd::Killed(spare)) => spare,
            Some(SpareEnd::Waiting(spare, times)) => {
                say_ended(&spare, times);
                spare
            }
            Some(SpareEnd::Never(spare)) => {
                say_never(&spare.parked);
                spare
            }
        };
        let _ = epoll::delete(&self.epoll, &spare.pidfd);
        // As long as its zombie stands, its id names this group and no other.
        let _ = kill_process_group(spare.pid, Signal::KILL);
        let _ = waitid(WaitId::PidFd(spare.pidfd.as_fd()), WaitIdOptions::EXITED);
        if let Some(group) = spare.group {
            self.groups.end(group, at);
        }
    }
}

fn untaken<T>(spare: Spare, why: NotTaken) -> Result<T, Box<(Spare, NotTaken)>> {
    Err(Box::new((spare, why)))
}

fn say_ended(spare: &Spare, times: Option<u32>) {
    let (role, log) = (spare.parked.role.name(), spare.parked.log_path.display());
    let pid = spare.process.pid;
    tracing::warn!("a spare for {role}, process {pid}, ended: {log} says why");
    if let Some(times) = times {
        say_given_up(&spare.parked, times);
    }
}

/// The last words of such a spare say why.
fn say_never(parked: &Parked) {
    let (role, log) = (parked.role.name(), parked.log_path.display());
    let said = tail(&parked.log_path, 0);
    // Others like it write there, too.
    let mut errors = said
        .lines()
        .rev()
        .filter_map(|line| line.strip_prefix("error: "));
    let why = errors.next().unwrap_or("its log does not say why");
    tracing::warn!(
        "no spare for {role} is started any more until the job file is changed ({log}): {why}"
    );
}

fn say_given_up(parked: &Parked, times: u32) {
    if Spares::is_last(times) {
        let (role, log) = (parked.role.name(), parked.log_path.display());
        tracing::warn!(
            "{times} spares for {role} in a row did not come up, or ended soon after that: none is started any more until \
             the job file is changed ({log})"
        );
    }
}
