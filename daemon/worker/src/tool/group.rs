//! The process group of a tool call.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// The group of a child that began one; none if the child is gone already.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group(Option<i32>);

impl Group {
    pub fn of(child: Option<u32>) -> Self {
        Self(child.and_then(|pid| i32::try_from(pid).ok()))
    }

    /// Kills all of it.
    pub fn kill(self) {
        if let Some(group) = self.0 {
            // It may just have ended by itself.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }

    /// Processor time that its living processes used, and those that they waited for.
    pub fn computed(self) -> Duration {
        let Some(group) = self.0 else {
            return Duration::ZERO;
        };
        let Ok(processes) = fs::read_dir("/proc") else {
            return Duration::ZERO;
        };
        let stat = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("stat")).ok();
        let stats = processes.flatten().filter_map(stat);
        let ticks: u64 = stats.filter_map(|stat| ticks_in(&stat, group)).sum();
        let a_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
        let a_second = u64::try_from(a_second).unwrap_or(100).max(1);
        Duration::from_millis(ticks.saturating_mul(1000) / a_second)
    }
}

/// The ticks of a process by its line in /proc, if it is of this group. The name before them may have
/// blanks and parentheses.
fn ticks_in(stat: &str, group: i32) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let of: i32 = fields.get(2)?.parse().ok()?;
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // utime, stime, and those of children that were waited for.
    (of == group).then(|| (11..15).filter_map(ticks).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ticks_of_a_group_are_read_past_any_name() {
        let stat = "7 (a ) (b) S 1 42 42 0 -1 4194560 9 0 0 0 3 2 10 5 20 0 1 0 100 0 0";
        assert_eq!(ticks_in(stat, 42), Some(20));
        assert_eq!(ticks_in(stat, 43), None);
        assert_eq!(ticks_in("nonsense", 42), None);
    }
}
