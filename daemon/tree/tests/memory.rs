//! What the dead left in `/dev/shm` is removed, and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod common;

use common::{Bench, Other, argument, gone, plays, spec, until};
use robust_tree::{Child, Kept, Ledger, Policy, Segment, Swept, mapped, sweep};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BYTES: usize = 3 * 4096;

/// A file in `/dev/shm`, removed at the end of the test however that comes.
struct Shm(PathBuf);

impl Shm {
    fn path_for(name: &str) -> PathBuf {
        let own = std::process::id();
        Path::new("/dev/shm").join(format!("robust-tree-{own}-{name}"))
    }

    fn new(name: &str) -> Self {
        let path = Self::path_for(name);
        fs::write(&path, vec![1; BYTES]).unwrap();
        Self(path)
    }

    fn name(&self) -> String {
        self.0.file_name().unwrap().to_str().unwrap().to_owned()
    }

    fn segment(&self) -> Segment {
        Segment {
            name: self.name(),
            inode: fs::symlink_metadata(&self.0).unwrap().ino(),
        }
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Maps a file, closes it, tells, and stays.
#[allow(unsafe_code)]
fn map_and_stay(path: &Path) {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let file = File::open(path).unwrap();
    // SAFETY: a new mapping at an address that the system chooses; nobody reads it.
    let mapping = unsafe {
        mmap(
            std::ptr::null_mut(),
            BYTES,
            ProtFlags::READ,
            MapFlags::SHARED,
            &file,
            0,
        )
    };
    mapping.unwrap();
    drop(file);
    println!("mapped=yes");
    std::thread::sleep(Duration::from_secs(1000));
}

/// A shim whose engine maps the file; writes its ledger into a folder and stays.
fn keep_ledger(test: &str, file: &Path, ledgers: &Path) {
    let mut ledger = Ledger::begin(ledgers).unwrap();
    fs::write(file, vec![1; BYTES]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let argv = [program.to_str().unwrap(), test, "--exact", "--nocapture"];
    let mut spec = spec(dir.path(), &argv, None);
    spec.env
        .push(("ROBUST_TREE_TEST_AS".into(), "engine".into()));
    spec.env.push(("T_ARGUMENT_0".into(), file.into()));
    let child = Child::start(spec).unwrap();
    let bench = Bench::watch(child, dir, Policy::default());
    bench.said("mapped");
    let members = bench.tree.members();
    let held = mapped(members.iter().map(|m| m.pid));
    assert!(
        held.iter().any(|segment| segment.path() == file),
        "{held:?}"
    );
    ledger.note(held).unwrap();
    println!("engine={}", bench.tree.leader());
    drop(fs::remove_dir_all(bench.dir.path()));
    std::thread::sleep(Duration::from_secs(1000));
}

fn ledgers_in(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn what_a_killed_shims_engine_left_is_removed_by_the_next_one() {
    let test = "what_a_killed_shims_engine_left_is_removed_by_the_next_one";
    if plays("engine") {
        return map_and_stay(&argument(0));
    }
    if plays("shim") {
        return keep_ledger(test, &argument(0), &argument(1));
    }
    let ledgers = tempfile::tempdir().unwrap();
    let left = Shm(Shm::path_for("left"));
    let mut shim = Other::start(test, "shim", &[&left.0, ledgers.path()]);
    let engine: u32 = shim.said("engine").parse().unwrap();
    assert_eq!(sweep(ledgers.path()).unwrap(), Swept::default(), "it lives");
    shim.kill();
    until("the engine died with its parent", || gone(engine));
    // Its other threads may still be on their way, and use the file until then.
    let mut swept = Swept::default();
    until("it is swept", || {
        swept = sweep(ledgers.path()).unwrap();
        swept.kept.is_empty()
    });
    let names: Vec<_> = swept.removed.iter().map(|r| r.name.clone()).collect();
    assert_eq!((names, swept.kept.len()), (vec![left.name()], 0));
    assert_eq!(swept.bytes(), BYTES as u64);
    assert!(!left.0.exists());
    assert_eq!(ledgers_in(ledgers.path()), 0);
    assert_eq!(
        sweep(ledgers.path()).unwrap(),
        Swept::default(),
        "once more"
    );
}

/// T-5.
#[test]
fn what_a_living_process_of_anyone_uses_stays() {
    let test = "what_a_living_process_of_anyone_uses_stays";
    if plays("foreigner") {
        return map_and_stay(&argument(0));
    }
    let ledgers = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::begin(ledgers.path()).unwrap();
    let files = ["mapped", "open", "free"].map(Shm::new);
    let [by_map, by_descriptor, free] = &files;
    let mut foreigner = Other::start(test, "foreigner", &[&by_map.0]);
    foreigner.said("mapped");
    let open = File::open(&by_descriptor.0).unwrap();
    let listed: BTreeSet<Segment> = files.iter().map(Shm::segment).collect();
    ledger.note(listed.clone()).unwrap();
    let swept = ledger.sweep().unwrap();
    let removed: Vec<_> = swept.removed.iter().map(|r| &r.name).collect();
    assert_eq!(removed, [&free.name()]);
    let in_use = [by_map, by_descriptor].map(|file| (file.segment(), Kept::InUse));
    assert_eq!(swept.kept, in_use);
    assert_eq!(ledgers_in(ledgers.path()), 1, "for a later sweep");
    drop(open);
    foreigner.kill();
    assert!(by_map.0.exists() && by_descriptor.0.exists());
    let mut again = Ledger::begin(ledgers.path()).unwrap();
    again.note(listed).unwrap();
    assert!(again.segments().is_empty(), "they were there before it");
}

/// T-5.
#[test]
fn a_file_that_took_the_place_of_a_listed_one_stays() {
    let ledgers = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::begin(ledgers.path()).unwrap();
    let (replaced, link) = (Shm::new("replaced"), Shm::new("link"));
    let victim = ledgers.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    ledger
        .note([&replaced, &link].map(Shm::segment).into())
        .unwrap();
    let other = Shm::new("other");
    fs::rename(&other.0, &replaced.0).unwrap();
    fs::remove_file(&link.0).unwrap();
    std::os::unix::fs::symlink(&victim, &link.0).unwrap();
    assert_eq!(ledger.sweep().unwrap(), Swept::default());
    assert!(replaced.0.exists() && victim.exists());
    assert!(fs::symlink_metadata(&link.0).unwrap().is_symlink());
}

#[test]
fn nothing_outside_the_folder_and_no_link_is_ever_listed() {
    let ledgers = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::begin(ledgers.path()).unwrap();
    let victim = tempfile::NamedTempFile::new().unwrap();
    let inode = fs::metadata(victim.path()).unwrap().ino();
    let name = format!("../..{}", victim.path().display());
    let link = Shm(Shm::path_for("to-victim"));
    std::os::unix::fs::symlink(victim.path(), &link.0).unwrap();
    ledger
        .note([Segment { name, inode }, link.segment()].into())
        .unwrap();
    assert!(ledger.segments().is_empty(), "{:?}", ledger.segments());
    ledger.sweep().unwrap();
    assert!(victim.path().exists() && fs::symlink_metadata(&link.0).is_ok());
}

#[test]
fn what_the_dead_held_stays_listed_until_it_is_gone() {
    let ledgers = tempfile::tempdir().unwrap();
    let mut ledger = Ledger::begin(ledgers.path()).unwrap();
    let (one, two) = (Shm::new("one"), Shm::new("two"));
    ledger.note([one.segment()].into()).unwrap();
    ledger.note([two.segment()].into()).unwrap();
    let both = BTreeSet::from([one.segment(), two.segment()]);
    assert_eq!(ledger.segments(), &both);
    fs::remove_file(&one.0).unwrap();
    ledger.note(BTreeSet::new()).unwrap();
    assert_eq!(ledger.segments(), &BTreeSet::from([two.segment()]));
    assert_eq!(ledger.sweep().unwrap().removed.len(), 1);
    assert!(!two.0.exists());
}
