//! What is on disk already is not written again.
use super::*;
use robust_ckpt::disk::faulty::{Fault, FaultyDisk, Operation};
use std::os::unix::fs::MetadataExt;

fn file(bench: &Bench, step: u64, rank: u32) -> PathBuf {
    let folder = bench.ckpt().join(format!("step-{step}"));
    folder.join(manifest::shard_file(rank))
}

fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

/// The shards of one step offered as those of another; nobody has hashed them yet.
fn again(of: &Request, step: u64) -> Request {
    let mut request = of.clone();
    request.step = Step(step);
    for shard in &mut request.shards {
        shard.step = Step(step);
        shard.xxh3 = None;
    }
    request
}

#[test]
fn a_shard_that_did_not_change_is_linked_and_one_that_did_is_written() {
    let mut bench = Bench::new();
    let first = request(bench.dir.path(), 1);
    bench.write(first.clone());
    let mut second = again(&first, 2);
    // A byte that no sample sees: only the digest of all of it tells.
    let path = bench.dir.path().join("other");
    std::fs::copy(&second.shards[1].path, &path).unwrap();
    flip_a_bit(&path, 2_500_001);
    second.shards[1].path = path.to_string_lossy().into_owned();
    let said = bench.write(second);
    assert!(
        said.ends_with("4.8 MiB of it unchanged and linked"),
        "{said}"
    );
    let inodes = |rank| [1, 2].map(|step| inode(&file(&bench, step, rank)));
    assert_eq!(inodes(0)[0], inodes(0)[1]);
    assert_ne!(inodes(1)[0], inodes(1)[1]);
    let found = bench.newest();
    assert_eq!(found.rejected, [""; 0]);
    assert_eq!(found.checkpoint.unwrap().step, Step(2));
    // A known digest tells the same without a look at the snapshot.
    let third = Request {
        shards: first.shards.clone(),
        ..again(&first, 3)
    };
    let said = bench.write(third);
    assert!(
        said.ends_with("4.8 MiB of it unchanged and linked"),
        "{said}"
    );
    // The first goes by retention; what it shared stays.
    assert_eq!(bench.names(), ["step-2", "step-3"]);
    assert_eq!(bench.newest().checkpoint.unwrap().step, Step(3));
}

#[test]
fn damage_is_not_handed_on_by_a_link() {
    let mut bench = Bench::new();
    let first = request(bench.dir.path(), 1);
    bench.write(first.clone());
    flip_a_bit(&file(&bench, 1, 0), 2_500_001);
    let said = bench.write(again(&first, 2));
    assert!(
        said.ends_with("4.8 MiB of it unchanged and linked"),
        "{said}"
    );
    assert_ne!(inode(&file(&bench, 1, 0)), inode(&file(&bench, 2, 0)));
    let found = bench.newest();
    assert_eq!(
        (found.checkpoint.unwrap().step, found.rejected.len()),
        (Step(2), 0)
    );
}

#[test]
fn the_same_step_again_writes_nothing_unless_it_is_damaged_or_another_gangs() {
    let mut bench = Bench::new();
    let first = request(bench.dir.path(), 1);
    bench.write(first.clone());
    let inodes = |bench: &Bench| {
        let manifest = bench.ckpt().join("step-1").join(manifest::FILE);
        [
            inode(&file(bench, 1, 0)),
            inode(&file(bench, 1, 1)),
            inode(&manifest),
        ]
    };
    let before = inodes(&bench);
    let said = bench.write(first.clone());
    assert!(
        said.ends_with("9.5 MiB of it unchanged and linked"),
        "{said}"
    );
    assert_eq!(inodes(&bench), before);
    flip_a_bit(&file(&bench, 1, 1), 99);
    let said = bench.write(first.clone());
    assert!(
        said.ends_with("(direct)") || said.ends_with("(buffered)"),
        "{said}"
    );
    assert_eq!(bench.newest().checkpoint.unwrap().step, Step(1));
    let mut rolled_back = first;
    rolled_back.generation = Generation(4);
    bench.write(rolled_back);
    assert_eq!(bench.newest().checkpoint.unwrap().generation, Generation(4));
}

#[test]
fn a_disk_without_links_has_the_shard_written() {
    let dir = tempfile::tempdir().unwrap();
    let stash = dir.path().join("stash");
    std::fs::create_dir(&stash).unwrap();
    let disk = FaultyDisk::new(&stash);
    let keep = Retention {
        last: 4,
        every: 0,
        best: 0,
    };
    let mut bench = Bench::on(dir, keep, Arc::new(disk.clone()));
    let first = request(bench.dir.path(), 1);
    bench.write(first.clone());
    disk.fail_at(u64::MAX, Fault::Io);
    let said = bench.write(again(&first, 2));
    assert!(
        said.ends_with("9.5 MiB of it unchanged and linked"),
        "{said}"
    );
    let operations = disk.operations();
    let link = operations.iter().position(|o| *o == Operation::Link);
    disk.fail_at(link.unwrap() as u64 + 1, Fault::Io);
    let said = bench.write(again(&first, 3));
    assert!(
        said.ends_with("4.8 MiB of it unchanged and linked"),
        "{said}"
    );
    let inodes = [1, 2, 3].map(|step| inode(&file(&bench, step, 0)));
    assert_eq!(inodes[0], inodes[1]);
    assert_ne!(inodes[0], inodes[2]);
    assert_eq!(bench.newest().checkpoint.unwrap().step, Step(3));
}
