//! One process of the tree.
use super::{Member, exit};
use crate::child::raw;
use crate::policy::{How, Kind, Policy};
use crate::proc::{Stat, name_and_command};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use std::io;
use std::time::Instant;

#[derive(Debug)]
pub struct Process {
    pub pid: u32,
    pub pidfd: OwnedFd,
    pub leader: bool,
    pub first_seen: Instant,
    pub was_there_at_ready: bool,
    pub name: String,
    pub kind: Kind,
    /// As last read.
    pub stat: Stat,
    /// Processor time that members which were its children had used when they died.
    pub dead_children_ticks: u64,
}

impl Process {
    /// Holds a process that lives. `None` when it does not, or is not the one that was meant.
    pub fn hold(pid: u32, meant: impl FnOnce(&Stat) -> bool, policy: &Policy) -> Option<Self> {
        let pidfd = pidfd_open(raw(pid).ok()?, PidfdFlags::empty());
        let pidfd = pidfd
            .inspect_err(|e| {
                if *e != rustix::io::Errno::SRCH {
                    tracing::warn!("cannot hold process {pid}: {e}");
                }
            })
            .ok()?;
        // Read after the pidfd is open: what it says is of the process the pidfd holds, unless
        // that one is gone by then, which the pidfd would say.
        let stat = Stat::read(pid).ok()?;
        if !meant(&stat) {
            return None;
        }
        if is_dead(&pidfd) {
            // An orphan that died unseen.
            reap(&pidfd);
            return None;
        }
        Some(Self::new(pid, pidfd, stat, policy))
    }

    pub fn new(pid: u32, pidfd: OwnedFd, stat: Stat, policy: &Policy) -> Self {
        let mut process = Self {
            pid,
            pidfd,
            leader: false,
            first_seen: Instant::now(),
            was_there_at_ready: false,
            name: String::new(),
            kind: Kind::Engine,
            stat,
            dead_children_ticks: 0,
        };
        process.refresh_name(policy);
        process
    }

    /// Reads it anew. Titles are set after the start, and programs executed.
    pub fn refresh(&mut self, policy: &Policy) {
        match Stat::read(self.pid) {
            Ok(stat) if stat.start_time == self.stat.start_time => self.stat = stat,
            _ => return,
        }
        if !self.stat.is_zombie() {
            self.refresh_name(policy);
        }
    }

    fn refresh_name(&mut self, policy: &Policy) {
        // One that is just being executed, or just died, shows no command line.
        if let Ok((name, command)) = name_and_command(self.pid)
            && (!command.is_empty() || self.name.is_empty())
        {
            self.kind = policy.kind(&name, &command);
            self.name = name;
        }
    }

    pub fn member(&self) -> Member {
        Member {
            pid: self.pid,
            start_time: self.stat.start_time,
            name: self.name.clone(),
            leader: self.leader,
        }
    }

    pub fn lives(&self) -> bool {
        !is_dead(&self.pidfd)
    }

    /// What is known of its end, after its pidfd fired. Reaps it when it is the caller's child.
    pub fn ended(&mut self) -> How {
        let zombie = Stat::read(self.pid)
            .ok()
            .filter(|stat| stat.start_time == self.stat.start_time && stat.is_zombie());
        if let Some(how) = reap(&self.pidfd) {
            self.stat = zombie.unwrap_or(self.stat.clone());
            return how;
        }
        match zombie {
            Some(stat) => {
                self.stat = stat;
                How::from_wait_status(self.stat.wait_status)
            }
            None => exit::told(&self.pidfd).unwrap_or(How::Unknown),
        }
    }

    /// Its own processor time, and that of descendants which were never members.
    pub fn ticks(&self) -> u64 {
        let unseen = self.stat.children_ticks;
        self.stat.own_ticks + unseen.saturating_sub(self.dead_children_ticks)
    }

    /// What it adds to the time of the children that its parent waited for.
    pub fn ticks_for_parent(&self) -> u64 {
        self.stat.own_ticks + self.stat.children_ticks
    }
}

/// Whether all threads of the process have ended.
fn is_dead(pidfd: &OwnedFd) -> bool {
    let mut events = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut events, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// How the process ended, if it is the caller's child.
fn reap(pidfd: &OwnedFd) -> Option<How> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let status = waitid(WaitId::PidFd(pidfd.as_fd()), options).ok()??;
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(How::Exit(code)),
        (None, Some(signal)) => Some(How::Signal(signal)),
        (None, None) => Some(How::Unknown),
    }
}

/// The error of a child that is gone before it could be watched.
pub fn gone() -> io::Error {
    io::ErrorKind::NotFound.into()
}
