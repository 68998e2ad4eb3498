//! Uploads in the background, to a slow store in memory and to one that fails.
#![allow(clippy::unwrap_used)]
use super::*;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use robust_ckpt::disk::RealDisk;
use robust_ckpt::{Checkpoint, Shard, folder, manifest, pin};
use robust_shared::ids::Generation;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use xxhash_rust::xxh3::xxh3_64;

struct Bench {
    dir: TempDir,
    remote: Remote,
    uploader: Uploader,
    events: UnboundedReceiver<CkptEvent>,
}

impl Bench {
    fn new(every: u64, put: Duration) -> Self {
        let config = ThrottleConfig {
            wait_put_per_call: put,
            ..Default::default()
        };
        let store = ThrottledStore::new(InMemory::new(), config);
        let remote = Remote::over(Arc::new(store), Key::from("x"), "mem://x");
        Self::over(remote, every)
    }

    fn over(remote: Remote, every: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (sender, events) = unbounded_channel();
        let config = RemoteConfig {
            remote: remote.clone(),
            run: "r".to_owned(),
            dir: dir.path().to_owned(),
            every,
            keep: Retention {
                last: 2,
                every: 0,
                best: 0,
            },
        };
        let uploader = Uploader::start(config, sender).unwrap();
        Self {
            dir,
            remote,
            uploader,
            events,
        }
    }

    fn write(&self, step: u64) {
        write(self.dir.path(), step);
    }

    /// Puts a step's checkpoint and returns what came of it, in words.
    fn put(&mut self, step: u64) -> String {
        self.write(step);
        assert_eq!(self.uploader.offer(Step(step)), Some(Offer::Taken));
        self.events.blocking_recv().unwrap().to_string()
    }

    fn there(&self) -> Vec<u64> {
        let runtime = Builder::new_current_thread().build().unwrap();
        let listed = runtime.block_on(self.remote.list("r")).unwrap();
        listed.iter().map(|k| k.place.step.0).collect()
    }
}

fn write(ckpt: &Path, step: u64) {
    let dir = ckpt.join(folder_name(step));
    std::fs::create_dir(&dir).unwrap();
    let (path, data) = (dir.join(manifest::shard_file(0)), step.to_le_bytes());
    std::fs::write(&path, data).unwrap();
    let shard = Shard {
        rank: 0,
        path,
        bytes: 8,
        xxh3: xxh3_64(&data),
    };
    let made = Checkpoint {
        step: Step(step),
        generation: Generation(1),
        shards: vec![shard],
        consumed: Vec::new(),
        reward: None,
        at: None,
        adam_step: None,
        tensors: Vec::new(),
        dir,
    };
    manifest::store(&RealDisk, &made).unwrap();
}

#[test]
fn what_comes_while_one_is_on_its_way_is_skipped_and_counted_and_never_waits() {
    let mut bench = Bench::new(1, Duration::from_millis(300));
    for step in 1..=3 {
        bench.write(step);
    }
    assert_eq!(bench.uploader.offer(Step(1)), Some(Offer::Taken));
    let begun = Instant::now();
    assert_eq!(bench.uploader.offer(Step(2)), Some(Offer::Behind));
    assert!(begun.elapsed() < Duration::from_millis(200));
    assert!(!bench.uploader.standing().is_idle());
    let said = bench.events.blocking_recv().unwrap().to_string();
    assert!(
        said.starts_with("checkpoint of step 1 is in mem://x: "),
        "{said}"
    );
    assert_eq!(bench.uploader.offer(Step(3)), Some(Offer::Taken));
    bench.events.blocking_recv().unwrap();
    let standing = bench.uploader.standing();
    assert_eq!((standing.skipped, standing.step), (1, Some(Step(3))));
    assert_eq!(standing.sent_bytes, 16);
    assert_eq!(bench.there(), [1, 3]);
}

#[test]
fn so_many_steps_lie_between_two_and_a_gang_that_went_back_is_not_kept_waiting() {
    let mut bench = Bench::new(5, Duration::ZERO);
    bench.put(10);
    bench.write(14);
    assert_eq!(bench.uploader.offer(Step(14)), None);
    bench.put(15);
    bench.put(12);
    assert_eq!(bench.uploader.offer_now(Step(14)), Offer::Taken);
    bench.events.blocking_recv().unwrap();
    assert_eq!(bench.there(), [14, 15], "two stay");
}

#[test]
fn what_an_operator_pinned_stays_over_there_too() {
    let mut bench = Bench::new(1, Duration::ZERO);
    bench.put(1);
    pin::set(&RealDisk, &bench.dir.path().join("step-1"), true).unwrap();
    for step in [2, 3, 4] {
        bench.put(step);
    }
    assert_eq!(bench.there(), [1, 3, 4]);
}

#[test]
fn a_failure_is_said_with_its_cause_and_over_with_the_next_success() {
    let far = tempfile::tempdir().unwrap();
    let url = format!("file://{}/store", far.path().display());
    let mut bench = Bench::over(Remote::open(&url).unwrap(), 1);
    bench.put(1);
    std::fs::remove_dir_all(far.path().join("store")).unwrap();
    std::fs::write(far.path().join("store"), b"no folder").unwrap();
    let said = bench.put(2);
    assert!(
        said.starts_with("the checkpoint of step 2 is not in file://"),
        "{said}"
    );
    assert!(said.ends_with("; the job goes on"), "{said}");
    let standing = bench.uploader.standing();
    assert_eq!((standing.failed, standing.step), (1, Some(Step(1))));
    assert!(standing.failing.is_some() && standing.is_idle());
    std::fs::remove_file(far.path().join("store")).unwrap();
    bench.put(3);
    assert_eq!(bench.uploader.standing().failing, None);
    assert_eq!(bench.there(), [3]);
}

#[test]
fn a_checkpoint_that_retention_took_first_is_a_failure_and_no_more() {
    let mut bench = Bench::new(1, Duration::ZERO);
    bench.write(1);
    folder::remove(&RealDisk, &bench.dir.path().join("step-1")).unwrap();
    bench.uploader.offer(Step(1));
    let said = bench.events.blocking_recv().unwrap().to_string();
    assert!(said.contains("cannot read "), "{said}");
    assert!(bench.put(2).starts_with("checkpoint of step 2 is in"));
}
