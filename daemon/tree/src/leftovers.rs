//! Processes that nobody watches any more, found by what they were given in their environment.
use crate::child::raw;
use crate::proc::{self, Stat};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Names, in the environment of a hosted program's processes, whose they are: the folder of its
/// instance in shared memory.
pub const ENGINE_VARIABLE: &str = "ROBUST_ENGINE_OF";

/// In the folder of an instance the file with the mark of a program that waited before it was that instance's: its
/// processes have that one under [`ENGINE_VARIABLE`], and not the instance's folder.
pub const WAITED_FILE: &str = "waited";

/// A living process that belongs to somebody who may be dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its process id.
    pub pid: u32,
    /// Clock ticks since boot; tells it from a later process of the same id.
    pub start_time: u64,
    /// Its title, else the name that the kernel has for it.
    pub name: String,
}

impl Leftover {
    /// SIGKILL to this process, never to a later one of its id; does not wait. False when it is
    /// gone.
    pub fn kill(&self) -> io::Result<bool> {
        let pidfd = match pidfd_open(raw(self.pid)?, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(rustix::io::Errno::SRCH) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let is_it = Stat::read(self.pid).is_ok_and(|stat| stat.start_time == self.start_time);
        match is_it.then(|| pidfd_send_signal(&pidfd, Signal::KILL)) {
            None | Some(Err(rustix::io::Errno::SRCH)) => Ok(false),
            Some(sent) => Ok(sent.map(|()| true)?),
        }
    }
}

/// The living processes whose environment has all of these variables with these values, as the
/// owner's and the incarnation's; never the caller itself. Those that may not be looked at are
/// other users', and none of this owner's.
///
/// A process that cleared its environment is not found. `setproctitle` writes over what `/proc`
/// shows of it, unless `SPT_NOENV` is set, as it is for a [`Child`](crate::Child).
pub fn leftovers(variables: &[(&str, &OsStr)]) -> Vec<Leftover> {
    let own = std::process::id();
    let found = |pid: u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let all = variables
            .iter()
            .all(|(name, value)| variable(&environment, name) == Some(value.as_bytes()));
        let stat = Stat::read(pid).ok()?;
        if pid == own || variables.is_empty() || !all || stat.is_zombie() {
            return None;
        }
        Some(Leftover {
            pid,
            start_time: stat.start_time,
            name: proc::name_and_command(pid).ok()?.0,
        })
    };
    proc::all().filter_map(found).collect()
}

fn variable<'a>(environment: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut entries = environment.split(|byte| *byte == 0);
    entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_matched_whole() {
        let environment = b"XA=1\0A_B=2\0A=3\0";
        assert_eq!(variable(environment, "A"), Some(&b"3"[..]));
        assert_eq!(variable(environment, "B"), None);
    }

    #[test]
    fn without_a_variable_nobody_is_meant() {
        assert_eq!(leftovers(&[]), []);
    }
}
