//! What engines have of the weights outlives the daemon, and builds in which it was stored elsewhere.
use super::*;
use crate::core::EntryError;
use ciborium::Value;

fn map_of(bytes: &[u8]) -> Vec<(Value, Value)> {
    let value: Value = ciborium::from_reader(bytes).unwrap();
    value.into_map().unwrap()
}

/// Entries as they would have been read from a disk.
fn stored(core: &mut Core) -> Vec<(EntryKey, Vec<u8>)> {
    let changes = core.take_changes();
    assert!(changes.whole);
    let bytes = |(key, entry): (EntryKey, Entry)| (key, entry.encode(key).unwrap());
    changes.puts.into_iter().map(bytes).collect()
}

/// The same as a build wrote them to which what an engine has was a part of its instance.
fn as_before(entries: Vec<(EntryKey, Vec<u8>)>) -> Vec<(EntryKey, Vec<u8>)> {
    let holder = |of: InstanceId| {
        let mut all = entries.iter();
        let entry = all.find(|(key, _)| *key == EntryKey::Holder(of));
        entry.map(|(_, bytes)| map_of(bytes)).unwrap_or_default()
    };
    let before = |(key, bytes): &(EntryKey, Vec<u8>)| match *key {
        EntryKey::Holder(_) => None,
        EntryKey::Instance(id) => {
            let all = Value::Map([map_of(bytes), holder(id)].concat());
            let mut bytes = Vec::new();
            ciborium::into_writer(&all, &mut bytes).unwrap();
            Some((*key, bytes))
        }
        _ => Some((*key, bytes.clone())),
    };
    entries.iter().filter_map(before).collect()
}

fn restored(entries: Vec<(EntryKey, Vec<u8>)>) -> Core {
    let mut read = Entries::default();
    for (key, bytes) in entries {
        read.put(key, Entry::decode(key, &bytes).unwrap());
    }
    let state = read.state().unwrap().unwrap();
    Core::restore(CoreConfig::default(), state)
}

/// One that serves, one that reads along with its pull of the next version, and one that waits.
fn fleet() -> Fleet {
    let mut fleet = Fleet::chain(3);
    (0..3).for_each(|n| fleet.ends(n, Ok(())));
    fleet.publish_next();
    fleet.starts(0);
    fleet.moves(0, 50);
    fleet
}

#[test]
fn what_engines_have_is_read_back_and_an_entry_goes_with_what_it_told_of() {
    let mut fleet = fleet();
    let entries = stored(&mut fleet.core);
    let holders = |key: &EntryKey| matches!(key, EntryKey::Holder(_));
    assert_eq!(entries.iter().filter(|(key, _)| holders(key)).count(), 3);
    assert_eq!(restored(entries).s.weights, fleet.core.s.weights);
    fleet.moves(0, 60);
    let changed = fleet.core.take_changes().puts;
    let changed: Vec<_> = changed.into_iter().map(|(key, _)| key).collect();
    assert!(changed.contains(&EntryKey::Holder(rollout(0))));
    assert!(!changed.contains(&EntryKey::Instance(rollout(0))));
    fleet.dies(rollout(0));
    let removed = fleet.core.take_changes().removed;
    assert!(removed.contains(&EntryKey::Holder(rollout(0))));
}

#[test]
fn what_an_earlier_build_stored_with_an_instance_is_what_its_engine_has() {
    let mut fleet = fleet();
    let entries = as_before(stored(&mut fleet.core));
    let mut core = restored(entries);
    assert_eq!(core.s.weights, fleet.core.s.weights);
    let puller = fleet.lives[&rollout(1)];
    assert_eq!(core.pulls_from(puller), [fleet.lives[&rollout(0)]]);
    // The first record brings it over.
    let now = stored(&mut core);
    assert!(
        now.iter()
            .any(|(key, _)| *key == EntryKey::Holder(rollout(1)))
    );
    assert_eq!(restored(now).s.weights, fleet.core.s.weights);
}

#[test]
fn an_entry_of_an_engine_counts_and_not_what_an_earlier_build_stored_with_its_instance() {
    let mut fleet = fleet();
    let before = as_before(stored(&mut fleet.core));
    fleet.ends(0, Ok(()));
    let entry = fleet.core.take_changes().puts.into_iter();
    let mut entry = entry.filter(|(key, _)| *key == EntryKey::Holder(rollout(0)));
    let (key, entry) = entry.next().unwrap();
    let newer = vec![(key, entry.encode(key).unwrap())];
    let core = restored([before, newer].concat());
    assert_eq!(core.s.weights.of(rollout(0)), fleet.holder(0));
}

#[test]
fn a_state_that_an_earlier_build_stored_in_one_piece_is_gone_on_with() {
    let mut fleet = fleet();
    let mut bytes = Vec::new();
    ciborium::into_writer(fleet.core.state(), &mut bytes).unwrap();
    let instances = as_before(stored(&mut fleet.core)).into_iter();
    let instances = instances.filter(|(key, _)| matches!(key, EntryKey::Instance(_)));
    let instances = instances
        .map(|(_, bytes)| Value::Map(map_of(&bytes)))
        .collect();
    let mut state = map_of(&bytes);
    state.retain(|(name, _)| !matches!(name.as_text(), Some("instances" | "holders")));
    state.push((Value::Text("instances".to_owned()), Value::Array(instances)));
    bytes.clear();
    ciborium::into_writer(&Value::Map(state), &mut bytes).unwrap();
    let state = ciborium::from_reader(bytes.as_slice()).unwrap();
    let core = Core::restore(CoreConfig::default(), state);
    assert_eq!(core.s.weights, fleet.core.s.weights);
    assert_eq!(core.s.roster.instances(), fleet.core.s.roster.instances());
}

/// As a damaged disk may have it: numbers that are places in a list, or how long one is.
#[test]
fn an_entry_of_an_engine_that_is_none_and_a_batch_of_any_size_are_refused() {
    let mut fleet = fleet();
    let entries = stored(&mut fleet.core);
    let is_holder = |(key, _): &&(EntryKey, Vec<u8>)| matches!(key, EntryKey::Holder(_));
    let holder = entries.iter().find(is_holder).unwrap().1.clone();
    let shape = |prompts: u32, responses: u32| {
        let side = |name: &str, n: u32| (Value::Text(name.to_owned()), Value::from(n));
        let shape = Value::Map(vec![side("prompts", prompts), side("responses", responses)]);
        let mut bytes = Vec::new();
        ciborium::into_writer(&shape, &mut bytes).unwrap();
        bytes
    };
    let read_with = |key: EntryKey, bytes: &[u8]| {
        let mut read = Entries::default();
        for (key, bytes) in &entries {
            read.put(*key, Entry::decode(*key, bytes).unwrap());
        }
        read.put(key, Entry::decode(key, bytes).unwrap());
        read.state().map(drop)
    };
    for (key, bytes) in [
        (EntryKey::Holder(rollout(u32::MAX)), holder),
        (EntryKey::Batch(900), shape(65_535, 65_535)),
    ] {
        let refused = read_with(key, &bytes).unwrap_err();
        assert!(matches!(refused, EntryError::Misplaced(at) if at == key));
    }
    read_with(EntryKey::Batch(900), &shape(2, 8)).unwrap();
}
