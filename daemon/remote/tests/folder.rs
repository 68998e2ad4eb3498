//! A folder as object store: what is put there, comes back, and stays.
#![allow(clippy::unwrap_used)]
#[path = "../../../shared/src/forge.rs"]
mod forge;
mod support;

use robust_ckpt::{Retention, newest_complete};
use robust_remote::{Local, Remote, SigningKey};
use robust_shared::ids::Step;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::{LARGE, SMALL, checkpoint, content, put, steps};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

struct Bench {
    dir: TempDir,
    remote: Remote,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let remote = Remote::open(&format!("file://{}/far/away", dir.path().display())).unwrap();
        Self { dir, remote }
    }

    fn ckpt(&self) -> PathBuf {
        self.dir.path().join("ckpt")
    }

    /// Where a checkpoint of a run lies in the store.
    fn far(&self, run: &str, name: &str) -> PathBuf {
        self.dir.path().join("far/away").join(run).join(name)
    }
}

fn last(last: usize) -> Retention {
    Retention {
        last,
        every: 0,
        best: 0,
    }
}

#[tokio::test]
async fn a_checkpoint_comes_back_bit_by_bit_where_the_disk_lost_it() {
    let bench = Bench::new();
    let dir = checkpoint(&bench.ckpt(), 3, 7, LARGE);
    let mut sent = 0;
    let local = Local::open(&dir).unwrap();
    let uploaded = bench
        .remote
        .upload("r", local, &mut |n| sent += n)
        .await
        .unwrap();
    assert_eq!(
        (sent, uploaded.bytes),
        (2 * LARGE as u64 + 1, 2 * LARGE as u64 + 1)
    );
    let before = content(&dir);
    std::fs::remove_dir_all(&dir).unwrap();

    let (kept, rejected) = bench.remote.newest("r", Step(u64::MAX)).await.unwrap();
    assert_eq!(rejected, [""; 0]);
    let kept = kept.unwrap();
    bench.remote.verify(&kept, &mut |_| ()).await.unwrap();
    let fetched = bench
        .remote
        .fetch(&kept, &bench.ckpt(), &mut |_| ())
        .await
        .unwrap();
    assert_eq!(fetched.dir, dir);
    assert_eq!(content(&dir), before);
    let found = newest_complete(&bench.ckpt()).unwrap();
    assert_eq!(found.checkpoint, Some(fetched));
}

/// Changes a manifest in the store as who may write to the bucket can: its digest fits again.
fn forge(manifest: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(manifest).unwrap();
    // Compact, as the digest is taken.
    let compact: String = text.lines().map(str::trim_start).collect();
    let compact = compact.replace("\": ", "\":").replace(from, to);
    let body = compact.split_once("\"body\":").unwrap().1;
    let body = body.strip_suffix('}').unwrap();
    let digest = xxh3_64(body.as_bytes());
    let forged = format!("{{\"xxh3\":\"{digest:016x}\",\"body\":{body}}}");
    std::fs::write(manifest, forged).unwrap();
}

#[tokio::test]
async fn a_manifest_of_a_bucket_that_names_a_file_of_this_machine_is_not_used() {
    let bench = Bench::new();
    let dir = checkpoint(&bench.ckpt(), 3, 7, SMALL);
    put(&bench.remote, "r", &dir).await;
    std::fs::remove_dir_all(&dir).unwrap();
    let manifest = bench.far("r", "step-7.g3").join("manifest.json");
    forge(&manifest, "nothing", "nothing");
    let kept = bench.remote.newest("r", Step(9)).await.unwrap().0;
    assert!(kept.is_some(), "forged without a change it is taken");
    forge(&manifest, "\"rank-1.safetensors\"", "\"/etc/passwd\"");
    let (kept, rejected) = bench.remote.newest("r", Step(9)).await.unwrap();
    assert_eq!(kept, None);
    assert!(
        rejected[0].contains("\"/etc/passwd\" for rank 1"),
        "{rejected:?}"
    );
}

#[tokio::test]
async fn a_checkpoint_that_is_there_is_not_put_again() {
    let bench = Bench::new();
    let dir = checkpoint(&bench.ckpt(), 3, 7, SMALL);
    put(&bench.remote, "r", &dir).await;
    let mut sent = 0;
    let local = Local::open(&dir).unwrap();
    let again = bench
        .remote
        .upload("r", local, &mut |n| sent += n)
        .await
        .unwrap();
    assert!(again.was_there);
    assert_eq!(sent, 0);
}

#[tokio::test]
async fn an_older_gang_that_comes_late_changes_nothing_of_a_newer_ones() {
    let bench = Bench::new();
    let (old, new) = (bench.dir.path().join("old"), bench.dir.path().join("new"));
    let late = checkpoint(&old, 1, 7, SMALL);
    let beyond = checkpoint(&old, 1, 9, SMALL);
    put(&bench.remote, "r", &checkpoint(&new, 2, 7, SMALL)).await;
    put(&bench.remote, "r", &late).await;
    put(&bench.remote, "r", &beyond).await;
    let (kept, _) = bench.remote.newest("r", Step(u64::MAX)).await.unwrap();
    let kept = kept.unwrap();
    assert_eq!((kept.place.generation.0, kept.place.step.0), (2, 7));
    let to = bench.dir.path().join("back");
    bench.remote.fetch(&kept, &to, &mut |_| ()).await.unwrap();
    assert_eq!(content(&to.join("step-7")), content(&new.join("step-7")));
}

#[tokio::test]
async fn what_is_flipped_or_missing_over_there_is_found_and_never_comes_here() {
    let bench = Bench::new();
    put(&bench.remote, "r", &checkpoint(&bench.ckpt(), 1, 7, SMALL)).await;
    put(&bench.remote, "r", &checkpoint(&bench.ckpt(), 1, 8, SMALL)).await;
    let shard = bench.far("r", "step-7.g1").join("rank-1.safetensors");
    let mut bad = std::fs::read(&shard).unwrap();
    bad[SMALL / 2] ^= 1;
    std::fs::write(&shard, bad).unwrap();
    std::fs::remove_file(bench.far("r", "step-8.g1").join("rank-0.safetensors")).unwrap();

    let back = bench.dir.path().join("back");
    for (kept, why) in bench.remote.list("r").await.unwrap().iter().zip([
        "the shard of rank 1 does not match its digest",
        "cannot read r/step-8.g1/rank-0",
    ]) {
        let verified = bench.remote.verify(kept, &mut |_| ()).await.unwrap_err();
        assert!(verified.to_string().contains(why), "{verified}");
        let fetched = bench
            .remote
            .fetch(kept, &back, &mut |_| ())
            .await
            .unwrap_err();
        assert!(fetched.to_string().contains(why), "{fetched}");
    }
    assert_eq!(content(&back), []);
}

#[tokio::test]
async fn a_torn_manifest_is_passed_over_and_said() {
    let bench = Bench::new();
    put(&bench.remote, "r", &checkpoint(&bench.ckpt(), 1, 7, SMALL)).await;
    put(&bench.remote, "r", &checkpoint(&bench.ckpt(), 1, 8, SMALL)).await;
    put(&bench.remote, "r", &checkpoint(&bench.ckpt(), 1, 9, SMALL)).await;
    let torn = bench.far("r", "step-9.g1").join("manifest.json");
    let text = std::fs::read(&torn).unwrap();
    std::fs::write(&torn, &text[..text.len() / 2]).unwrap();
    // Put into the wrong place by hand.
    let (from, to) = (bench.far("r", "step-7.g1"), bench.far("r", "step-8.g1"));
    std::fs::copy(from.join("manifest.json"), to.join("manifest.json")).unwrap();
    let (kept, rejected) = bench.remote.newest("r", Step(u64::MAX)).await.unwrap();
    assert_eq!(kept.unwrap().place.step, Step(7));
    assert!(
        rejected[0].starts_with("step 9 of g1 in run r is not used: "),
        "{rejected:?}"
    );
    assert!(
        rejected[1].contains("its manifest is that of step 7"),
        "{rejected:?}"
    );
    let (kept, _) = bench.remote.newest("r", Step(6)).await.unwrap();
    assert_eq!(kept, None, "of steps up to 6 there is none");
}

#[tokio::test]
async fn a_file_that_is_not_what_its_manifest_says_is_not_put() {
    let bench = Bench::new();
    for length in [SMALL, LARGE] {
        let dir = checkpoint(&bench.ckpt(), 1, 7, length);
        let shard = dir.join("rank-1.safetensors");
        let mut bad = std::fs::read(&shard).unwrap();
        bad[length - 1] ^= 1;
        std::fs::write(&shard, bad).unwrap();
        let local = Local::open(&dir).unwrap();
        let error = bench
            .remote
            .upload("r", local, &mut |_| ())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("instead of"), "{error}");
        assert_eq!(bench.remote.list("r").await.unwrap(), []);
        assert!(
            !bench
                .far("r", "step-7.g1")
                .join("rank-1.safetensors")
                .exists()
        );
    }
}

#[tokio::test]
async fn a_checkpoint_removed_here_while_it_is_put_arrives_whole() {
    let bench = Bench::new();
    let dir = checkpoint(&bench.ckpt(), 1, 7, LARGE);
    let before = content(&dir);
    let local = Local::open(&dir).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    bench.remote.upload("r", local, &mut |_| ()).await.unwrap();
    let kept = bench.remote.list("r").await.unwrap();
    bench
        .remote
        .fetch(&kept[0], &bench.ckpt(), &mut |_| ())
        .await
        .unwrap();
    assert_eq!(content(&dir), before);
}

#[tokio::test]
async fn a_damaged_folder_here_is_set_aside_for_the_one_that_comes_back() {
    let bench = Bench::new();
    let dir = checkpoint(&bench.ckpt(), 1, 7, SMALL);
    let before = content(&dir);
    put(&bench.remote, "r", &dir).await;
    let kept = bench.remote.list("r").await.unwrap().remove(0);
    std::fs::write(dir.join("rank-0.safetensors"), b"torn").unwrap();
    // Left by a fetch that was killed.
    std::fs::create_dir(bench.ckpt().join(".fetch-step-7")).unwrap();
    bench
        .remote
        .fetch(&kept, &bench.ckpt(), &mut |_| ())
        .await
        .unwrap();
    assert_eq!(content(&dir), before);
    let mut names: Vec<String> = std::fs::read_dir(bench.ckpt())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 2);
    assert!(names[1].starts_with("step-7.corrupt-"), "{names:?}");
    // And one that is whole is left as it is.
    let inode =
        |path: &PathBuf| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let of = inode(&dir);
    bench
        .remote
        .fetch(&kept, &bench.ckpt(), &mut |_| ())
        .await
        .unwrap();
    assert_eq!(inode(&dir), of);
}

#[tokio::test]
async fn only_so_many_stay_and_history_that_did_not_happen_goes() {
    let bench = Bench::new();
    let (one, two) = (bench.dir.path().join("1"), bench.dir.path().join("2"));
    for step in [2, 4, 6, 8] {
        put(&bench.remote, "r", &checkpoint(&one, 1, step, SMALL)).await;
    }
    put(&bench.remote, "other", &one.join("step-8")).await;
    // Never got its manifest.
    std::fs::create_dir_all(bench.far("r", "step-5.g1")).unwrap();
    std::fs::write(bench.far("r", "step-5.g1").join("rank-0.safetensors"), b"x").unwrap();
    put(&bench.remote, "r", &checkpoint(&two, 2, 7, SMALL)).await;
    let pinned = BTreeSet::from([Step(2)]);
    let gone = bench.remote.tidy("r", &last(2), &pinned).await.unwrap();
    let gone: Vec<_> = gone.iter().map(|p| (p.generation.0, p.step.0)).collect();
    assert_eq!(gone, [(1, 4), (1, 5), (1, 8)]);
    let left = bench.remote.list("r").await.unwrap();
    assert_eq!(steps(&left), [(1, 2), (1, 6), (2, 7)]);
    assert_eq!(steps(&bench.remote.list("other").await.unwrap()), [(1, 8)]);
    assert_eq!(bench.remote.runs().await.unwrap(), ["other", "r"]);
    assert!(!bench.far("r", "step-5.g1").exists());
}

/// The bench's store with a key.
fn signed(bench: &Bench, byte: u8) -> Remote {
    let signing_key = SigningKey::of(&[byte; 32]).unwrap();
    bench.remote.clone().signed_with(Some(signing_key))
}

#[tokio::test]
async fn a_signed_checkpoint_comes_back_and_one_that_was_changed_gives_way_to_an_older_one() {
    let bench = Bench::new();
    let remote = signed(&bench, 1);
    for step in [6, 7] {
        put(&remote, "r", &checkpoint(&bench.ckpt(), 3, step, SMALL)).await;
    }
    let dir = bench.ckpt().join("step-7");
    let before = content(&dir);
    std::fs::remove_dir_all(&dir).unwrap();
    let kept = remote.newest("r", Step(9)).await.unwrap().0.unwrap();
    remote.verify(&kept, &mut |_| ()).await.unwrap();
    remote
        .fetch(&kept, &bench.ckpt(), &mut |_| ())
        .await
        .unwrap();
    assert_eq!(content(&dir), before, "the signature stays in the store");
    // Who may write to the bucket says that other trajectories were consumed.
    let manifest = bench.far("r", "step-7.g3").join("manifest.json");
    forge(&manifest, "\"batch\":7", "\"batch\":8");
    let (kept, rejected) = bench.remote.newest("r", Step(9)).await.unwrap();
    assert_eq!(
        kept.unwrap().place.step,
        Step(7),
        "without a key it is taken"
    );
    assert_eq!(rejected, [""; 0]);
    let (kept, rejected) = remote.newest("r", Step(9)).await.unwrap();
    assert_eq!(kept.unwrap().place.step, Step(6));
    assert!(
        rejected[0].contains("its signature is not by the key"),
        "{rejected:?}"
    );
}

#[tokio::test]
async fn other_weights_with_the_same_xxh3_are_no_signed_checkpoint() {
    let bench = Bench::new();
    let remote = signed(&bench, 1);
    let dir = checkpoint(&bench.ckpt(), 3, 7, LARGE);
    put(&remote, "r", &dir).await;
    std::fs::remove_dir_all(&dir).unwrap();
    let shard = bench.far("r", "step-7.g3").join("rank-1.safetensors");
    let published = std::fs::read(&shard).unwrap();
    let forged = forge::same_xxh3(&published, &vec![0x3f; published.len()]);
    assert_eq!(xxh3_64(&forged), xxh3_64(&published));
    std::fs::write(&shard, forged).unwrap();
    let kept = bench.remote.newest("r", Step(9)).await.unwrap().0.unwrap();
    let taken = bench.remote.verify(&kept, &mut |_| ()).await;
    assert!(taken.is_ok(), "without a key nobody sees it");
    let kept = remote.newest("r", Step(9)).await.unwrap().0.unwrap();
    let verified = remote.verify(&kept, &mut |_| ()).await;
    let fetched = remote.fetch(&kept, &bench.ckpt(), &mut |_| ()).await;
    for refused in [verified.unwrap_err(), fetched.unwrap_err()] {
        let refused = refused.to_string();
        assert!(
            refused.contains("rank 1 does not match its signed BLAKE3"),
            "{refused}"
        );
    }
    assert!(!dir.exists());
}

#[tokio::test]
async fn one_that_is_not_signed_is_of_no_use_until_who_has_the_key_puts_it_again() {
    let bench = Bench::new();
    let dir = checkpoint(&bench.ckpt(), 3, 7, SMALL);
    put(&bench.remote, "r", &dir).await;
    let remote = signed(&bench, 1);
    let (kept, rejected) = remote.newest("r", Step(9)).await.unwrap();
    assert_eq!(kept, None);
    assert!(rejected[0].contains("it is not signed"), "{rejected:?}");
    put(&signed(&bench, 2), "r", &dir).await;
    let (kept, rejected) = remote.newest("r", Step(9)).await.unwrap();
    assert_eq!(kept, None);
    assert!(rejected[0].contains("is not by the key"), "{rejected:?}");
    put(&remote, "r", &dir).await;
    assert!(remote.newest("r", Step(9)).await.unwrap().0.is_some());
    let local = Local::open(&dir).unwrap();
    let again = remote.upload("r", local, &mut |_| ()).await.unwrap();
    assert!(again.was_there);
    // That of another run of the same key, in its place.
    let (from, to) = (bench.far("r", "step-7.g3"), bench.far("s", "step-7.g3"));
    std::fs::create_dir_all(&to).unwrap();
    for (name, bytes) in content(&from) {
        std::fs::write(to.join(name), bytes).unwrap();
    }
    let (kept, rejected) = remote.newest("s", Step(9)).await.unwrap();
    assert_eq!(kept, None, "{rejected:?}");
}
