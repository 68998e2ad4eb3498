//! The one thread that waits on all pidfds.
use super::Died;
use super::member::{Process, gone};
use super::table::Table;
use crate::child::Child;
use crate::policy::Policy;
use crate::proc::Stat;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Wakes the thread to end; no member has this number.
const WAKE: u64 = 0;

/// However long a scan takes, new members are found within this: well before their deaths count.
const SLOWEST: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Shared {
    epoll: OwnedFd,
    wake: OwnedFd,
    table: Mutex<Table>,
    /// A member has departed.
    departed: Condvar,
}

impl Shared {
    pub fn new(mut child: Child, policy: Policy) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(WAKE);
        epoll::add(&epoll, &wake, data, epoll::EventFlags::IN)?;
        // Nobody has reaped it, so even when it is dead its stat is there.
        let stat = Stat::read(child.pid)?;
        let pidfd = child.pidfd.as_ref().ok_or_else(gone)?.try_clone()?;
        let mut leader = Process::new(child.pid, pidfd, stat, &policy);
        leader.leader = true;
        let mut table = Table::new(policy);
        table.add(&epoll, leader)?;
        // The table has it now: it is not killed when `child` is dropped.
        child.pidfd = None;
        Ok(Self {
            epoll,
            wake,
            table: Mutex::new(table),
            departed: Condvar::new(),
        })
    }

    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table after a scan.
    pub fn scanned(&self) -> MutexGuard<'_, Table> {
        let mut table = self.table();
        table.scan(&self.epoll);
        table
    }

    /// Waits until a member departs, at most this long.
    pub fn wait_departure(&self, table: MutexGuard<'_, Table>, timeout: Duration) {
        let _ = self.departed.wait_timeout(table, timeout);
    }

    pub fn stop(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    pub fn run(&self, mut on_died: impl FnMut(Died)) {
        let started = Instant::now();
        let mut next_scan = started;
        let mut ready = Vec::with_capacity(64);
        loop {
            let now = Instant::now();
            if now >= next_scan {
                self.table().scan(&self.epoll);
                next_scan = Instant::now() + pace(started.elapsed(), now.elapsed());
            }
            let timeout = next_scan.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(timeout).unwrap_or_default();
            ready.clear();
            let space = rustix::buffer::spare_capacity(&mut ready);
            match epoll::wait(&self.epoll, space, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => {
                    tracing::error!("cannot wait for process ends: {e}");
                    return;
                }
            }
            // Before anything else is done, so that everything after it counts as the caller's.
            let at = Instant::now();
            for event in &ready {
                match event.data.u64() {
                    WAKE => return,
                    serial => self.on_end(serial, at, &mut on_died),
                }
                // The orphans that it left.
                next_scan = at;
            }
        }
    }

    fn on_end(&self, serial: u64, at: Instant, on_died: &mut impl FnMut(Died)) {
        let departed = self.table().depart(&self.epoll, serial, at);
        let Some(departed) = departed else { return };
        self.departed.notify_all();
        let process = departed.process;
        let died = Died {
            pid: process.pid,
            name: process.name,
            how: departed.how,
            leader: process.leader,
            at,
        };
        tracing::debug!(counts = departed.counts, "{died}");
        if departed.counts {
            on_died(died);
        }
    }
}

/// How long after a scan the next one is due: an engine starts its processes early in its life.
/// Scanning hundreds of threads takes milliseconds, of which there are to be two in a hundred.
fn pace(age: Duration, scan_took: Duration) -> Duration {
    let usual = match age.as_secs() {
        0..2 => Duration::from_millis(20),
        2..10 => Duration::from_millis(100),
        _ => Duration::from_millis(250),
    };
    usual.max((scan_took * 50).min(SLOWEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_many_threads_is_scanned_less_often() {
        let ms = Duration::from_millis;
        let old = Duration::from_secs(60);
        assert_eq!(pace(Duration::ZERO, ms(0)), ms(20));
        assert_eq!(pace(old, ms(1)), ms(250));
        assert_eq!(pace(old, ms(13)), ms(650));
        assert_eq!(pace(old, ms(1000)), SLOWEST);
    }
}
