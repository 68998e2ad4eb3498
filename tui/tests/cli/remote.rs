//! Checkpoints in an object store, here a folder; no daemon is asked.
use super::{err, out, run};
use robust_ckpt::disk::RealDisk;
use robust_ckpt::{Checkpoint, Shard, manifest};
use robust_remote::{Local, Remote, SigningKey};
use robust_shared::ids::{Generation, Step};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

/// A state directory without anything, and a store beside it.
struct Bench {
    dir: TempDir,
    url: String,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let url = format!("file://{}/far", dir.path().display());
        Self { dir, url }
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn far(&self, run: &str, folder: &str) -> PathBuf {
        self.dir.path().join("far").join(run).join(folder)
    }

    /// Puts a checkpoint of one rank there.
    fn put(&self, run: &str, generation: u64, step: u64) {
        self.put_signed(run, generation, step, None);
    }

    /// The same, signed if there is a key.
    fn put_signed(&self, run: &str, generation: u64, step: u64, key: Option<SigningKey>) {
        let dir = self.dir.path().join(format!("{run}-step-{step}"));
        std::fs::create_dir_all(&dir).unwrap();
        let data = vec![step as u8; 1000];
        let path = dir.join(manifest::shard_file(0));
        std::fs::write(&path, &data).unwrap();
        let shard = Shard {
            rank: 0,
            path,
            bytes: data.len() as u64,
            xxh3: xxh3_64(&data),
        };
        let made = Checkpoint {
            step: Step(step),
            generation: Generation(generation),
            shards: vec![shard],
            consumed: vec![],
            reward: Some(0.5),
            at: None,
            adam_step: None,
            tensors: vec![],
            dir: dir.clone(),
        };
        manifest::store(&RealDisk, &made).unwrap();
        let remote = Remote::open(&self.url).unwrap().signed_with(key);
        let local = Local::open(&dir).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let sent = &mut |_| ();
        let uploading = remote.upload(run, local, sent);
        runtime.unwrap().block_on(uploading).unwrap();
    }

    fn ckpt(&self, args: &[&str]) -> Output {
        let remote = format!("--remote={}", self.url);
        let mut all = vec!["ckpt"];
        all.extend(args);
        all.push(&remote);
        run(&self.state(), &all)
    }

    fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.push("--json");
        let output = self.ckpt(&all);
        assert!(output.status.success(), "{}", err(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn steps(&self) -> Vec<u64> {
        steps(&self.json(&["ls"])["checkpoints"])
    }
}

fn steps(of: &Value) -> Vec<u64> {
    let all = of.as_array().unwrap().iter();
    all.map(|c| c["step"].as_u64().unwrap()).collect()
}

fn is_refused(output: &Output, words: &str) {
    assert_eq!(output.status.code(), Some(2), "{}", out(output));
    assert!(err(output).contains(words), "{}", err(output));
}

#[test]
fn with_a_signing_key_only_what_is_signed_by_it_is_of_use() {
    let bench = Bench::new();
    let file = bench.dir.path().join("bucket.key");
    std::fs::write(&file, "k".repeat(64)).unwrap();
    let set_mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&file, mode).unwrap();
    };
    set_mode(0o600);
    let key = SigningKey::read(&file).unwrap();
    bench.put_signed("r", 1, 4, Some(key));
    bench.put("r", 1, 9);
    let path = file.to_str().unwrap();
    let with_key = ["--signing-key-file", path];
    let listed = bench.json(&[&["ls"], &with_key[..]].concat());
    let (signed, other) = (&listed["checkpoints"][0], &listed["checkpoints"][1]);
    assert_eq!(
        (&signed["step"], &signed["complete"]),
        (&4.into(), &true.into())
    );
    let reason = other["reason"].as_str().unwrap();
    assert!(reason.contains("it is not signed"), "{reason}");
    let verified = bench.ckpt(&[&["verify"], &with_key[..]].concat());
    assert_eq!(verified.status.code(), Some(1), "{}", out(&verified));
    let fetched = bench.ckpt(&[&["fetch", "latest"], &with_key[..]].concat());
    assert!(fetched.status.success(), "{}", err(&fetched));
    assert!(bench.state().join("ckpt/step-4").is_dir());
    assert_eq!(bench.steps(), [4, 9], "who names no key takes all");
    set_mode(0o644);
    is_refused(&bench.ckpt(&[&["ls"], &with_key[..]].concat()), "chmod 600");
}

#[test]
fn what_is_there_is_listed_with_its_run() {
    let bench = Bench::new();
    assert!(out(&bench.ckpt(&["ls"])).starts_with("no checkpoint in file://"));
    bench.put("one", 1, 4);
    bench.put("two", 3, 9);
    let listed = bench.json(&["ls"]);
    assert_eq!(listed["url"], bench.url);
    let first = &listed["checkpoints"][0];
    assert_eq!(
        (&first["run"], &first["step"], &first["generation"]),
        (&"one".into(), &4.into(), &1.into())
    );
    assert_eq!(
        (&first["bytes"], &first["complete"]),
        (&1000.into(), &true.into())
    );
    assert_eq!(
        steps(&bench.json(&["ls", "--run", "two"])["checkpoints"]),
        [9]
    );
    let text = out(&bench.ckpt(&["ls"]));
    assert!(text.contains("RUN") && text.contains("complete"), "{text}");
}

#[test]
fn a_changed_byte_over_there_is_found_and_fails_the_command() {
    let bench = Bench::new();
    bench.put("one", 1, 4);
    bench.put("one", 1, 5);
    let output = bench.ckpt(&["verify"]);
    assert!(output.status.success(), "{}", err(&output));
    let shard = bench.far("one", "step-4.g1").join(manifest::shard_file(0));
    let mut data = std::fs::read(&shard).unwrap();
    data[700] ^= 1;
    std::fs::write(&shard, data).unwrap();
    let output = bench.ckpt(&["verify", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ok = |at: usize| found["verified"][at]["ok"].as_bool();
    assert_eq!((ok(0), ok(1)), (Some(false), Some(true)), "{found}");
    assert!(bench.ckpt(&["verify", "5"]).status.success());
    is_refused(
        &bench.ckpt(&["verify", "6"]),
        "there are those of steps 4, 5",
    );
}

#[test]
fn the_newest_comes_back_to_disk_like_any_other() {
    let bench = Bench::new();
    bench.put("one", 1, 4);
    bench.put("one", 2, 6);
    is_refused(
        &bench.ckpt(&["fetch", "5"]),
        "there are those of steps 4, 6",
    );
    is_refused(&bench.ckpt(&["fetch", "newest"]), "`newest` is no step");
    let fetched = bench.json(&["fetch", "latest"]);
    assert_eq!(
        (&fetched["step"], &fetched["run"]),
        (&6.into(), &"one".into())
    );
    let output = run(&bench.state(), &["ckpt", "verify", "--json"]);
    assert!(output.status.success(), "{}", err(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(steps(&found["verified"]), [6]);
}

#[test]
fn what_need_not_stay_over_there_goes_when_it_is_asked_and_not_before() {
    let bench = Bench::new();
    for (generation, step) in [(1, 2), (1, 4), (1, 8), (2, 6)] {
        bench.put("one", generation, step);
    }
    let all = bench.steps();
    let would = bench.json(&["gc", "--keep", "1", "--dry-run"]);
    assert_eq!(steps(&would["would_remove"]), [2, 4, 8]);
    assert_eq!(
        would["would_remove"][2]["why"], "undone",
        "gang 2 began before it"
    );
    assert_eq!(bench.steps(), all, "nothing went");
    let text = out(&bench.ckpt(&["gc", "--keep", "2"]));
    let wanted = "removed step 2 of g1 in run one (retention)";
    assert!(text.contains(wanted), "{text}");
    assert_eq!(bench.steps(), [4, 6]);
    let text = out(&bench.ckpt(&["gc", "--keep", "2"]));
    assert_eq!(text, "nothing to remove of run one\n");
}

#[test]
fn an_upload_that_may_be_under_way_is_left_until_a_day_has_gone_by() {
    let bench = Bench::new();
    bench.put("one", 1, 2);
    bench.put("one", 1, 3);
    let folder = bench.far("one", "step-3.g1");
    std::fs::remove_file(folder.join("manifest.json")).unwrap();
    let kept = bench.json(&["gc", "--keep", "5"]);
    assert_eq!(
        (steps(&kept["removed"]), steps(&kept["under_way"])),
        (vec![], vec![3])
    );
    assert!(out(&bench.ckpt(&["gc", "--keep", "5"])).contains("may be under way"));
    age(&folder.join(manifest::shard_file(0)), 25 * 3600);
    let gone = bench.json(&["gc", "--keep", "5"]);
    assert_eq!(
        (steps(&gone["removed"]), steps(&gone["under_way"])),
        (vec![3], vec![])
    );
    assert_eq!(gone["removed"][0]["why"], "incomplete");
    assert_eq!(bench.steps(), [2]);
}

fn age(path: &Path, seconds: u64) {
    let before = SystemTime::now() - Duration::from_secs(seconds);
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(before).unwrap();
}

#[test]
fn whose_checkpoints_go_and_how_many_stay_is_never_guessed() {
    let bench = Bench::new();
    bench.put("one", 1, 2);
    bench.put("two", 1, 3);
    is_refused(&bench.ckpt(&["gc", "--keep", "1"]), "there are one, two");
    is_refused(&bench.ckpt(&["gc", "--run", "one"]), "--keep N");
    is_refused(
        &bench.ckpt(&["gc", "--run", "one", "--keep", "0"]),
        "--keep",
    );
    is_refused(
        &run(&bench.state(), &["ckpt", "gc", "--keep", "1"]),
        "--remote",
    );
    // The state directory's own run, whatever else is there.
    bench.put("two", 1, 4);
    std::fs::write(bench.state().join("run"), "two\n").unwrap();
    let gone = bench.json(&["gc", "--keep", "1"]);
    assert_eq!(
        (&gone["run"], steps(&gone["removed"])),
        (&"two".into(), vec![3])
    );
    assert_eq!(bench.steps(), [2, 4]);
}

#[test]
fn a_store_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    is_refused(
        &run(dir.path(), &["ckpt", "ls", "--remote=ftp://x/y"]),
        "ftp",
    );
    let output = run(dir.path(), &["ckpt", "ls", "--remote"]);
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    assert!(err(&output).contains("job.json"), "{}", err(&output));
}
