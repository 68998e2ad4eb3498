//! Against a real S3 server (`robust-s3`). Skipped, which is recorded, where that cannot be had.
#![allow(clippy::unwrap_used)]
mod support;

use robust_ckpt::{Retention, newest_complete};
use robust_remote::{Local, Remote, RemoteError};
use robust_s3::Server;
use robust_shared::ids::Step;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{LARGE, SMALL, checkpoint, content, put, steps};

/// What an operator sets; the only test of this program, so nobody reads it meanwhile.
#[allow(unsafe_code)]
fn set_environment(server: &Server) {
    for (name, value) in server.environment() {
        // SAFETY: no other thread of this program reads or writes the environment.
        unsafe { std::env::set_var(name, value) };
    }
}

#[test]
fn checkpoints_are_put_listed_verified_fetched_and_removed_on_a_real_server() {
    let Some(mut server) = Server::start() else {
        return;
    };
    set_environment(&server);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let remote = Remote::open("s3://robust/jobs/demo").unwrap();
    let dir = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        comes_back(&remote, dir.path()).await;
        leaves_no_parts(&remote, dir.path(), &mut server).await;
        is_tidied(&remote, dir.path()).await;
        is_told_plainly().await;
        server.kill();
        ends_without_a_server(&remote, dir.path()).await;
    });
}

async fn comes_back(remote: &Remote, dir: &Path) {
    let (near, far) = (dir.join("near"), dir.join("far"));
    for (step, length) in [(6, SMALL), (7, LARGE)] {
        put(remote, "r", &checkpoint(&near, 3, step, length)).await;
    }
    let (kept, rejected) = remote.newest("r", Step(u64::MAX)).await.unwrap();
    assert_eq!(rejected, [""; 0]);
    let kept = kept.unwrap();
    assert_eq!(kept.place.step, Step(7));
    let mut read = 0;
    remote.verify(&kept, &mut |n| read += n).await.unwrap();
    assert_eq!(read, 2 * LARGE as u64 + 1);
    remote.fetch(&kept, &far, &mut |_| ()).await.unwrap();
    assert_eq!(content(&far.join("step-7")), content(&near.join("step-7")));
    let found = newest_complete(&far).unwrap().checkpoint.unwrap();
    assert_eq!(found.step, Step(7));
    // The same step of a newer gang, then the older gang's again: both stay, the newer counts.
    let newer = dir.join("newer");
    put(remote, "r", &checkpoint(&newer, 4, 7, SMALL)).await;
    put(remote, "r", &near.join("step-7")).await;
    let (kept, _) = remote.newest("r", Step(u64::MAX)).await.unwrap();
    assert_eq!(kept.unwrap().place.generation.0, 4);
}

/// A shard that is not what the manifest says costs its parts: none is left to be paid for.
async fn leaves_no_parts(remote: &Remote, dir: &Path, server: &mut Server) {
    let bad = checkpoint(&dir.join("bad"), 3, 9, LARGE);
    let shard = bad.join("rank-0.safetensors");
    let mut data = std::fs::read(&shard).unwrap();
    data[LARGE - 1] ^= 1;
    std::fs::write(&shard, data).unwrap();
    let local = Local::open(&bad).unwrap();
    let error = remote.upload("r", local, &mut |_| ()).await.unwrap_err();
    assert!(matches!(error, RemoteError::Bad { .. }), "{error}");
    assert_eq!(server.ask("uploads"), "0");
    assert!(!steps(&remote.list("r").await.unwrap()).contains(&(3, 9)));
    // What lost a shard over there is found.
    server.ask("drop jobs/demo/r/step-6.g3/rank-1.safetensors");
    let kept = remote.list("r").await.unwrap().remove(0);
    let error = remote.verify(&kept, &mut |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("step-6.g3/rank-1"), "{error}");
}

async fn is_tidied(remote: &Remote, dir: &Path) {
    put(remote, "other", &dir.join("near/step-6")).await;
    let keep = Retention {
        last: 1,
        every: 0,
        best: 0,
    };
    let gone = remote.tidy("r", &keep, &BTreeSet::new()).await.unwrap();
    assert_eq!(gone.len(), 2, "{gone:?}");
    assert_eq!(steps(&remote.list("r").await.unwrap()), [(4, 7)]);
    assert_eq!(remote.runs().await.unwrap(), ["other", "r"]);
}

async fn is_told_plainly() {
    let nowhere = Remote::open("s3://no-such-bucket/x").unwrap();
    let error = nowhere.list("r").await.unwrap_err().to_string();
    assert!(error.contains("NoSuchBucket"), "{error}");
}

async fn ends_without_a_server(remote: &Remote, dir: &Path) {
    let begun = Instant::now();
    let local = Local::open(&dir.join("near/step-6")).unwrap();
    let error = remote.upload("r", local, &mut |_| ()).await.unwrap_err();
    assert!(matches!(error, RemoteError::Store { .. }), "{error}");
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
}
