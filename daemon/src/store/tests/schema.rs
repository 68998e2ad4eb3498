//! A database of schema 1, as text, must still load. Only ever add a file for a new schema.
use super::*;

const SCHEMA_1: &str = include_str!("schema-1.txt");
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
    store.record(record, b"core".to_vec()).wait().unwrap();
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
    let dir = tempfile::tempdir().unwrap();
    let db = open::raw(&dir.path().join("db"));
    let unhex = |text: &str| -> Vec<u8> {
        let pair = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(pair).collect()
    };
    for line in SCHEMA_1.lines() {
        let (key, value) = line.split_once(' ').unwrap();
        db.insert(unhex(key), unhex(value)).unwrap();
    }
    drop(db);
    let (store, note) = Store::open(dir.path()).unwrap();
    assert_eq!(note, None);
    assert_eq!(store.load_core_state().unwrap().unwrap(), b"core");
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
