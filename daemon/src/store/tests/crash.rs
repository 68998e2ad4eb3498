//! SIGKILL at random instants (I-2): a child process writes and prints what was acknowledged.
use super::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DIR: &str = "ROBUST_TEST_CRASH_DIR";
const WRITERS: u32 = 4;

/// The child's part.
#[test]
#[ignore = "run by the test below, to be killed"]
fn child_that_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let (store, note) = Store::open(Path::new(&dir)).unwrap();
    assert_eq!(note, None);
    let next = |member| {
        store
            .trajectory(id(1, member))
            .unwrap()
            .map_or(0, |t| t.turns.len())
    };
    let last = store
        .journal_since(0, usize::MAX)
        .unwrap()
        .last()
        .map_or(0, |(seq, _)| *seq);
    std::thread::scope(|scope| {
        for member in 0..WRITERS {
            let (store, from) = (&store, next(member) as u32);
            scope.spawn(move || {
                for index in from.. {
                    // Every 16th turn is longer than a part.
                    let tokens = if index % 16 == 15 { 3000 } else { 30 };
                    for part in parts(store, member, index, tokens) {
                        let end = part.offset as usize + part.spans[0].ids.len();
                        let stored = store.append_spans(id(1, member), vec![1], part);
                        stored.wait().unwrap();
                        let number = u64::from(index) << 32 | end as u64;
                        writeln!(std::io::stdout(), "span {member} {number}").unwrap();
                    }
                    store
                        .append_turn(id(1, member), vec![1], turn(index, tokens))
                        .wait()
                        .unwrap();
                    writeln!(std::io::stdout(), "turn {member} {index}").unwrap();
                }
            });
        }
        for seq in last + 1.. {
            store
                .record(vec![issued(seq)], state(&core_state(seq)))
                .wait()
                .unwrap();
            writeln!(std::io::stdout(), "record 0 {seq}").unwrap();
        }
    });
}

/// What is missing of a turn's tokens, in three; of every fourth turn.
fn parts(store: &Store, member: u32, index: u32, tokens: usize) -> Vec<Tokens> {
    if index % 4 != 3 {
        return Vec::new();
    }
    let stored = store.trajectory(id(1, member)).unwrap().unwrap_or_default();
    let from = stored.running.iter().map(|s| s.ids.len()).sum::<usize>();
    let all = turn(index, tokens).spans.remove(0);
    let ids: Vec<_> = all.ids[from..].chunks(tokens / 3).collect();
    let part = |(at, ids): (usize, &&[u32])| Tokens {
        turn: index,
        offset: (from + at * (tokens / 3)) as u32,
        spans: vec![Span {
            ids: ids.to_vec(),
            logprobs: vec![-0.5; ids.len()],
            version: all.version,
        }],
    };
    ids.iter().enumerate().map(part).collect()
}

fn core_state(seq: u64) -> Vec<u8> {
    seq.to_le_bytes().repeat(1000 + (seq as usize * 977) % 6000)
}

/// Runs the child until some time after its first acknowledgement; returns the last of each kind.
fn run_and_kill(dir: &Path, after: Duration) -> BTreeMap<(String, u32), u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "store::tests::crash::child_that_writes_until_it_is_killed",
        ])
        .args(["--ignored", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut kill_at = None;
    let mut acknowledged = BTreeMap::new();
    for line in lines.map_while(Result::ok) {
        let fields: Vec<_> = line.split(' ').collect();
        if let [kind @ ("turn" | "span" | "record"), member, number] = fields[..] {
            let key = (kind.to_owned(), member.parse().unwrap());
            // A line cut by the kill counts only when it is whole: a number's begin is smaller.
            let last = acknowledged.entry(key).or_insert(0);
            *last = number.parse::<u64>().unwrap().max(*last);
            let due = *kill_at.get_or_insert_with(|| Instant::now() + after);
            if Instant::now() >= due {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    acknowledged
}

#[test]
fn nothing_acknowledged_is_lost_in_20_kills() {
    let dir = tempfile::tempdir().unwrap();
    let mut total = 0;
    for round in 0..20_u64 {
        let after = Duration::from_micros(round * 7919 % 61_000);
        let acknowledged = run_and_kill(dir.path(), after);
        assert!(
            !acknowledged.is_empty(),
            "round {round}: the child acknowledged nothing"
        );
        let (store, note) = Store::open(dir.path()).unwrap();
        assert_eq!(note, None, "round {round}");
        for ((kind, member), last) in &acknowledged {
            if kind == "turn" {
                let stored = store.trajectory(id(1, *member)).unwrap().unwrap().turns;
                assert!(
                    stored.len() as u64 > *last,
                    "round {round}: {} <= {last}",
                    stored.len()
                );
                total = total.max(stored.len());
                assert!(
                    stored
                        .iter()
                        .zip(0..)
                        .all(|(turn, index)| turn.index == index)
                );
            } else if kind == "span" {
                let stored = store.trajectory(id(1, *member)).unwrap().unwrap();
                let kept = stored
                    .running
                    .iter()
                    .map(|s| s.ids.len() as u64)
                    .sum::<u64>();
                let reached = (stored.turns.len() as u64) << 32 | kept;
                assert!(reached >= *last, "round {round}: {reached:x} < {last:x}");
            } else {
                check_journal(&store, *last);
            }
        }
    }
    assert!(total > 20, "only {total} turns in all rounds");
    // Blob files are never synced by sled; see `parts`.
    let blobs = std::fs::read_dir(dir.path().join("db/blobs"))
        .unwrap()
        .count();
    assert_eq!(blobs, 0);
}

/// The state is that of the last journal entry: they are written together or not at all.
fn check_journal(store: &Store, acknowledged: u64) {
    let (seq, record) = store.journal_since(0, usize::MAX).unwrap().pop().unwrap();
    assert!(seq >= acknowledged, "{seq} < {acknowledged}");
    assert_eq!(record, issued(seq));
    assert_eq!(state_of(store).unwrap(), core_state(seq));
}
