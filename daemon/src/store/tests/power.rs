//! A power cut cannot be had in a test; what the system is asked for before an acknowledgement can:
//! strace shows that the data synchronisation of the database's file comes after its last write and
//! ends before the answer.
use super::*;
use crate::store::database::{Commit, batch_of};
use robust_ckpt::disk::Space;
use robust_grouplog::Group;
use std::io::Write;
use std::process::Command;

const DIR: &str = "ROBUST_TEST_POWER_DIR";
const CARELESS: &str = "ROBUST_TEST_POWER_CARELESS";
const WRITES: usize = 6;

/// Applies a batch as sled does by itself: `flush` and no more.
struct Careless;

impl Commit for Careless {
    fn commit(&mut self, tree: &sled::Tree, group: Group) -> Result<(), StoreError> {
        tree.apply_batch(batch_of(group)).unwrap();
        tree.flush().unwrap();
        Ok(())
    }

    fn space(&self) -> std::io::Result<Space> {
        Ok(Space {
            free: 1 << 40,
            total: 1 << 40,
        })
    }
}

/// The child's part.
#[test]
#[ignore = "run by the tests below, under strace"]
fn child_that_says_what_is_acknowledged() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let careless = std::env::var_os(CARELESS).is_some();
    let wrap = |inner| -> Box<dyn Commit> {
        match careless {
            true => Box::new(Careless),
            false => inner,
        }
    };
    let (store, _) = Store::open_with(Path::new(&dir), Options::default(), wrap).unwrap();
    for number in 0..WRITES {
        let which = id(1, number as u32 / 3);
        match number % 3 {
            0 => {
                let tokens = Tokens {
                    spans: turn(0, 2).spans,
                    ..Tokens::default()
                };
                let appended = store.append_spans(which, vec![1], tokens).wait();
                assert_eq!(appended.unwrap(), Appended::Stored);
            }
            1 => {
                let appended = store.append_turn(which, vec![1], turn(0, 4)).wait();
                assert_eq!(appended.unwrap(), Appended::Stored);
            }
            _ => store
                .record(vec![issued(number as u64)], state(&[7]))
                .wait()
                .unwrap(),
        }
        // One system call.
        let line = format!("acknowledged {number}\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}

/// What the child asked of the system, a line each; none, recorded, where it cannot be traced.
fn trace(careless: bool) -> Option<Vec<String>> {
    let strace = robust_needs::program("strace")?;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace");
    let calls = "trace=write,writev,pwrite64,pwritev,pwritev2,fdatasync,fsync";
    let mut strace = Command::new(strace);
    strace
        .args(["-f", "-y", "-s", "32", "-e", calls, "-o"])
        .arg(&file)
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "store::tests::power::child_that_says_what_is_acknowledged",
            "--ignored",
            "--nocapture",
        ])
        .env(DIR, dir.path().join("state"));
    if careless {
        strace.env(CARELESS, "1");
    }
    let output = strace.output().unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("ptrace"), "{said}");
        robust_needs::skip(said, "run the tests where ptrace is permitted");
        return None;
    }
    let text = std::fs::read_to_string(&file).unwrap();
    Some(text.lines().map(str::to_owned).collect())
}

/// What is wrong with the order of a trace, a sentence for each acknowledgement.
fn faults(lines: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    // Whether the database's file has bytes that no synchronisation, begun after them, has covered;
    // and which thread is within one.
    let (mut unsynced, mut wrote, mut number) = (false, false, 0);
    let mut syncing: std::collections::BTreeMap<&str, bool> = Default::default();
    for line in lines {
        let Some((thread, call)) = line.split_once(' ') else {
            continue;
        };
        let call = call.trim_start();
        let on_database = call.contains("/state/db/db>");
        if call.contains("\"acknowledged ") {
            if unsynced || !wrote {
                faults.push(format!("{number}: written {wrote}, not synced {unsynced}"));
            }
            (wrote, number) = (false, number + 1);
        } else if call.contains("write") && on_database {
            // A write that overlaps a synchronisation may have missed it.
            (unsynced, wrote) = (true, true);
            syncing.values_mut().for_each(|covers| *covers = false);
        } else if call.starts_with("fdatasync(") && on_database {
            match call.contains("<unfinished") {
                true => drop(syncing.insert(thread, true)),
                false if call.ends_with("= 0") => unsynced = false,
                false => {}
            }
        } else if call.starts_with("<... fdatasync resumed") && call.ends_with("= 0") {
            unsynced &= !syncing.remove(thread).unwrap_or(false);
        }
    }
    assert_eq!(number, WRITES, "{lines:#?}");
    faults
}

#[test]
fn an_acknowledgement_waits_for_the_fdatasync_after_the_last_write() {
    if let Some(lines) = trace(false) {
        assert_eq!(faults(&lines), [""; 0], "{lines:#?}");
    }
}

#[test]
fn what_sled_does_by_itself_would_not_survive_a_power_cut_and_the_trace_shows_it() {
    if let Some(lines) = trace(true) {
        let expected: Vec<_> = (0..WRITES)
            .map(|n| format!("{n}: written true, not synced true"))
            .collect();
        assert_eq!(faults(&lines), expected, "{lines:#?}");
    }
}
