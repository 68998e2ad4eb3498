//! Children of the caller that are no part of the tree.
//!
//! An orphan of the tree and a process that the caller started for itself look alike: both are its
//! children. So the caller says which are its own.
use crate::proc::{Stat, children, children_of_first_thread};
use std::collections::HashSet;
use std::io;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A process by its id and its start time.
pub(crate) type Identity = (u32, u64);

static APART: Mutex<Option<HashSet<Identity>>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<HashSet<Identity>>> {
    APART.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process of the caller's own while a [`Tree`](crate::Tree) is watched. Every other
/// child that appears is taken for an orphan of the tree, which would be reaped and in the end
/// killed.
pub fn apart(start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    // No scan looks at the caller's children meanwhile.
    let mut apart = lock();
    let child = start()?;
    // It cannot be reaped before its `Child` is given back, so its stat is there.
    let stat = Stat::read(child.id())?;
    let known = apart.get_or_insert_default();
    known.retain(|(pid, start)| Stat::read(*pid).is_ok_and(|s| s.start_time == *start));
    known.insert((child.id(), stat.start_time));
    Ok(child)
}

/// Runs what makes a child and has reaped it when it returns.
pub(crate) fn throw_away<T>(run: impl FnOnce() -> T) -> T {
    let _nobody_scans = lock();
    run()
}

/// Takes the children that are there now for the caller's own.
pub(crate) fn set_present_apart() {
    let mut apart = lock();
    let present = children(std::process::id());
    let present = present.into_iter();
    let present = present.filter_map(|pid| Some((pid, Stat::read(pid).ok()?.start_time)));
    apart.get_or_insert_default().extend(present);
}

/// Hands the children of the first thread that are not the caller's own to `each`. Those that
/// other threads started are the caller's; orphans are given to the first thread. False, and
/// nothing is done, while the caller is just starting one.
pub(crate) fn orphans(mut each: impl FnMut(u32)) -> bool {
    let apart = match APART.try_lock() {
        Ok(apart) => apart,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return false,
    };
    for pid in children_of_first_thread(std::process::id()) {
        let Ok(stat) = Stat::read(pid) else { continue };
        let own = apart
            .as_ref()
            .is_some_and(|a| a.contains(&(pid, stat.start_time)));
        if !own {
            each(pid);
        }
    }
    true
}
