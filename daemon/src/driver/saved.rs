//! What the daemon remembers across its own death, written with every record in one piece.
use crate::snapshots::SnapshotShards;
use robust_shared::core::State;
use robust_shared::ids::{Generation, Step, WeightVersion};
use robust_shared::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Raised when older daemons could not read it.
const VERSION: u32 = 1;
/// Slots alternate by parity, so no more than the last two steps' shards exist.
const KEPT_STEPS: usize = 2;

/// The snapshots that exist, by step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Snapshots(BTreeMap<Step, SnapshotShards>);

impl Snapshots {
    /// A step's snapshot is complete.
    pub fn add(&mut self, step: Step, shards: SnapshotShards) {
        // A gang that went back takes the later steps' slots again.
        self.0.split_off(&step);
        self.0.insert(step, shards);
        while self.0.len() > KEPT_STEPS {
            self.0.pop_first();
        }
    }

    /// The shards of a snapshot that is known are elsewhere now.
    pub fn moved(&mut self, step: Step, shards: SnapshotShards) {
        let known = self.0.get_mut(&step);
        if let Some(known) = known.filter(|k| k.generation == shards.generation) {
            *known = shards;
        }
    }

    /// Somebody read a shard whole: its digest is known from now on.
    pub fn hashed(&mut self, step: Step, generation: Generation, rank: u32, xxh3: u64) {
        let known = self.0.get_mut(&step).filter(|k| k.generation == generation);
        if let Some(shard) = known.and_then(|k| k.shards.get_mut(rank as usize)) {
            shard.xxh3.get_or_insert(xxh3);
        }
    }

    /// The oldest and the newest step of which there is one.
    pub fn span(&self) -> Option<(Step, Step)> {
        let ends = (self.0.first_key_value()?, self.0.last_key_value()?);
        Some((*ends.0.0, *ends.1.0))
    }

    /// Where all shards are.
    pub fn paths(&self) -> Vec<PathBuf> {
        let shards = self.0.values().flat_map(|s| &s.shards);
        shards.map(|s| PathBuf::from(&s.path)).collect()
    }

    /// All of them.
    pub fn all(&self) -> &BTreeMap<Step, SnapshotShards> {
        &self.0
    }

    /// A step's snapshot.
    pub fn get(&self, step: Step) -> Option<&SnapshotShards> {
        self.0.get(&step)
    }
}

/// The daemon's memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Saved {
    version: u32,
    /// When it was written: the next life's clock starts after it.
    pub at: Time,
    /// The core's.
    pub core: State,
    /// The driver's.
    pub snapshots: Snapshots,
    /// The newest version that was published, with the digest of its content.
    #[serde(default)]
    pub published: Option<(WeightVersion, String)>,
}

impl Saved {
    /// A memory of the core's alone.
    pub fn new(at: Time, core: State) -> Self {
        Self {
            version: VERSION,
            at,
            core,
            snapshots: Snapshots::default(),
            published: None,
        }
    }
}

/// Why a memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// It is not one.
    #[error("the saved state cannot be read: {0}")]
    Unreadable(String),
    /// A newer robustd wrote it.
    #[error("the saved state has version {0}, this robustd knows {VERSION}; use the newer one")]
    Newer(u32),
}

/// As it was written, before its version is known to fit.
#[derive(Deserialize)]
struct Header {
    version: u32,
}

/// Encodes the memory; the parts are borrowed because this happens with every record.
pub fn encode(
    at: Time,
    core: &State,
    snapshots: &Snapshots,
    published: &Option<(WeightVersion, String)>,
) -> Result<Vec<u8>, SavedError> {
    #[derive(Serialize)]
    struct Borrowed<'a> {
        version: u32,
        at: Time,
        core: &'a State,
        snapshots: &'a Snapshots,
        published: &'a Option<(WeightVersion, String)>,
    }
    let mut bytes = Vec::new();
    let saved = Borrowed {
        version: VERSION,
        at,
        core,
        snapshots,
        published,
    };
    ciborium::into_writer(&saved, &mut bytes).map_err(|e| SavedError::Unreadable(e.to_string()))?;
    Ok(bytes)
}

/// Decodes a memory.
pub fn decode(bytes: &[u8]) -> Result<Saved, SavedError> {
    let unreadable = |e: ciborium::de::Error<_>| SavedError::Unreadable(e.to_string());
    let header: Header = ciborium::from_reader(bytes).map_err(unreadable)?;
    if header.version > VERSION {
        return Err(SavedError::Newer(header.version));
    }
    ciborium::from_reader(bytes).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(generation: u64) -> SnapshotShards {
        SnapshotShards {
            generation: Generation(generation),
            shards: Vec::new(),
        }
    }

    #[test]
    fn the_last_two_snapshots_are_known_and_going_back_forgets_the_later_ones() {
        let mut snapshots = Snapshots::default();
        for step in 1..=4 {
            snapshots.add(Step(step), shards(1));
        }
        assert!(snapshots.get(Step(2)).is_none());
        assert!(snapshots.get(Step(3)).is_some());
        snapshots.add(Step(3), shards(2));
        assert!(snapshots.get(Step(4)).is_none());
        assert_eq!(snapshots.get(Step(3)), Some(&shards(2)));
    }
}
