//! A real daemon on a really full disk: a small file system of this test's own, in a mount namespace
//! of its thread, so that nothing is left of it whatever happens.
use super::{Site, fs};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use robust_proto::v1;
use std::path::Path;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Of the file system; a sixteenth of it is the database's reserve.
const SIZE_MIB: u64 = 192;
/// The exit code after SIGTERM.
const STOPPED: i32 = 143;
const NONE: Option<&str> = None;

/// Puts a small file system where the state goes; false where this is not allowed, which is recorded.
pub fn on_a_small_disk(site: &Site) -> bool {
    fs::create_dir(site.state()).unwrap();
    let options = format!("size={SIZE_MIB}m");
    let mounted = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE))
        .and_then(|()| {
            let (kind, options) = (Some("tmpfs"), Some(&*options));
            mount(kind, &site.state(), kind, MsFlags::empty(), options)
        });
    if let Err(error) = mounted {
        let lacks = format!("no file system can be mounted ({error})");
        robust_needs::skip(lacks, robust_needs::ROOT);
    }
    mounted.is_ok()
}

fn free(state: &Path) -> u64 {
    let found = nix::sys::statvfs::statvfs(state).unwrap();
    found.blocks_available() * found.fragment_size()
}

/// Takes the disk's room but for so many bytes.
fn fill_to(state: &Path, left: u64) {
    let ballast = fs::File::options()
        .create(true)
        .append(true)
        .open(state.join("ballast"))
        .unwrap();
    let there = ballast.metadata().unwrap().len();
    let more = free(state).saturating_sub(left);
    nix::fcntl::posix_fallocate(&ballast, 0, i64::try_from(there + more).unwrap()).unwrap();
}

fn has(status: &v1::Status, alarm: &str) -> bool {
    status.alarms.iter().any(|a| a.kind == alarm)
}

async fn events(site: &Site, kind: &str) -> Vec<String> {
    let mut control = site.control().await;
    let request = v1::EventsRequest::default();
    let mut stream = control.events(request).await.unwrap().into_inner();
    let mut texts = Vec::new();
    while let Some(event) = stream.message().await.unwrap() {
        if event.kind == kind {
            texts.push(event.text);
        }
    }
    texts
}

fn assert_in_order(texts: &[String], parts: &[&str]) {
    let mut rest = texts.iter();
    for part in parts {
        assert!(
            rest.any(|t| t.contains(part)),
            "no {part:?} in order in {texts:#?}"
        );
    }
}

#[tokio::test]
async fn on_a_full_disk_the_job_waits_says_so_and_goes_on_by_itself() {
    let site = Site::new(100_000);
    if !on_a_small_disk(&site) {
        return;
    }
    let daemon = site.start();
    let state = site.state();
    site.wait_for("first checkpoint", |_| {
        state.join("ckpt/step-2/manifest.json").exists()
    })
    .await;

    fill_to(&state, MIB);
    let paused = site.wait_for("alarm", |s| has(s, "database full")).await;
    let alarm = paused
        .alarms
        .iter()
        .find(|a| a.kind == "database full")
        .unwrap();
    assert!(alarm.text.contains("the job waits until "), "{alarm:?}");
    assert_eq!(paused.state, "running");
    // What is under way ends in memory; no further step is committed, and nobody is killed for it.
    let settled = site.wait_for("standstill", |_| true).await.step;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let later = site.wait_for("status", |_| true).await;
    assert!(later.step <= settled + 1, "{} after {settled}", later.step);
    assert!(
        has(&later, "database full") && later.incidents.is_empty(),
        "{later:#?}"
    );
    let leftovers = fs::read_dir(state.join("ckpt")).unwrap().flatten();
    for folder in leftovers.map(|e| e.path()) {
        assert!(
            folder.join("manifest.json").exists(),
            "{} is partial",
            folder.display()
        );
    }

    fs::remove_file(state.join("ballast")).unwrap();
    let gone = |s: &v1::Status| s.alarms.is_empty() && s.step > later.step + 4;
    let resumed = site.wait_for("alarms gone and steps", gone).await;
    assert!(resumed.incidents.is_empty(), "{resumed:#?}");
    // The events of that time were kept, and are in the store now.
    let said = events(&site, "store").await;
    assert_in_order(
        &said,
        &["the database's disk is full", "the database takes writes"],
    );
    let written = |_: &v1::Status| {
        let step = resumed.step / 2 * 2;
        state
            .join(format!("ckpt/step-{step}/manifest.json"))
            .exists()
            || robust_ckpt::list(&state.join("ckpt"))
                .unwrap()
                .iter()
                .any(|l| l.step.0 > step)
    };
    site.wait_for("a checkpoint after it", written).await;

    daemon.signal(Signal::SIGTERM);
    let (code, _) = daemon.output();
    assert_eq!(code, STOPPED, "{}", site.log());
    let (store, note) = robustd::store::Store::open(&state).unwrap();
    assert_eq!(note, None);
    let checked = store.check(&mut |_| ()).unwrap();
    assert_eq!(checked.problems, [""; 0]);
    assert!(checked.committed >= resumed.step, "{checked:?}");
}

#[tokio::test]
async fn without_room_for_a_checkpoint_the_job_goes_on_and_checkpoints_resume() {
    let site = Site::new(100_000);
    if !on_a_small_disk(&site) {
        return;
    }
    let daemon = site.start();
    let state = site.state();
    site.wait_for("first checkpoint", |_| {
        state.join("ckpt/step-2/manifest.json").exists()
    })
    .await;
    // Enough for the database, not for a checkpoint beside its reserve. The database grows: so for a
    // while only, which is long enough to see steps go on.
    fill_to(&state, SIZE_MIB * MIB / 16 + MIB / 2);
    let paused = site
        .wait_for("alarm", |s| has(s, "checkpoints paused"))
        .await;
    assert!(!has(&paused, "database full"), "{:?}", paused.alarms);
    site.wait_for("steps meanwhile", |s| s.step > paused.step)
        .await;
    fs::remove_file(state.join("ballast")).unwrap();
    let resumed = site.wait_for("no alarm", |s| s.alarms.is_empty()).await;
    let newest = || {
        let listed = robust_ckpt::list(&state.join("ckpt")).unwrap();
        listed.last().map_or(0, |l| l.step.0)
    };
    site.wait_for("a checkpoint after it", |_| newest() > resumed.step)
        .await;
    let said = events(&site, "checkpoint").await;
    assert_in_order(
        &said,
        &[
            "no room for the checkpoint of step ",
            "there is room for checkpoints",
        ],
    );
    daemon.signal(Signal::SIGTERM);
    let (code, _) = daemon.output();
    assert_eq!(code, STOPPED, "{}", site.log());
}

#[tokio::test]
async fn a_job_that_waits_for_a_full_disk_can_be_stopped_and_goes_on_later() {
    let site = Site::new(100_000);
    if !on_a_small_disk(&site) {
        return;
    }
    let daemon = site.start();
    let state = site.state();
    site.wait_for("first step", |s| s.step >= 2).await;
    fill_to(&state, MIB);
    let paused = site.wait_for("alarm", |s| has(s, "database full")).await;
    let began = std::time::Instant::now();
    daemon.signal(Signal::SIGTERM);
    let (code, _) = daemon.output();
    assert_ne!(code, STOPPED, "its last records could not be stored");
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    assert!(
        site.log()
            .contains("the store does not take records any more"),
        "{}",
        site.log()
    );
    fs::remove_file(state.join("ballast")).unwrap();
    let daemon = site.start();
    site.wait_for("progress", |s| s.step > paused.step + 2)
        .await;
    daemon.signal(Signal::SIGTERM);
    let (code, _) = daemon.output();
    assert_eq!(code, STOPPED, "{}", site.log());
}
