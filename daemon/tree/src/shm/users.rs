//! Who uses which file in `/dev/shm`.
use super::{FOLDER, Segment, is_plain};
use crate::proc;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the kernel writes behind the path of a file that has none any more.
const REMOVED: &str = " (deleted)";

/// The files right in `/dev/shm` that these processes map or have open. A process that is gone
/// holds none.
pub fn mapped(pids: impl IntoIterator<Item = u32>) -> BTreeSet<Segment> {
    let device = fs::metadata(FOLDER).map(|folder| folder.dev());
    let Ok(device) = device else {
        return BTreeSet::new();
    };
    let mut all = BTreeSet::new();
    for pid in pids {
        if let Ok(text) = fs::read(format!("/proc/{pid}/maps")) {
            all.extend(String::from_utf8_lossy(&text).lines().filter_map(in_maps));
        }
        let here = |path: &Path| path.parent() == Some(Path::new(FOLDER));
        all.extend(opened(pid, device, here).unwrap_or_default());
    }
    all
}

/// Which of `wanted` some living process maps or has open.
pub struct InUse {
    pub inodes: BTreeSet<u64>,
    /// Whether a process could not be looked at.
    pub some_hidden: bool,
}

pub fn in_use(wanted: &BTreeSet<Segment>, device: u64) -> InUse {
    let names: BTreeSet<&str> = wanted.iter().map(|s| s.name.as_str()).collect();
    let inodes: BTreeSet<u64> = wanted.iter().map(|s| s.inode).collect();
    let mut found = InUse {
        inodes: BTreeSet::new(),
        some_hidden: false,
    };
    for pid in proc::all() {
        let maps = fs::read(format!("/proc/{pid}/maps"));
        let named = |path: &Path| plain_name(path).is_some_and(|name| names.contains(name));
        let open = opened(pid, device, named);
        let hidden = |e: &io::Error| e.kind() == io::ErrorKind::PermissionDenied;
        found.some_hidden |= maps.as_ref().is_err_and(hidden) || open.as_ref().is_err_and(hidden);
        let text = maps.unwrap_or_default();
        // By device and inode: in another mount namespace the same file has another path.
        let mapped = String::from_utf8_lossy(&text);
        let mapped = mapped.lines().filter_map(|line| on_device(line, device));
        found.inodes.extend(mapped.filter(|i| inodes.contains(i)));
        let open = open.unwrap_or_default().into_iter().map(|s| s.inode);
        found.inodes.extend(open.filter(|i| inodes.contains(i)));
    }
    found
}

/// `7f..-7f.. rw-s 00000000 00:1a 4711    /dev/shm/psm_1`; a removed file has ` (deleted)` behind.
fn in_maps(line: &str) -> Option<Segment> {
    let (fields, path) = line.split_once('/')?;
    let name = path.strip_prefix(FOLDER.strip_prefix('/')?)?;
    let name = name.strip_prefix('/')?.to_owned();
    let inode = fields.split_ascii_whitespace().nth(4)?.parse().ok()?;
    (is_plain(&name) && !name.ends_with(REMOVED)).then_some(Segment { name, inode })
}

fn on_device(line: &str, device: u64) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (major, minor) = fields.nth(3)?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let here = rustix::fs::makedev(number(major)?, number(minor)?);
    let inode = fields.next()?.parse().ok()?;
    (here == device).then_some(inode)
}

/// The files of the device that a process has open, of those paths that are `wanted`. Only paths
/// are looked at first, since asking for a file of a network that is gone may take for ever.
fn opened(pid: u32, device: u64, wanted: impl Fn(&Path) -> bool) -> io::Result<Vec<Segment>> {
    let of = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let name = wanted(&target).then(|| plain_name(&target))??.to_owned();
        let file = fs::metadata(entry.path()).ok()?;
        let inode = file.ino();
        (file.dev() == device && file.nlink() > 0).then_some(Segment { name, inode })
    };
    let open = fs::read_dir(format!("/proc/{pid}/fd"))?;
    Ok(open.flatten().filter_map(of).collect())
}

fn plain_name(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    Some(name.strip_suffix(REMOVED).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LINE: &str = "7f00-7f10 rw-s 00000000 00:1a 4711                       ";

    #[test]
    fn a_mapping_right_in_the_folder_is_seen() {
        let segment = |path: &str| in_maps(&format!("{LINE}{path}"));
        let found = segment("/dev/shm/psm 1").unwrap();
        assert_eq!((found.name.as_str(), found.inode), ("psm 1", 4711));
        assert_eq!(found.path(), Path::new("/dev/shm/psm 1"));
        for other in [
            "/dev/shm/psm_1 (deleted)",
            "/dev/shm/a/b",
            "/dev/shmx/c",
            "/usr/lib/d",
            "",
        ] {
            assert_eq!(segment(other), None, "{other}");
        }
    }

    #[test]
    fn a_mapping_of_the_device_is_seen_whatever_its_path() {
        let line = format!("{LINE}/other/psm_1");
        assert_eq!(on_device(&line, rustix::fs::makedev(0, 0x1a)), Some(4711));
        assert_eq!(on_device(&line, rustix::fs::makedev(0, 0x1b)), None);
    }
}
