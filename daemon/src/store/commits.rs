//! What committed steps consumed, and what is on record of one trajectory: read for who compares the two.
use super::codec::decode;
use super::error::StoreError;
use super::keys::Key;
use super::parts::Get;
use super::reader::Reader;
use super::trajectories::{consumer, load};
use super::types::{Committed, OwnRecord, Retention, StoredStep};
use super::{Store, codec};
use robust_shared::core::{Entry, EntryKey, Record, Trajectory};
use robust_shared::ids::{Step, TrajectoryId};

impl Store {
    /// A committed step with what its record says; none: it is not committed, or its record is not in this database.
    pub fn commit(&self, step: Step) -> Result<Option<Committed>, StoreError> {
        self.read(|reader| {
            let Some(figures) = value::<StoredStep>(reader, &Key::Step(step.0))? else {
                return Ok(None);
            };
            match figures.record {
                Some(number) => {
                    let record = value::<Record>(reader, &Key::Journal(number))?;
                    Ok(record.and_then(|record| commit_of(figures, record)))
                }
                None => by_reading(reader, figures),
            }
        })
    }

    /// The first and the last committed step on record.
    pub fn extent(&self) -> Result<Option<(Step, Step)>, StoreError> {
        self.read(|reader| {
            let mut keys = reader.keys(&Key::Step(0), &Key::Step(u64::MAX));
            let (first, last) = (keys.next().transpose()?, keys.next_back().transpose()?);
            let step = |key: sled::IVec| match Key::decode(&key) {
                Some(Key::Step(step)) => Some(Step(step)),
                _ => None,
            };
            let first = first.and_then(step);
            Ok(first.map(|first| (first, last.and_then(step).unwrap_or(first))))
        })
    }

    /// Whether trajectories of a batch are kept still. Reads the steps since.
    pub fn retention(&self, batch: u64) -> Result<Retention, StoreError> {
        self.read(|reader| {
            // The step before the first that says it may have removed them without saying so.
            let (mut before, mut found) = (None, Retention::Unknown);
            for key in reader.keys(&Key::Step(batch), &Key::Step(u64::MAX)) {
                let key = key?;
                let Some(bytes) = reader.get(&key)? else {
                    continue;
                };
                let step: StoredStep = decode(reader.path(), &key, &bytes)?;
                found = match step.kept_from {
                    Some(from) if from > batch => {
                        return Ok(Retention::Removed {
                            with: before.and(Some(step.step)),
                        });
                    }
                    Some(_) => Retention::Kept,
                    None => Retention::Unknown,
                };
                before = step.kept_from;
            }
            Ok(found)
        })
    }

    /// All that is on record under a trajectory's own name.
    pub fn own_record(&self, id: TrajectoryId) -> Result<OwnRecord, StoreError> {
        self.read(|reader| {
            let waiting = Key::Unconsumed(id.key()).encode();
            Ok(OwnRecord {
                stored: load(reader, id)?,
                consumed_by: consumer(reader, id)?,
                is_waiting: reader.get_raw(&waiting)?.is_some(),
            })
        })
    }

    /// A trajectory of a batch that is open, as of the last record; none: its batch is not open; none within: its batch
    /// has no such trajectory.
    pub fn open_trajectory(
        &self,
        id: TrajectoryId,
    ) -> Result<Option<Option<Trajectory>>, StoreError> {
        self.read(|reader| {
            let Some(batch) = entry(reader, EntryKey::Batch(id.batch))? else {
                return Ok(None);
            };
            let changed = entry(reader, EntryKey::Trajectory(id))?;
            let changed = changed.and_then(|entry| entry.trajectory().cloned());
            Ok(Some(batch.has(id).then(|| changed.unwrap_or_default())))
        })
    }
}

fn value<T: serde::de::DeserializeOwned>(
    reader: &Reader<'_>,
    key: &Key,
) -> Result<Option<T>, StoreError> {
    let key = key.encode();
    let bytes = reader.get(&key)?;
    bytes
        .map(|bytes| decode(reader.path(), &key, &bytes))
        .transpose()
}

fn entry(reader: &Reader<'_>, entry: EntryKey) -> Result<Option<Entry>, StoreError> {
    let key = Key::Entry(entry).encode();
    let Some(bytes) = reader.get(&key)? else {
        return Ok(None);
    };
    let read = Entry::decode(entry, &bytes);
    read.map(Some)
        .map_err(|e| codec::undecodable(reader.path(), &key, &e))
}

/// Of a step that a former build committed, which did not say where its record is.
fn by_reading(reader: &Reader<'_>, figures: StoredStep) -> Result<Option<Committed>, StoreError> {
    for key in reader.keys(&Key::Journal(0), &Key::Journal(u64::MAX)) {
        let key = key?;
        let Some(bytes) = reader.get(&key)? else {
            continue;
        };
        let record: Record = decode(reader.path(), &key, &bytes)?;
        if matches!(&record, Record::Committed { step, .. } if *step == figures.step) {
            return Ok(commit_of(figures, record));
        }
    }
    Ok(None)
}

fn commit_of(figures: StoredStep, record: Record) -> Option<Committed> {
    match record {
        Record::Committed {
            step,
            trajectories,
            provenance,
            ..
        } if step == figures.step => Some(Committed {
            figures,
            trajectories,
            provenance,
        }),
        _ => None,
    }
}
