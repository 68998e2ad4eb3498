//! Databases of earlier builds must still load: as text, and as the files that a build left. Only ever
//! add to them for a new schema: `write_the_schema_as_text` below, and a demo job's `STATE/db` after three
//! steps, packed by `tar -czf fixtures/store/schema-N.tar.gz db`.
use super::*;

const SCHEMA_1: &str = include_str!("schema-1.txt");
const SCHEMA_2: &str = include_str!("schema-2.txt");
const WRITE_TO: &str = "ROBUST_TEST_WRITE_SCHEMA";

fn event() -> Event {
    let id = Some(InstanceId {
        role: Role::Agent,
        index: 4,
    });
    let kind = "restart".to_owned();
    Event {
        at: Time(1_700_000_000_000_001),
        severity: Severity::Fault,
        kind,
        id,
        text: "é".into(),
    }
}

fn instance() -> StoredInstance {
    StoredInstance {
        id: InstanceId {
            role: Role::Trainer,
            index: 1,
        },
        incarnation: Incarnation(12),
        generation: Generation(2),
        pid: 100,
        start_time: 5,
    }
}

fn checkpoint() -> StoredCheckpoint {
    StoredCheckpoint {
        step: Step(1),
        folder: "step-1".into(),
        bytes: 99,
        at: Time(7),
    }
}

/// Writes the file anew: `ROBUST_TEST_WRITE_SCHEMA=FILE cargo test -- --ignored write_the_schema`.
#[test]
#[ignore = "writes the fixture"]
fn write_the_schema_as_text() {
    let Some(file) = std::env::var_os(WRITE_TO) else {
        return;
    };
    let (_dir, store) = fresh();
    store_finished(&store, id(1, 0));
    store_finished(&store, id(1, 1));
    store
        .append_turn(id(2, 0), vec![1], turn(0, 5000))
        .wait()
        .unwrap();
    let record = vec![issued(3), committed(1, vec![id(1, 0)])];
    store.record(record, state(b"core")).wait().unwrap();
    store.append_event(event()).1.wait().unwrap();
    store.put_instance(instance()).wait().unwrap();
    store.put_checkpoint(checkpoint()).wait().unwrap();
    let slot = store.inner.slot.read().unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let lines = slot.as_ref().unwrap().iter().map(|entry| {
        let (key, value) = entry.unwrap();
        format!("{} {}\n", hex(&key), hex(&value))
    });
    std::fs::write(file, lines.collect::<String>()).unwrap();
}

#[test]
fn a_database_of_schema_1_still_loads() {
    loads(SCHEMA_1);
}

#[test]
fn a_database_of_schema_2_still_loads() {
    loads(SCHEMA_2);
}

fn loads(text: &str) {
    let dir = tempfile::tempdir().unwrap();
    let db = open::raw(&dir.path().join("db"));
    let unhex = |text: &str| -> Vec<u8> {
        let pair = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(pair).collect()
    };
    for line in text.lines() {
        let (key, value) = line.split_once(' ').unwrap();
        db.insert(unhex(key), unhex(value)).unwrap();
    }
    drop(db);
    let (store, note) = Store::open(dir.path()).unwrap();
    assert_eq!(note, None);
    assert_eq!(store.former_state().unwrap().unwrap(), b"core");
    assert_eq!(store.remembered().unwrap(), []);
    assert_eq!(
        store.trajectory(id(1, 0)).unwrap().unwrap().consumed_by,
        Some(Step(1))
    );
    assert_eq!(
        store.finished_unconsumed(Step(0)).unwrap(),
        [(id(1, 1), finish(1))]
    );
    assert_eq!(
        store.trajectory(id(2, 0)).unwrap().unwrap().turns,
        [turn(0, 5000)]
    );
    let journal = store.journal_since(0, 9).unwrap();
    assert_eq!(journal[0], (1, issued(3)));
    assert!(
        matches!(&journal[1], (2, Record::Committed { trajectories, .. })
        if *trajectories == [id(1, 0)])
    );
    assert_eq!(store.steps().unwrap()[0].metrics.reward, 0.5);
    assert_eq!(store.events_since(0, 9).unwrap(), [(1, event())]);
    assert_eq!(store.instances().unwrap(), [instance()]);
    assert_eq!(store.checkpoints().unwrap(), [checkpoint()]);
}

/// Left by the last build that wrote schema 1, after three steps of the demo job.
#[test]
fn the_files_that_the_last_build_of_schema_1_left_open_with_all_that_was_in_them() {
    opens("schema-1.tar.gz");
}

/// The same of schema 2.
#[test]
fn the_files_that_the_last_build_of_schema_2_left_open_with_all_that_was_in_them() {
    opens("schema-2.tar.gz");
}

/// The same of schema 3, the last one with the whole state under one key.
#[test]
fn the_files_that_the_last_build_of_schema_3_left_open_with_all_that_was_in_them() {
    opens("schema-3.tar.gz");
}

fn opens(packed: &str) {
    let dir = tempfile::tempdir().unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/store");
    let packed = std::path::Path::new(folder).join(packed);
    let unpacked = std::process::Command::new("tar")
        .arg("-xzf")
        .arg(packed)
        .arg("-C")
        .arg(dir.path())
        .status();
    assert!(unpacked.unwrap().success());
    let (store, note) = Store::open(dir.path()).unwrap();
    assert_eq!(note, None);
    let steps: Vec<_> = store.steps().unwrap().iter().map(|s| s.step.0).collect();
    assert_eq!(steps, [1, 2, 3]);
    for step in 1..=3 {
        let consumed = store.consumed_by(Step(step)).unwrap();
        assert_eq!(consumed.len(), 64, "step {step}");
        for id in consumed {
            let stored = store.trajectory(id).unwrap().unwrap();
            assert_eq!(stored.consumed_by, Some(Step(step)));
            let turns = stored.finished.unwrap().turns as usize;
            assert_eq!(stored.turns.len(), turns, "{id}");
        }
    }
    assert_eq!(store.checkpoints().unwrap()[0].step, Step(3));
    let past = crate::driver::past(&store).unwrap();
    assert!(past.until() > Time(0));
    // It is this build's now: one of schema 1 would refuse it.
    store_finished(&store, id(9, 0));
    store.sync().wait().unwrap();
    assert_eq!(
        store.check(&mut |_| ()).unwrap().problems,
        [] as [String; 0]
    );
}
