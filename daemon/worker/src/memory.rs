//! What memory there is, looked at before a role takes any: a load that cannot fit is an error with its
//! numbers instead of a process that the kernel ends in the middle of a step.

use std::fs;
use std::path::{Path, PathBuf};

use robust_shared::footprint::{Need, Shape, TooLarge};

use crate::model::config::Qwen3Config;

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The numbers of a model that decide about memory.
pub fn shape(config: &Qwen3Config) -> Shape {
    // Checked when it was read: none is negative.
    let number = |value: i64| value.unsigned_abs();
    Shape {
        hidden: number(config.hidden_size),
        layers: number(config.num_hidden_layers),
        heads: number(config.num_attention_heads),
        kv_heads: number(config.num_key_value_heads),
        head: number(config.head_dim),
        inner: number(config.intermediate_size),
        vocabulary: number(config.vocab_size),
        positions: number(config.max_position_embeddings),
        tied: config.tie_word_embeddings,
    }
}

/// Whether what lies in a folder lies in memory.
pub fn holds(folder: &Path) -> bool {
    /// What a tmpfs says it is.
    const TMPFS: i64 = 0x0102_1994;
    // What cannot be told is taken for memory, as it is unless somebody said otherwise.
    rustix::fs::statfs(folder).map_or(true, |found| found.f_type == TMPFS)
}

/// Refuses what is more than there is now; where that cannot be seen, nothing.
pub fn check(who: &'static str, need: Need) -> Result<(), TooLarge> {
    let Some((available, from)) = available() else {
        return Ok(());
    };
    tracing::info!(bytes = need.total(), available, "memory of {who}: {need}");
    need.fits(who, available, &from)
}

/// Bytes that can still be taken, and who says so: the smallest of what the machine has and what the
/// process's control groups allow.
fn available() -> Option<(u64, String)> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok();
    let machine = meminfo.and_then(|text| of_machine(&text));
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = of_groups(Path::new(CGROUPS), &membership);
    let machine = machine.map(|bytes| (bytes, "MemAvailable".to_owned()));
    machine.into_iter().chain(group).min()
}

/// `MemAvailable` of `/proc/meminfo`.
fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// What the group of a process (`0::/a/b`) and all above it still allow (version 2; a limit of version 1
/// is not looked at).
fn of_groups(root: &Path, membership: &str) -> Option<(u64, String)> {
    let own = membership
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))?;
    let own = root.join(own);
    let groups = own.ancestors().take_while(|group| group.starts_with(root));
    groups.filter_map(of_group).min()
}

fn of_group(group: &Path) -> Option<(u64, String)> {
    let number = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(group.join(name)).ok()?;
        text.trim().parse().ok()
    };
    // Of a group without a limit it says `max`.
    let limit: PathBuf = group.join("memory.max");
    let most = number("memory.max")?;
    let used = number("memory.current")?;
    // Pages of files count as used and are given up for others.
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let files = stat
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file "));
    let files: u64 = files.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    let left = most.saturating_sub(used.saturating_sub(files));
    Some((left, limit.display().to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_machine_says_what_is_available() {
        let text = "MemTotal: 24000000 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(of_machine(text), Some(2 << 20));
        assert_eq!(of_machine("MemTotal: 1 kB\n"), None);
        assert!(available().unwrap().0 > 0);
    }

    #[test]
    fn a_folder_on_a_disk_is_told_from_one_in_memory() {
        assert!(holds(Path::new("/dev/shm")));
        assert!(!holds(Path::new("/proc")));
    }

    #[test]
    fn the_tightest_group_above_a_process_decides_and_is_named() {
        let root = tempfile::tempdir().unwrap();
        let group = |path: &str, files: [(&str, &str); 3]| {
            let folder = root.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in files {
                fs::write(folder.join(name), text).unwrap();
            }
        };
        let of = |max, current, stat| {
            [
                ("memory.max", max),
                ("memory.current", current),
                ("memory.stat", stat),
            ]
        };
        group("a", of("1000\n", "700\n", "anon 1\ninactive_file 200\n"));
        group("a/b", of("max\n", "650\n", ""));
        let found = of_groups(root.path(), "0::/a/b\n").unwrap();
        assert_eq!(found.0, 500);
        assert!(found.1.ends_with("a/memory.max"), "{found:?}");
        assert_eq!(of_groups(root.path(), "0::/c\n"), None);
        assert_eq!(of_groups(root.path(), "3:memory:/a\n"), None);
    }
}
