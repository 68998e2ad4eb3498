//! Opening: locks, versions, damage.
use super::*;
use crate::store::keys::{Key, VERSION};
use std::os::unix::fs::FileExt;

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
                found: 3,
                supported: 2,
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

/// The database as sled sees it.
pub(super) fn raw(path: &Path) -> sled::Db {
    sled::Config::new()
        .path(path)
        .segment_size(2 << 20)
        .open()
        .unwrap()
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
        .record(vec![issued(1)], vec![1; 50_000])
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
    assert_eq!(store.load_core_state().unwrap(), None);
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
            store.load_core_state().unwrap() == Some(vec![1; 50_000])
                && (0..20).all(|m| {
                    let stored = store.trajectory(id(1, m)).unwrap();
                    stored.is_some_and(|t| t.turns == [turn(0, 2000)])
                })
        };
        // A byte that nothing refers to any more may change unnoticed.
        assert!(note.is_some() || all_there(), "{part}/8 of the log");
    }
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
