//! Disks that fail.
use super::*;
use crate::store::database::{Commit, batch_of};
use robust_ckpt::disk::Space;
use robust_grouplog::Group;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;

/// Fails while the switch is on, after or before the batch reached sled.
struct Failing {
    inner: Box<dyn Commit>,
    fails: Arc<AtomicBool>,
    free: Arc<AtomicU64>,
    applies_first: bool,
}

impl Commit for Failing {
    fn commit(&mut self, tree: &sled::Tree, group: Group) -> Result<(), StoreError> {
        if !self.fails.load(Ordering::SeqCst) {
            return self.inner.commit(tree, group);
        }
        if self.applies_first {
            tree.apply_batch(batch_of(group)).unwrap();
        }
        let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
        Err(StoreError::io("write", Path::new("db"), source))
    }

    fn space(&self) -> std::io::Result<Space> {
        Ok(Space {
            free: self.free.load(Ordering::SeqCst),
            total: GIB,
        })
    }
}

fn failing(applies_first: bool) -> (TempDir, Store, Arc<AtomicBool>) {
    let (dir, store, fails, _) = on_a_disk(applies_first);
    (dir, store, fails)
}

/// A store, the switch that makes commits fail, and how many bytes are free.
fn on_a_disk(applies_first: bool) -> (TempDir, Store, Arc<AtomicBool>, Arc<AtomicU64>) {
    let dir = tempfile::tempdir().unwrap();
    let (fails, free) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(GIB)),
    );
    let (switch, room) = (Arc::clone(&fails), Arc::clone(&free));
    let wrap = |inner| {
        Box::new(Failing {
            inner,
            fails: switch,
            free: room,
            applies_first,
        }) as Box<dyn Commit>
    };
    let (store, _) = Store::open_with(dir.path(), Options::default(), wrap).unwrap();
    (dir, store, fails, free)
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn writes_stop_while_there_is_still_room_and_what_is_stored_stays_readable() {
    let (_dir, store, _, free) = on_a_disk(false);
    let condition = store.condition();
    let is_full = || matches!(*condition.borrow(), Condition::Full { .. });
    store.record(vec![issued(1)], state(b"one")).wait().unwrap();
    free.store(reserve(GIB) - 1, Ordering::SeqCst);
    let error = store
        .record(vec![issued(2)], state(b"two"))
        .wait()
        .unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert!(is_full());
    assert_eq!(state_of(&store).unwrap(), b"one");
    // Nobody waits for an event: it is written when there is room, without another word.
    let at = Time(5);
    let (seq, event) = store.append_event(Event {
        at,
        severity: Severity::Fault,
        kind: "disk".to_owned(),
        id: None,
        text: "full".to_owned(),
    });
    // A little more than the reserve is not enough: writes would stop again at once.
    free.store(reserve(GIB) + 1, Ordering::SeqCst);
    store.sync().wait().unwrap_err();
    assert!(is_full() && store.events_since(0, 9).unwrap().is_empty());
    free.store(reserve(GIB) * 2, Ordering::SeqCst);
    event.wait().unwrap();
    until("the store is sound again", || {
        *condition.borrow() == Condition::Sound
    });
    assert_eq!(store.events_since(0, 9).unwrap()[0].0, seq);
    store.record(vec![issued(2)], state(b"two")).wait().unwrap();
    assert_eq!(state_of(&store).unwrap(), b"two");
}

#[test]
fn a_commit_that_found_no_room_after_all_is_shown_until_one_succeeds() {
    let (_dir, store, fails) = failing(false);
    let condition = store.condition();
    fails.store(true, Ordering::SeqCst);
    store
        .record(vec![issued(1)], state(b"one"))
        .wait()
        .unwrap_err();
    assert!(matches!(*condition.borrow(), Condition::Full { .. }));
    fails.store(false, Ordering::SeqCst);
    store.record(vec![issued(1)], state(b"one")).wait().unwrap();
    until("the store is sound again", || {
        *condition.borrow() == Condition::Sound
    });
}

#[test]
fn a_full_disk_fails_every_writer_and_the_store_goes_on_when_there_is_space() {
    for applies_first in [false, true] {
        let (_dir, store, fails) = failing(applies_first);
        store.record(vec![issued(1)], state(b"one")).wait().unwrap();
        fails.store(true, Ordering::SeqCst);
        let (record, append) = (
            store.record(vec![issued(2)], state(b"two")),
            store.append_turn(id(1, 0), vec![1], turn(0, 3)),
        );
        let error = record.wait().unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(
            error.to_string().starts_with("no space for db: "),
            "{error}"
        );
        append.wait().unwrap_err();
        // What is not durable is not read either.
        assert!(store.remembered().is_err());
        fails.store(false, Ordering::SeqCst);
        store
            .append_turn(id(1, 0), vec![1], turn(0, 3))
            .wait()
            .unwrap();
        store
            .record(vec![issued(3)], state(b"three"))
            .wait()
            .unwrap();
        assert_eq!(state_of(&store).unwrap(), b"three");
        assert_eq!(
            store.trajectory(id(1, 0)).unwrap().unwrap().turns,
            [turn(0, 3)]
        );
    }
}

#[test]
fn a_database_that_cannot_be_opened_again_says_why_to_every_writer() {
    let (dir, store, fails) = failing(false);
    fails.store(true, Ordering::SeqCst);
    store
        .record(vec![issued(1)], state(b"one"))
        .wait()
        .unwrap_err();
    fails.store(false, Ordering::SeqCst);
    let (path, away) = (dir.path().join("db"), dir.path().join("away"));
    std::fs::rename(&path, &away).unwrap();
    std::fs::write(&path, "no folder").unwrap();
    let error = store.record(vec![issued(2)], state(b"two")).wait();
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("cannot open "), "{error}");
    std::fs::remove_file(&path).unwrap();
    std::fs::rename(&away, &path).unwrap();
    store
        .record(vec![issued(3)], state(b"three"))
        .wait()
        .unwrap();
}

const DIR: &str = "ROBUST_TEST_FULL_DIR";

/// The child's part: files of this process cannot grow beyond 12 MiB, like on a full disk.
#[test]
#[ignore = "run by the test below, with limits"]
fn child_that_fills_its_disk() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let (store, _) = Store::open(Path::new(&dir)).unwrap();
    let mut acknowledged = 0;
    for index in 0..2000 {
        match store
            .append_turn(id(1, 0), vec![1], turn(index, 4000))
            .wait()
        {
            Ok(_) => acknowledged = index + 1,
            Err(error) => {
                std::fs::write(Path::new(&dir).join("error"), error.to_string()).unwrap();
                break;
            }
        }
    }
    std::fs::write(
        Path::new(&dir).join("acknowledged"),
        acknowledged.to_string(),
    )
    .unwrap();
    // sled may wait for ever for writes that cannot be done; what is acknowledged is on disk.
    std::process::exit(0);
}

#[test]
fn on_a_really_full_disk_writes_fail_with_words_and_nothing_acknowledged_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "trap '' XFSZ; ulimit -f 24576; exec '{}' --exact --ignored \
         store::tests::failure::child_that_fills_its_disk",
        std::env::current_exe().unwrap().display()
    );
    let status = Command::new("sh")
        .args(["-c", &script])
        .env(DIR, dir.path())
        .status()
        .unwrap();
    assert!(status.success());
    let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap();
    let error = read("error");
    assert!(error.starts_with("no space for "), "{error}");
    let acknowledged: usize = read("acknowledged").parse().unwrap();
    assert!(acknowledged > 10, "{acknowledged}");
    let (store, note) = Store::open(dir.path()).unwrap();
    assert_eq!(note, None);
    assert!(store.trajectory(id(1, 0)).unwrap().unwrap().turns.len() >= acknowledged);
}
