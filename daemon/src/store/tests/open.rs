//! Opening: locks, versions, damage.
use super::*;
use crate::store::keys::{Key, VERSION};
use prost::Message;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

#[test]
fn a_second_store_on_the_same_directory_is_refused_and_names_the_first() {
    let (dir, store) = fresh();
    let error = Store::open(dir.path()).err().unwrap();
    let expected = format!(
        "another robustd (pid {}) uses this state directory {}; stop it or choose another \
         directory",
        std::process::id(),
        dir.path().display()
    );
    assert_eq!(error.to_string(), expected);
    drop(store);
    Store::open(dir.path()).unwrap();
}

#[test]
fn a_database_of_a_later_schema_is_refused_and_left_alone() {
    let (dir, store) = fresh();
    drop(store);
    let path = dir.path().join("db");
    let db = raw(&path);
    db.insert(Key::Version.encode(), &(VERSION + 1).to_be_bytes())
        .unwrap();
    drop(db);
    let error = Store::open(dir.path()).err().unwrap();
    assert!(
        matches!(
            error,
            StoreError::TooNew {
                found: 5,
                supported: 4,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains(&format!("move {} away", path.display())),
        "{error}"
    );
    let version = raw(&path).get(Key::Version.encode()).unwrap().unwrap();
    assert_eq!(version, (VERSION + 1).to_be_bytes());
}

/// The database as sled sees it. One that was just dropped may still be locked: sled ends on a thread of its
/// own.
pub(super) fn raw(path: &Path) -> sled::Db {
    let config = sled::Config::new().path(path).segment_size(2 << 20);
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match config.open() {
            Err(sled::Error::Io(error))
                if error.to_string().contains("lock") && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

fn filled() -> TempDir {
    let (dir, store) = fresh();
    for member in 0..20 {
        store
            .append_turn(id(1, member), vec![1], turn(0, 2000))
            .wait()
            .unwrap();
    }
    store
        .record(vec![issued(1)], state(&vec![1; 50_000]))
        .wait()
        .unwrap();
    drop(store);
    dir
}

fn assert_set_aside(dir: &TempDir) {
    let (store, note) = Store::open(dir.path()).unwrap();
    let note = note.expect("the damage is noticed");
    assert!(note.set_aside.join("evidence.txt").exists());
    let text = note.to_string();
    assert!(
        text.contains("is set aside as ") && text.contains("new, empty one"),
        "{text}"
    );
    assert_eq!(state_of(&store), None);
    store_finished(&store, id(1, 0));
    drop(store);
    assert_eq!(Store::open(dir.path()).unwrap().1, None);
}

#[test]
fn a_flipped_bit_in_the_log_is_noticed_although_sled_says_nothing() {
    for part in 1..8 {
        let dir = filled();
        let path = dir.path().join("db/db");
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let at = file.metadata().unwrap().len() * part / 8;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        drop(file);
        let (store, note) = Store::open(dir.path()).unwrap();
        let all_there = || {
            state_of(&store) == Some(vec![1; 50_000])
                && (0..20).all(|m| {
                    let stored = store.trajectory(id(1, m)).unwrap();
                    stored.is_some_and(|t| t.turns == [turn(0, 2000)])
                })
        };
        // A byte that nothing refers to any more may change unnoticed.
        assert!(note.is_some() || all_there(), "{part}/8 of the log");
    }
}

/// Flips bits of turns in a part of the log that sled trusts: it was read at an opening, and is not
/// read again at the next one.
fn damaged_where_sled_does_not_look() -> TempDir {
    let dir = filled();
    let (store, _) = Store::open(dir.path()).unwrap();
    // In groups of some: each is a write of its own in the log.
    for members in (0..500).collect::<Vec<_>>().chunks(20) {
        let append = |m: &u32| {
            let turn = if (100..200).contains(m) {
                struck()
            } else {
                turn(0, 1500)
            };
            store.append_turn(id(2, *m), vec![1], turn)
        };
        let appended: Vec<_> = members.iter().map(append).collect();
        for answer in appended {
            assert_eq!(answer.wait().unwrap(), Appended::Stored);
        }
    }
    drop(store);
    drop(Store::open(dir.path()).unwrap());
    let file = dir.path().join("db/db");
    let mut log = std::fs::read(&file).unwrap();
    let needle = struck().encode_to_vec();
    let needle = &needle[needle.len() / 2..][..64];
    // sled reuses segments; the newest ones, by the number in their header, are read at every opening.
    let lsn = |at: &usize| i64::from_le_bytes(log[at + 4..at + 12].try_into().unwrap()) ^ i64::MAX;
    let mut segments: Vec<usize> = (0..log.len()).step_by(SEGMENT).collect();
    segments.sort_by_key(lsn);
    segments.truncate(segments.len() / 2);
    let found: Vec<_> = (0..log.len() - 64)
        .filter(|at| {
            segments.contains(&(at / SEGMENT * SEGMENT))
                && log[*at] == needle[0]
                && log[*at..].starts_with(needle)
        })
        .collect();
    assert!(!found.is_empty());
    found.into_iter().for_each(|at| log[at] ^= 4);
    std::fs::write(file, log).unwrap();
    dir
}

/// A turn unlike the others; those that are damaged share no page with a small table.
fn struck() -> Turn {
    let mut turn = turn(0, 1500);
    turn.spans[0].ids.reverse();
    turn
}

/// Opened without a word. A page that is struck may by chance be one that openings read; then the
/// database is set aside at once, which is as good, and another one is tried.
fn opened_though_damaged() -> (TempDir, Store) {
    let attempt = |_| {
        let dir = damaged_where_sled_does_not_look();
        let (store, note) = Store::open(dir.path()).unwrap();
        note.is_none().then_some((dir, store))
    };
    (0..8)
        .find_map(attempt)
        .expect("every opening reads all pages")
}

const SEGMENT: usize = 2 << 20;

#[test]
fn damage_that_a_reader_meets_is_shown_and_the_next_opening_sets_the_database_aside() {
    let (dir, store) = opened_though_damaged();
    let error = (0..500).find_map(|m| store.trajectory(id(2, m)).err());
    assert!(
        matches!(error, Some(StoreError::Corrupt { .. })),
        "{error:?}"
    );
    let condition = store.condition().borrow().clone();
    assert!(
        matches!(condition, Condition::Damaged { .. }),
        "{condition}"
    );
    drop(store);
    assert_set_aside(&dir);
}

#[test]
fn damage_that_nobody_reads_is_found_in_the_background() {
    let (dir, store) = opened_though_damaged();
    let mut condition = store.condition();
    let damaged = |c: &Condition| matches!(c, Condition::Damaged { .. });
    let waiting = condition.wait_for(damaged);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let patience = std::time::Duration::from_secs(30);
    runtime
        .unwrap()
        .block_on(async { tokio::time::timeout(patience, waiting).await.map(drop) })
        .unwrap();
    drop(store);
    assert_set_aside(&dir);
}

#[test]
fn a_false_alarm_costs_one_longer_opening() {
    let dir = filled();
    let mark = dir.path().join("db/suspect");
    std::fs::write(&mark, "").unwrap();
    let (store, note) = Store::open(dir.path()).unwrap();
    assert_eq!(note, None);
    assert!(!mark.exists());
    assert_eq!(state_of(&store), Some(vec![1; 50_000]));
}

#[test]
fn a_folder_that_is_no_database_is_set_aside() {
    let dir = filled();
    std::fs::write(dir.path().join("db/conf"), b"not a configuration").unwrap();
    assert_set_aside(&dir);
}

#[test]
fn a_database_without_a_version_is_set_aside() {
    let dir = filled();
    let db = raw(&dir.path().join("db"));
    db.remove(Key::Version.encode()).unwrap();
    drop(db);
    assert_set_aside(&dir);
}
