//! What lies in the store, as a disk may give it back: keys, and the values under them. What is read is written as it
//! was, and what is none is refused.
#![no_main]
#![allow(missing_docs)]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use robust_proto::v1;
use robust_shared::core::{Entry, EntryKey, Event, Incident, Record};
use robust_shared::history::Page;
use serde::Serialize;
use serde::de::DeserializeOwned;

// Linking all of `robustd` for them takes longer than the target runs.
#[path = "../../../daemon/src/store/keys.rs"]
#[allow(dead_code)]
mod keys;
#[path = "../../../daemon/src/store/types.rs"]
#[allow(dead_code)]
mod types;

use keys::Key;
use types::{Finish, StoredCheckpoint, StoredInstance, StoredStep};

fuzz_target!(|bytes: &[u8]| {
    let Some((how, rest)) = bytes.split_first() else {
        return;
    };
    match how % 12 {
        0 => key(rest),
        1 | 2 => entry(rest),
        3 => again::<Record>(rest),
        4 => again::<Event>(rest),
        5 => again::<Incident>(rest),
        6 => again::<Page>(rest),
        7 => again::<StoredStep>(rest),
        8 => again::<StoredInstance>(rest),
        9 => again::<StoredCheckpoint>(rest),
        10 => again::<Finish>(rest),
        _ => {
            message::<v1::Turn>(rest);
            message::<v1::Span>(rest);
        }
    }
});

fn key(bytes: &[u8]) {
    if let Some(key) = Key::decode(bytes) {
        assert_eq!(key.encode(), bytes, "{key:?}");
    }
    if let Some(key) = EntryKey::decode(bytes) {
        assert_eq!(EntryKey::decode(&key.encode()), Some(key));
    }
}

fn entry(bytes: &[u8]) {
    let Some((at, rest)) = bytes.split_first_chunk::<10>() else {
        return;
    };
    let len = usize::from(at[0]) % 10;
    let Some(key) = EntryKey::decode(&at[1..1 + len]) else {
        return;
    };
    if let Ok(entry) = Entry::decode(key, rest) {
        let written = entry.encode(key).expect("an entry can be written");
        let read = Entry::decode(key, &written).expect("what was written can be read");
        assert!(read.encode(key).is_ok_and(|again| again == written));
    }
}

fn again<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let write = |value: &T| {
        let mut written = Vec::new();
        ciborium::into_writer(value, &mut written).expect("a value can be written");
        written
    };
    if let Ok(value) = ciborium::from_reader::<T, _>(bytes) {
        let written = write(&value);
        let read = ciborium::from_reader(&written[..]).expect("what was written can be read");
        assert!(write(&read) == written, "a value changed on its way");
    }
}

fn message<M: Message + Default>(bytes: &[u8]) {
    if let Ok(message) = M::decode(bytes) {
        let written = message.encode_to_vec();
        assert!(M::decode(&written[..]).is_ok_and(|read| read.encode_to_vec() == written));
    }
}
