//! On what a folder lies.
use super::super::facts::{Folder, Found};
use std::path::{Path, PathBuf};

/// The folder, or the nearest above it that is there: the state directory may still be to be made.
pub(super) fn existing(path: &Path) -> PathBuf {
    let there = path.ancestors().find(|p| p.is_dir());
    match there {
        Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Looks at the file system of a folder.
pub(super) fn look(path: PathBuf) -> Found<Folder> {
    let there = existing(&path);
    let said = |e: std::io::Error| format!("{}: {e}", there.display());
    let there = there.canonicalize().map_err(said)?;
    let stat = rustix::fs::statvfs(&there).map_err(|e| format!("{}: {e}", there.display()))?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo");
    let mounts = mounts.map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
    let (mount, fs) = mount_of(&mounts, &there).unwrap_or_else(|| ("/".into(), "?".into()));
    Ok(Folder {
        path,
        fs,
        mount,
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
        total: stat.f_blocks.saturating_mul(stat.f_frsize),
    })
}

/// Mount point and type of the file system that has a path; of two at one place the later one,
/// which covers the other.
fn mount_of(mountinfo: &str, path: &Path) -> Option<(PathBuf, String)> {
    let parsed = mountinfo.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mount = PathBuf::from(unescaped(left.split(' ').nth(4)?));
        let fs = right.split(' ').next()?.to_owned();
        Some((mount, fs))
    });
    parsed
        .filter(|(mount, _)| path.starts_with(mount))
        .max_by_key(|(mount, _)| mount.components().count())
}

/// The kernel writes spaces and their like as `\040`.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out += before;
        let code = after.get(..3).and_then(|c| u8::from_str_radix(c, 8).ok());
        rest = match code {
            Some(code) => {
                out.push(char::from(code));
                &after[3..]
            }
            None => {
                out.push('\\');
                after
            }
        };
    }
    out + rest
}

/// Bytes of memory that programs can still take, as the kernel estimates them.
pub(super) fn memory() -> Found<u64> {
    let text =
        std::fs::read_to_string("/proc/meminfo").map_err(|e| format!("/proc/meminfo: {e}"))?;
    let available = text.lines().find_map(|line| {
        let kib = line.strip_prefix("MemAvailable:")?.trim();
        kib.strip_suffix(" kB")?.parse::<u64>().ok()
    });
    let kib = available.ok_or("/proc/meminfo has no MemAvailable")?;
    Ok(kib * 1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MOUNTS: &str = "\
22 1 0:20 / / rw,relatime - overlay overlay rw
23 22 0:21 / /home rw - nfs4 server:/home rw,vers=4.2
24 22 0:22 / /dev/shm rw shared:3 - tmpfs shm rw,size=65536k
25 22 0:23 / /mnt/my\\040disk rw - ext4 /dev/sda1 rw
26 22 0:24 / /home rw - fuse.sshfs server: rw
";

    fn fs(path: &str) -> String {
        mount_of(MOUNTS, Path::new(path)).unwrap().1
    }

    #[test]
    fn a_folder_lies_on_the_nearest_mount_above_it() {
        assert_eq!(fs("/tmp/x"), "overlay");
        assert_eq!(fs("/dev/shm"), "tmpfs");
        assert_eq!(fs("/mnt/my disk/a"), "ext4");
        assert_eq!(fs("/homes"), "overlay", "a name that only begins alike");
    }

    #[test]
    fn of_two_mounts_at_one_place_the_later_counts() {
        assert_eq!(fs("/home/me"), "fuse.sshfs");
    }

    #[test]
    fn a_folder_still_to_be_made_lies_where_its_parent_does() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        assert_eq!(existing(&deep), dir.path());
        let found = look(deep.clone()).unwrap();
        assert_eq!(found.path, deep);
        assert!(found.total > 0 && found.total >= found.free);
    }
}
