//! The daemon's part: with every record, what changed of the controller's state is encoded.
use super::Cluster;
use robust_shared::core::{Changes, CodedError};
use serde::Serialize;

/// What a daemon would have written with the records of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Written {
    /// Records.
    pub records: u64,
    /// Writes: the records that one input makes are written together.
    pub writes: u64,
    /// Entries of the state that were written or removed with them.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Bytes of the first write, which is the whole state.
    pub first: u64,
}

impl Written {
    /// Takes in a write.
    fn add(&mut self, records: u64, changes: &Changes) -> Result<(), CodedError> {
        let mut bytes = 0;
        for (key, entry) in &changes.puts {
            bytes += key.encode().len() + entry.encode(*key)?.len();
        }
        for key in &changes.removed {
            bytes += key.encode().len();
        }
        if self.writes == 0 {
            self.first = bytes as u64;
        }
        self.records += records;
        self.writes += 1;
        self.entries += changes.len() as u64;
        self.bytes += bytes as u64;
        Ok(())
    }
}

impl Cluster {
    /// The records of an input are written, with what changed since those before.
    pub(super) fn write(&mut self, records: u64) {
        let changes = self.core.take_changes();
        if let Ok(written) = &mut self.written
            && let Err(error) = written.add(records, &changes)
        {
            self.written = Err(error);
        }
    }
}
