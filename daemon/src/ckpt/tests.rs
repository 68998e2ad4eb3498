//! With real files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod faults;
mod unchanged;

use super::*;
use crate::store::Store;
use robust_ckpt::disk::{self, RealDisk};
use robust_ckpt::slot::{Image, Taken};
use robust_ckpt::{Found, Retention, folder, manifest, newest_complete, pin};
use robust_shared::ids::{Generation, Step};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use xxhash_rust::xxh3::xxh3_64;

struct Bench {
    dir: TempDir,
    store: Store,
    checkpointer: Checkpointer,
    events: UnboundedReceiver<CkptEvent>,
}

impl Bench {
    fn new() -> Self {
        Self::over(tempfile::tempdir().unwrap())
    }

    fn over(dir: TempDir) -> Self {
        Self::keeping(
            dir,
            Retention {
                last: 2,
                every: 0,
                best: 0,
            },
        )
    }

    fn keeping(dir: TempDir, keep: Retention) -> Self {
        Self::on(dir, keep, disk::real())
    }

    fn on(dir: TempDir, keep: Retention, disk: Arc<dyn Disk>) -> Self {
        let (store, _) = Store::open(dir.path()).unwrap();
        let (sender, events) = unbounded_channel();
        let config = Config {
            dir: dir.path().join("ckpt"),
            keep,
            disk,
        };
        let checkpointer = Checkpointer::start(config, store.clone(), sender).unwrap();
        Self {
            dir,
            store,
            checkpointer,
            events,
        }
    }

    fn ckpt(&self) -> PathBuf {
        self.dir.path().join("ckpt")
    }

    /// Offers the step and returns what came of it, in words.
    fn write(&mut self, request: Request) -> String {
        assert_eq!(self.checkpointer.offer(request), Offer::Taken);
        self.events.blocking_recv().unwrap().to_string()
    }

    fn newest(&self) -> Found {
        newest_complete(&self.ckpt()).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.ckpt()).unwrap();
        let mut names: Vec<_> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// Slots of two ranks, lengths that are no multiple of anything.
fn request(dir: &Path, step: u64) -> Request {
    sized(dir, step, 5_000_001)
}

fn sized(dir: &Path, step: u64, bytes: usize) -> Request {
    let shards = (0..2_u32)
        .map(|rank| {
            let length = bytes + 8191 * rank as usize;
            let bytes: Vec<u8> = (0..length).map(|i| (i as u64 * 131 + step) as u8).collect();
            let path = dir.join(format!("trainer-{rank}.slot{}", step % 2));
            std::fs::write(&path, &bytes).unwrap();
            Shard {
                step: Step(step),
                path: path.to_string_lossy().into_owned(),
                bytes: length as u64,
                xxh3: Some(xxh3_64(&bytes)),
                generation: Generation(3),
                adam_step: Some(step),
            }
        })
        .collect();
    let consumed = vec![TrajectoryId {
        batch: step,
        group: 1,
        member: 2,
    }];
    Request {
        step: Step(step),
        generation: Generation(3),
        shards,
        consumed,
        reward: Some(step as f64),
        tensors: Vec::new(),
    }
}

fn flip_a_bit(path: &Path, at: u64) {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn a_checkpoint_reads_back_bit_by_bit_and_is_in_the_index() {
    let mut bench = Bench::new();
    let request = request(bench.dir.path(), 7);
    let said = bench.write(request.clone());
    assert!(
        said.starts_with("checkpoint of step 7: 9.5 MiB in "),
        "{said}"
    );
    let found = bench.newest();
    assert_eq!(found.rejected, [""; 0]);
    let checkpoint = found.checkpoint.unwrap();
    assert_eq!(
        (checkpoint.step, checkpoint.generation),
        (Step(7), Generation(3))
    );
    assert_eq!(checkpoint.consumed, request.consumed);
    for (shard, slot) in checkpoint.shards.iter().zip(&request.shards) {
        assert_eq!(
            std::fs::read(&shard.path).unwrap(),
            std::fs::read(&slot.path).unwrap()
        );
    }
    let index = bench.store.checkpoints().unwrap();
    assert_eq!(
        (index[0].step, index[0].folder.as_str()),
        (Step(7), "step-7")
    );
}

#[test]
fn without_its_manifest_a_checkpoint_does_not_exist() {
    let mut bench = Bench::new();
    bench.write(request(bench.dir.path(), 1));
    bench.write(request(bench.dir.path(), 2));
    std::fs::remove_file(bench.ckpt().join("step-2/manifest.json")).unwrap();
    let found = bench.newest();
    assert_eq!(found.checkpoint.unwrap().step, Step(1));
    assert_eq!(found.rejected, [""; 0]);
}

#[test]
fn a_flipped_bit_leads_to_the_previous_checkpoint_and_is_said() {
    let mut bench = Bench::new();
    bench.write(request(bench.dir.path(), 1));
    bench.write(request(bench.dir.path(), 2));
    let folder = bench.ckpt().join("step-2");
    flip_a_bit(&folder.join("rank-1.safetensors"), 4_999_999);
    let found = bench.newest();
    assert_eq!(found.checkpoint.unwrap().step, Step(1));
    let said = format!(
        "checkpoint {} is not used: the shard of rank 1 does not match its digest",
        folder.display()
    );
    assert_eq!(found.rejected, [said]);
}

#[test]
fn no_flipped_bit_of_a_manifest_passes() {
    let mut bench = Bench::new();
    bench.write(request(bench.dir.path(), 1));
    let path = bench.ckpt().join("step-1/manifest.json");
    let good = std::fs::read(&path).unwrap();
    let expected = bench.newest().checkpoint;
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        if let Ok(found) = manifest::load(path.parent().unwrap()) {
            // Space between the fields says nothing.
            assert_eq!(found, expected, "byte {at}");
        }
    }
}

#[test]
fn a_slot_overwritten_meanwhile_gives_no_checkpoint() {
    let mut bench = Bench::new();
    let good = request(bench.dir.path(), 1);
    bench.write(good.clone());
    let torn = request(bench.dir.path(), 2);
    flip_a_bit(Path::new(&torn.shards[1].path), 77);
    let said = bench.write(torn.clone());
    assert!(
        said.starts_with("no checkpoint of step 2: the snapshot "),
        "{said}"
    );
    assert!(
        said.contains("changed while it was copied (digest "),
        "{said}"
    );
    assert!(said.ends_with("the job goes on"), "{said}");
    let mut short = request(bench.dir.path(), 3);
    short.shards[0].bytes += 1;
    let said = bench.write(short);
    assert!(
        said.contains("(5000001 bytes instead of 5000002)"),
        "{said}"
    );
    assert_eq!(bench.names(), ["step-1"]);
    assert_eq!(bench.newest().checkpoint.unwrap().step, Step(1));
}

#[test]
fn only_so_many_stay_and_leftovers_go() {
    let mut bench = Bench::new();
    std::fs::create_dir(bench.ckpt().join("step-1")).unwrap();
    for step in [2, 3, 4, 5] {
        bench.write(request(bench.dir.path(), step));
    }
    assert_eq!(bench.names(), ["step-4", "step-5"]);
    let index: Vec<_> = bench
        .store
        .checkpoints()
        .unwrap()
        .iter()
        .map(|c| c.step.0)
        .collect();
    assert_eq!(index, [4, 5]);
    // The job went back behind 5 and committed 4 anew.
    bench.write(request(bench.dir.path(), 4));
    assert_eq!(bench.names(), ["step-4"]);
    assert_eq!(bench.newest().checkpoint.unwrap().step, Step(4));
}

#[test]
fn a_step_offered_while_another_is_written_is_skipped_and_counted() {
    let mut bench = Bench::new();
    let first = request(bench.dir.path(), 1);
    assert_eq!(bench.checkpointer.offer(first.clone()), Offer::Taken);
    assert_eq!(bench.checkpointer.offer(first.clone()), Offer::Behind);
    assert_eq!(bench.checkpointer.skipped(), 1);
    bench.events.blocking_recv().unwrap();
    assert_eq!(bench.checkpointer.offer(first), Offer::Taken);
    bench.events.blocking_recv().unwrap();
}

#[test]
fn the_index_is_rebuilt_from_the_manifests() {
    let mut bench = Bench::new();
    bench.write(request(bench.dir.path(), 1));
    let Bench {
        dir,
        store,
        checkpointer,
        mut events,
    } = bench;
    drop((checkpointer, store));
    while events.blocking_recv().is_some() {}
    std::fs::remove_dir_all(dir.path().join("db")).unwrap();
    let mut bench = Bench::over(dir);
    bench.write(request(bench.dir.path(), 2));
    let index: Vec<_> = bench
        .store
        .checkpoints()
        .unwrap()
        .iter()
        .map(|c| c.step.0)
        .collect();
    assert_eq!(index, [1, 2]);
}

const DIR: &str = "ROBUST_TEST_CKPT_DIR";

/// The child's part: its files cannot grow beyond 4 MiB, like on a full disk.
#[test]
#[ignore = "run by the test below, with limits"]
fn child_whose_disk_is_full() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let slots = Path::new(&dir).join("slots");
    let ckpt = Path::new(&dir).join("ckpt");
    std::fs::create_dir(&ckpt).unwrap();
    let bytes = std::fs::read(slots.join("slot")).unwrap();
    let taken = Taken {
        step: Step(1),
        generation: Generation(1),
        bytes: bytes.len() as u64,
    };
    let image = Image::open(&slots.join("slot"), taken).unwrap();
    let error = write::copy_shard(&RealDisk, &image, None, &ckpt.join("rank-0"));
    std::fs::write(
        Path::new(&dir).join("error"),
        error.unwrap_err().to_string(),
    )
    .unwrap();
}

#[test]
fn on_a_full_disk_the_copy_fails_with_words_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("slots")).unwrap();
    std::fs::write(dir.path().join("slots/slot"), vec![3; 9_000_000]).unwrap();
    let script = format!(
        "trap '' XFSZ; ulimit -f 8192; exec '{}' --exact --ignored \
         ckpt::tests::child_whose_disk_is_full",
        std::env::current_exe().unwrap().display()
    );
    let status = Command::new("sh")
        .args(["-c", &script])
        .env(DIR, dir.path())
        .status()
        .unwrap();
    assert!(status.success());
    let error = std::fs::read_to_string(dir.path().join("error")).unwrap();
    assert!(error.starts_with("no space for "), "{error}");
    assert_eq!(
        std::fs::read_dir(dir.path().join("ckpt")).unwrap().count(),
        0
    );
}

#[test]
fn pinned_and_best_checkpoints_stay_beside_the_newest() {
    let keep = Retention {
        last: 1,
        every: 0,
        best: 1,
    };
    let mut bench = Bench::keeping(tempfile::tempdir().unwrap(), keep);
    for step in 1..=5 {
        let mut request = request(bench.dir.path(), step);
        request.reward = Some(if step == 3 { 9.0 } else { 0.1 });
        bench.write(request);
        if step == 2 {
            pin::set(&RealDisk, &bench.ckpt().join("step-2"), true).unwrap();
        }
    }
    assert_eq!(bench.names(), ["step-2", "step-3", "step-5"]);
    let indexed = bench.store.checkpoints().unwrap();
    let steps: Vec<_> = indexed.iter().map(|c| c.step.0).collect();
    assert_eq!(steps, [2, 3, 5]);
}

#[test]
fn the_index_follows_when_an_operator_collects_a_checkpoint() {
    let mut bench = Bench::new();
    bench.write(request(bench.dir.path(), 1));
    folder::remove(&RealDisk, &bench.ckpt().join("step-1")).unwrap();
    bench.write(request(bench.dir.path(), 2));
    let indexed = bench.store.checkpoints().unwrap();
    assert_eq!(indexed.iter().map(|c| c.step.0).collect::<Vec<_>>(), [2]);
}
