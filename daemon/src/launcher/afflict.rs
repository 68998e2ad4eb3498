//! Injected faults that a node does to its processes from outside.
use super::proc_stat::ProcStat;
use super::slow::{self, Slowed};
use super::{Launcher, Running, Signal};
use robust_shared::fault::Fault;
use robust_shared::ids::Incarnation;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

/// Does them, and ends what of them lasts.
#[derive(Debug)]
pub struct Afflictions {
    /// This program, which is its own helper.
    program: PathBuf,
    slowed: HashMap<Incarnation, Slowed>,
}

impl Default for Afflictions {
    fn default() -> Self {
        Self {
            program: std::env::current_exe().unwrap_or_else(|_| "robustd".into()),
            slowed: HashMap::new(),
        }
    }
}

impl Afflictions {
    /// Strikes a process; an error says why it is as it was.
    pub fn strike(
        &mut self,
        launcher: &Launcher,
        incarnation: Incarnation,
        fault: &Fault,
    ) -> Result<(), String> {
        let gone = || "it was gone before it could be struck".to_owned();
        // Its helper would let it go on.
        self.forget(incarnation);
        let signal = |signal| match launcher.signal(incarnation, signal) {
            true => Ok(()),
            false => Err(gone()),
        };
        match fault {
            Fault::Kill | Fault::LoseSlot => signal(Signal::KILL),
            Fault::Hang => signal(Signal::STOP),
            Fault::Slow { percent, lasts } => {
                let process = launcher.process(incarnation).ok_or_else(gone)?;
                let args = slow::args_for(process, *percent, *lasts);
                let slowed = Slowed::start(&self.program, launcher, incarnation, args);
                let slowed = slowed.map_err(|e| format!("its helper does not start: {e}"))?;
                self.slowed.insert(incarnation, slowed);
                Ok(())
            }
            Fault::Oom => starve(launcher.process(incarnation).ok_or_else(gone)?),
            other => Err(format!("`{other}` is nothing a node does to a process")),
        }
    }

    /// The life is over, or something else strikes it.
    pub fn forget(&mut self, incarnation: Incarnation) {
        self.slowed.remove(&incarnation);
    }
}

/// Its group gets no more memory: the next allocation fails in each of its processes. A cgroup's
/// limit would end it with SIGKILL, as the kernel does; the roles have no cgroups of their own.
fn starve(process: Running) -> Result<(), String> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let members = members(process.pid);
    let limit = |pid: &u32| {
        let id = i32::try_from(*pid).ok().and_then(Pid::from_raw);
        prlimit(id, Resource::As, none).map_err(|e| format!("no limit for {pid}: {e}"))
    };
    if members.is_empty() {
        return Err("it was gone before it could be struck".to_owned());
    }
    members.iter().try_for_each(|pid| limit(pid).map(drop))
}

/// The processes of a group.
fn members(group: u32) -> Vec<u32> {
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of = |pid: &u32| ProcStat::read(*pid).is_ok_and(|s| s.group == group && !s.is_dead());
    all.filter_map(pid).filter(of).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_process_without_memory_fails_at_the_next_thing_that_needs_some() {
        let mut command = Command::new("sh");
        command.args(["-c", "while sleep 0.01 || exit 7; do :; done"]);
        let mut child = command
            .process_group(0)
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let start_time = ProcStat::read(pid).unwrap().start_time;
        starve(Running { pid, start_time }).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(starve(Running { pid, start_time }).is_err(), "it is gone");
    }
}
