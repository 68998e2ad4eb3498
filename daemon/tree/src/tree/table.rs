//! The members of a tree, and the sums over them.
use super::Member;
use super::member::Process;
use crate::apart;
use crate::policy::{Facts, How, Kind, Policy};
use crate::proc::{Stat, children};
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

/// A member's number: process ids are used again, these are not.
type Serial = u64;

#[derive(Debug)]
pub struct Table {
    policy: Policy,
    processes: HashMap<Serial, Process>,
    by_pid: HashMap<u32, Serial>,
    next: Serial,
    ready: bool,
    ending: bool,
    /// Processor time of the members that died.
    dead_ticks: u64,
    /// The most processor time told so far. One that died counts with its parent only when that
    /// one has waited for it, so that the sum may be a little less for a moment.
    most_ticks: u64,
    /// Whether there was no orphan when the last scan began.
    no_orphans: bool,
}

/// A member that is none any more.
pub struct Departed {
    pub process: Process,
    pub how: How,
    pub counts: bool,
}

impl Table {
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            processes: HashMap::new(),
            by_pid: HashMap::new(),
            next: 1,
            ready: false,
            ending: false,
            dead_ticks: 0,
            most_ticks: 0,
            no_orphans: false,
        }
    }

    pub fn add(&mut self, epoll: &OwnedFd, process: Process) -> io::Result<()> {
        let serial = self.next;
        let data = epoll::EventData::new_u64(serial);
        epoll::add(epoll, &process.pidfd, data, epoll::EventFlags::IN)?;
        self.next += 1;
        self.by_pid.insert(process.pid, serial);
        self.processes.insert(serial, process);
        Ok(())
    }

    /// Reads all members anew, and finds new ones.
    pub fn scan(&mut self, epoll: &OwnedFd) {
        for process in self.processes.values_mut() {
            process.refresh(&self.policy);
        }
        let own = std::process::id();
        let mut parents: Vec<u32> = self.by_pid.keys().copied().collect();
        let mut orphans = Vec::new();
        self.no_orphans = apart::orphans(|pid| orphans.push(pid)) && orphans.is_empty();
        let mut found: Vec<(u32, u32)> = orphans.into_iter().map(|pid| (own, pid)).collect();
        loop {
            while let Some((parent, pid)) = found.pop() {
                if self.find(epoll, parent, pid) {
                    parents.push(pid);
                }
            }
            let Some(parent) = parents.pop() else { break };
            found.extend(children(parent).into_iter().map(|pid| (parent, pid)));
        }
    }

    /// Holds a process that was seen as a child of `parent`. False when it is known or gone.
    fn find(&mut self, epoll: &OwnedFd, parent: u32, pid: u32) -> bool {
        if pid == std::process::id() || self.by_pid.contains_key(&pid) {
            return false;
        }
        // When its id was used again since, its parent is somebody else; when it has just become
        // an orphan, the next scan finds it as such.
        let meant = |stat: &Stat| stat.parent == parent;
        let Some(process) = Process::hold(pid, meant, &self.policy) else {
            return false;
        };
        let added = self.add(epoll, process);
        if let Err(error) = &added {
            tracing::warn!("cannot watch process {pid}: {error}");
        }
        added.is_ok()
    }

    /// Takes the member out whose pidfd fired; `None` when it is known to be dead.
    pub fn depart(&mut self, epoll: &OwnedFd, serial: Serial, at: Instant) -> Option<Departed> {
        // Removal decides who reports: a death is told once.
        let mut process = self.processes.remove(&serial)?;
        self.by_pid.remove(&process.pid);
        let _ = epoll::delete(epoll, &process.pidfd);
        let how = process.ended();
        self.dead_ticks += process.ticks();
        if let Some(serial) = self.by_pid.get(&process.stat.parent)
            && let Some(parent) = self.processes.get_mut(serial)
        {
            parent.dead_children_ticks += process.ticks_for_parent();
        }
        let counts = !self.ending
            && self.policy.counts(Facts {
                kind: process.kind,
                leader: process.leader,
                how,
                lived: at.saturating_duration_since(process.first_seen),
                ready: self.ready,
                was_there: process.was_there_at_ready,
            });
        Some(Departed {
            process,
            how,
            counts,
        })
    }

    pub fn set_ready(&mut self) {
        self.ready = true;
        for process in self.processes.values_mut() {
            // Of those that have just died, nobody has heard yet.
            process.was_there_at_ready = process.lives();
        }
    }

    /// From now on no death is reported.
    pub fn begin_end(&mut self) {
        self.ending = true;
    }

    /// Whether the last scan saw nobody. One orphan is enough to say no, even if it is gone by now:
    /// what it started may have become an orphan after that scan had looked for them.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.no_orphans
    }

    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    pub fn members(&self) -> Vec<Member> {
        let mut members: Vec<Member> = self.processes().map(Process::member).collect();
        members.sort_by_key(|member| member.pid);
        members
    }

    pub fn cpu_time(&mut self) -> Duration {
        let living: u64 = self.processes().map(Process::ticks).sum();
        self.most_ticks = self.most_ticks.max(self.dead_ticks + living);
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        let nanos = u128::from(self.most_ticks) * 1_000_000_000 / u128::from(per_second);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub fn rss_bytes(&self) -> u64 {
        let page = rustix::param::page_size() as u64;
        self.processes().map(|p| p.stat.rss_pages * page).sum()
    }

    /// Signals the leader, or of the others the one that used most processor time itself; helpers that the
    /// engine does without are none. Of equals it is the youngest, which the others wait for.
    pub fn signal_one(&self, leader: bool, signal: Signal) -> Option<Member> {
        let works = |p: &&Process| p.leader == leader && (leader || p.kind != Kind::Tool);
        let used = |p: &&Process| (p.stat.own_ticks, p.stat.start_time, p.pid);
        let living = self.processes().filter(works).filter(|p| p.lives());
        let process = living.max_by_key(used)?;
        let sent = pidfd_send_signal(&process.pidfd, signal);
        sent.is_ok().then(|| process.member())
    }

    /// By pidfd: a process that is gone gets nothing, and no later one of its id either.
    pub fn signal_all(&self, signal: Signal) {
        for process in self.processes() {
            let _ = pidfd_send_signal(&process.pidfd, signal);
        }
    }
}
