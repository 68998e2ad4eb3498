//! Entries as bytes: CBOR, with the names of fields, so that a newer build may add some.
use super::{Entry, EntryKey, Value};
use crate::ettr::{Part, PartKey};
use serde::de::DeserializeOwned;

/// An entry cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key:?}: {why}")]
pub struct CodedError {
    /// Which.
    pub key: EntryKey,
    /// Why.
    pub why: String,
}

impl Entry {
    /// Its bytes.
    pub fn encode(&self, key: EntryKey) -> Result<Vec<u8>, CodedError> {
        let mut bytes = Vec::with_capacity(match &self.0 {
            Value::Instance(_) | Value::Incident(_) => 1024,
            _ => 128,
        });
        match ciborium::into_writer(&self.0, &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(e) => Err(CodedError {
                key,
                why: e.to_string(),
            }),
        }
    }

    /// The inverse of [`Self::encode`].
    pub fn decode(key: EntryKey, bytes: &[u8]) -> Result<Self, CodedError> {
        let value = match key {
            EntryKey::Now => Value::Now(read(key, bytes)?),
            EntryKey::Head => Value::Head(read(key, bytes)?),
            EntryKey::Plans => Value::Plans(read(key, bytes)?),
            EntryKey::Gang => Value::Gang(read(key, bytes)?),
            EntryKey::Node(_) => Value::Node(read(key, bytes)?),
            EntryKey::Beat(_) => Value::Beat(read(key, bytes)?),
            EntryKey::Instance(_) => Value::Instance(read(key, bytes)?),
            EntryKey::Measured(_) => Value::Measured(read(key, bytes)?),
            EntryKey::Batch(_) => Value::Batch(read(key, bytes)?),
            EntryKey::Trajectory(_) => Value::Trajectory(read(key, bytes)?),
            EntryKey::Incident(_) => Value::Incident(read(key, bytes)?),
            EntryKey::Recovery(_) => Value::Recovery(read(key, bytes)?),
            EntryKey::Ledger(part) => Value::Ledger(match part {
                PartKey::Sums => Part::Sums(read(key, bytes)?),
                PartKey::Counted(_) | PartKey::Wasted(_) => Part::Seconds(read(key, bytes)?),
                PartKey::Training(_) => Part::Training(read(key, bytes)?),
            }),
            EntryKey::Reward(_) => Value::Reward(read(key, bytes)?),
            EntryKey::Deaths => Value::Deaths(read(key, bytes)?),
            EntryKey::Durations(..) => Value::Durations(read(key, bytes)?),
            EntryKey::Holder(_) => Value::Holder(read(key, bytes)?),
        };
        Ok(Entry(value))
    }
}

fn read<T: DeserializeOwned>(key: EntryKey, bytes: &[u8]) -> Result<T, CodedError> {
    ciborium::from_reader(bytes).map_err(|e: ciborium::de::Error<_>| CodedError {
        key,
        why: e.to_string(),
    })
}
