//! Processes that the kernel killed for want of memory.
//!
//! ```text
//!  a role starts ──► its control group's count is read, and each second from then on
//!  a role ends   ──► read again: risen by n within the last seconds ──► n ends that nobody asked for are told so
//! ```
//! A life with a limit of its own has a count of its own, which says of its limit whether that was reached.
//! A kill of longer ago was of something else: of a program that a role started, or that of somebody else in the group.
//! The kernel says so in the control group of the process it killed, whether the group's limit or the machine's
//! memory was reached: `memory.events` in version 2 (kernel documentation, cgroup-v2, "Memory Interface Files"),
//! `memory.oom_control` in version 1. Both have a line `oom_kill N`.
use robust_shared::core::{killed_by_limit, killed_for_memory};
use robust_shared::job::MemorySize;
use robust_tree::MemoryLimit;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long after a kill an end may be of it: a program's own is noticed by its shim first.
const RECENT: Duration = Duration::from_secs(10);

const GROUPS: &str = "/sys/fs/cgroup";

/// The counts as they were, and kills that belong to no end yet.
#[derive(Debug, Default)]
pub struct OomKills {
    groups: HashMap<PathBuf, Group>,
}

#[derive(Debug)]
struct Group {
    /// The limit of a life that is alone in it, and the key of the job file that sets it.
    own: Option<(MemoryLimit, String)>,
    seen: u64,
    /// When kills were noticed that belong to no end yet.
    unclaimed: Vec<Instant>,
}

impl Group {
    fn look(&mut self, now: Instant, count: u64) {
        let risen = count.saturating_sub(self.seen).min(MOST);
        self.unclaimed.extend((0..risen).map(|_| now));
        self.unclaimed
            .retain(|at| now.duration_since(*at) <= RECENT);
        self.seen = count;
    }
}

/// More kills than that at a time are as many as that.
const MOST: u64 = 1024;

impl OomKills {
    /// A process has started; its group's file, if it has one.
    pub fn begin(&mut self, pid: u32) -> Option<PathBuf> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let file = files(&groups).into_iter().find(|file| file.is_file())?;
        let now = count(&file)?;
        // Another role of the group has begun earlier: what came since then is still to be told.
        self.groups.entry(file.clone()).or_insert(Group {
            own: None,
            seen: now,
            unclaimed: Vec::new(),
        });
        Some(file)
    }

    /// A process has started in a group of its own with a limit, which this key of the job file sets.
    pub fn begin_limited(&mut self, limit: &MemoryLimit, key: String) -> PathBuf {
        let file = limit.kills.clone();
        let group = Group {
            own: Some((limit.clone(), key)),
            // One that is adopted was not killed by what came before.
            seen: count(&file).unwrap_or(0),
            unclaimed: Vec::new(),
        };
        self.groups.insert(file.clone(), group);
        file
    }

    /// The process has ended that was in a group of its own.
    pub fn forget(&mut self, file: &Path) {
        if self.groups.get(file).is_some_and(|of| of.own.is_some()) {
            self.groups.remove(file);
        }
    }

    /// Looks at all groups.
    pub fn look(&mut self, now: Instant) {
        // A life's own group is removed after its end.
        self.groups.retain(|file, _| file.exists());
        for (file, group) in &mut self.groups {
            if let Some(count) = count(file) {
                group.look(now, count);
            }
        }
    }

    /// A process of the group has ended that nobody asked to; what the kernel says of it, if it does.
    pub fn explain(&mut self, file: &Path, now: Instant) -> Option<String> {
        self.look(now);
        let group = self.groups.get_mut(file)?;
        group.unclaimed.pop()?;
        Some(match &group.own {
            Some((limit, key)) if limit.was_reached() => {
                killed_by_limit(&MemorySize::of_bytes(limit.bytes).to_string(), key)
            }
            _ => killed_for_memory(group.seen, &file.display().to_string()),
        })
    }
}

/// Where the count may be: in the process's own group, else in the nearest around it that has the controller; where
/// its path is one outside of this container, at the root that is mounted here.
fn files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (root, name) = match controllers {
            "" => (PathBuf::from(GROUPS), "memory.events"),
            _ if controllers.split(',').any(|c| c == "memory") => {
                (Path::new(GROUPS).join("memory"), "memory.oom_control")
            }
            _ => continue,
        };
        let around = Path::new(path.trim_start_matches('/')).ancestors();
        files.extend(around.map(|group| root.join(group).join(name)));
    }
    files
}

fn count(file: &Path) -> Option<u64> {
    parse(&fs::read_to_string(file).ok()?)
}

fn parse(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix("oom_kill "))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_count_is_found_in_both_versions() {
        let both = "9:name=systemd:/\n4:memory:/a/b\n3:cpu,cpuacct:/a\n0::/x\n";
        let found: Vec<String> = files(both)
            .iter()
            .map(|f| f.display().to_string())
            .collect();
        assert_eq!(
            found,
            [
                "/sys/fs/cgroup/memory/a/b/memory.oom_control",
                "/sys/fs/cgroup/memory/a/memory.oom_control",
                "/sys/fs/cgroup/memory/memory.oom_control",
                "/sys/fs/cgroup/x/memory.events",
                "/sys/fs/cgroup/memory.events",
            ]
        );
        assert_eq!(
            parse("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"),
            Some(7)
        );
        assert_eq!(
            parse("low 0\nhigh 3\nmax 1\noom 2\noom_kill 4\noom_group_kill 9\n"),
            Some(4)
        );
        assert_eq!(parse("oom_kill_disable 0\nunder_oom 0\n"), None);
    }

    #[test]
    fn each_kill_is_told_of_one_end_that_comes_soon() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.events");
        let kills = |n: u64| fs::write(&file, format!("oom_kill {n}\n")).unwrap();
        let begin = Instant::now();
        let at = |s: u64| begin + Duration::from_secs(s);
        let group = Group {
            own: None,
            seen: 3,
            unclaimed: Vec::new(),
        };
        let mut oom = OomKills::default();
        oom.groups.insert(file.clone(), group);
        kills(3);
        assert_eq!(oom.explain(&file, at(0)), None);
        kills(5);
        let told = oom.explain(&file, at(1)).unwrap();
        assert!(told.contains("oom_kill is 5 in "), "{told}");
        assert!(oom.explain(&file, at(9)).is_some());
        assert_eq!(oom.explain(&file, at(9)), None);
        // It was of something else.
        kills(6);
        oom.look(at(20));
        assert_eq!(oom.explain(&file, at(31)), None);
    }
}
