#![allow(clippy::unwrap_used)]
use super::*;
use xxhash_rust::xxh3::xxh3_64;

fn header(step: u64, data: &[u8]) -> v1::ShardHeader {
    v1::ShardHeader {
        incarnation: 7,
        rank: 1,
        step,
        bytes: data.len() as u64,
    }
}

fn shards(root: &Path) -> Shards {
    let (snapshots, checkpoints) = (root.join("shm"), root.join("ckpt"));
    fs::create_dir_all(&snapshots).unwrap();
    fs::create_dir_all(&checkpoints).unwrap();
    let shards = Shards::new(snapshots, checkpoints);
    at(&shards, 3);
    shards
}

/// The gang's work is at this step.
fn at(shards: &Shards, step: u64) {
    let there = RankThere {
        incarnation: 7,
        rank: 1,
        node: NODE.to_owned(),
        bytes: None,
    };
    shards.expect_of_gang(step..=step, vec![there]);
}

const NODE: &str = "b";

fn keep(shards: &Shards, step: u64) -> PathBuf {
    at(shards, step);
    let mut keeping = shards.keep(header(step, b"hello"), NODE).unwrap();
    keeping.add(b"he").unwrap();
    keeping.add(b"llo").unwrap();
    keeping.finish(Some(xxh3_64(b"hello"))).unwrap().0
}

#[test]
fn a_shard_is_kept_whole_or_not_at_all() {
    let temp = tempfile::tempdir().unwrap();
    let shards = shards(temp.path());
    let kept = keep(&shards, 3);
    assert_eq!(fs::read(&kept).unwrap(), b"hello");
    assert_eq!(shards.find(kept.to_str().unwrap()).unwrap(), kept);
    at(&shards, 4);
    let mut torn = shards.keep(header(4, b"hello"), NODE).unwrap();
    torn.add(b"hellx").unwrap();
    let digest = Some(xxh3_64(b"hello"));
    assert!(matches!(torn.finish(digest), Err(ShardError::Torn { .. })));
    let mut without_end = shards.keep(header(4, b"hello"), NODE).unwrap();
    without_end.add(b"hello").unwrap();
    let error = without_end.finish(None);
    assert!(matches!(error, Err(ShardError::Torn { .. })));
    let mut long = shards.keep(header(4, b"hello"), NODE).unwrap();
    long.add(b"hello").unwrap();
    assert!(long.add(b"!").is_err());
    drop(long);
    drop(shards.keep(header(4, b"hello"), NODE).unwrap());
    assert_eq!(fs::read_dir(temp.path().join("shm")).unwrap().count(), 1);
    let vast = v1::ShardHeader {
        bytes: u64::MAX,
        ..header(4, b"")
    };
    let error = shards.keep(vast, NODE).err().unwrap();
    assert!(matches!(error, ShardError::NoRoom { .. }), "{error}");
    let error = shards.keep(header(4, b"hello"), "c").err().unwrap();
    assert!(matches!(error, ShardError::Unexpected { .. }), "{error}");
    assert_eq!(fs::read_dir(temp.path().join("shm")).unwrap().count(), 1);
}

#[test]
fn a_shard_that_is_on_its_way_twice_is_kept_by_whoever_ends() {
    let temp = tempfile::tempdir().unwrap();
    let shards = shards(temp.path());
    let mut broken = shards.keep(header(3, b"hello"), NODE).unwrap();
    broken.add(b"he").unwrap();
    let mut again = shards.keep(header(3, b"hello"), NODE).unwrap();
    again.add(b"hello").unwrap();
    broken.add(b"l").unwrap();
    drop(broken);
    let (kept, _) = again.finish(Some(xxh3_64(b"hello"))).unwrap();
    assert_eq!(fs::read(&kept).unwrap(), b"hello");
}

#[test]
fn only_the_jobs_shards_can_be_read() {
    let temp = tempfile::tempdir().unwrap();
    let shards = shards(temp.path());
    fs::write(temp.path().join("secret"), b"x").unwrap();
    let way_out = temp.path().join("shm/../secret");
    for path in [way_out.to_str().unwrap(), "/etc/passwd", "", "/nowhere"] {
        let error = shards.find(path).unwrap_err();
        let same = matches!(error, ShardError::Outside { .. });
        assert!(
            same,
            "whether there is something there is not told: {error}"
        );
    }
    let link = temp.path().join("shm/link");
    std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
    assert!(shards.find(link.to_str().unwrap()).is_err());
}

#[test]
fn what_a_leader_before_kept_in_its_own_folder_is_not_here() {
    let (before, now) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (former, shards) = (shards(before.path()), shards(now.path()));
    let (theirs, ours) = (keep(&former, 3), keep(&shards, 3));
    assert!(theirs.is_file());
    assert!(!shards.has(theirs.to_str().unwrap()));
    assert!(shards.has(ours.to_str().unwrap()));
    fs::remove_file(&ours).unwrap();
    assert!(!shards.has(ours.to_str().unwrap()));
}

#[test]
fn shards_of_a_step_that_is_gathered_stay_until_it_is_written() {
    let temp = tempfile::tempdir().unwrap();
    let shards = shards(temp.path());
    let folder = temp.path().join("shm");
    let names = ["kept-3-0-0.shard", "kept-3-1-0.7-1.part"];
    for name in names {
        fs::write(folder.join(name), b"x").unwrap();
    }
    let there = || names.map(|name| folder.join(name).exists());
    let (pinned, again) = (shards.pin(3), shards.pin(3));
    shards.tidy(5, 6, &[]);
    drop(pinned);
    shards.tidy(5, 6, &[]);
    assert_eq!(there(), [true, true]);
    drop(again);
    shards.tidy(5, 6, &[]);
    assert_eq!(there(), [false, false]);
}

#[test]
fn shards_that_nobody_can_go_back_to_are_removed() {
    let temp = tempfile::tempdir().unwrap();
    let shards = shards(temp.path());
    let [old, used, stray, coming] = [1, 3, 4, 5].map(|step| keep(&shards, step));
    fs::write(temp.path().join("shm/trainer-0.slot0"), b"").unwrap();
    shards.tidy(3, 4, std::slice::from_ref(&used));
    assert!(!old.exists() && !stray.exists());
    assert!(used.exists() && coming.exists());
    assert!(temp.path().join("shm/trainer-0.slot0").exists());
}
