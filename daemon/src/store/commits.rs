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

    /// The last committed step as the controller had it with the last record; none: its state is not stored, or not as
    /// entries.
    pub fn committed(&self) -> Result<Option<Step>, StoreError> {
        self.read(|reader| {
            let head = entry(reader, EntryKey::Head)?;
            Ok(head.and_then(|head| head.committed()))
        })
    }

    /// Whether trajectories of a batch are kept still. Reads the steps since, up to the one that removed them.
    pub fn retention(&self, batch: u64) -> Result<Retention, StoreError> {
        self.read(|reader| {
            // Whether the batch's step and all since say that they left them there.
            let mut is_sure = false;
            for key in reader.keys(&Key::Step(batch), &Key::Step(u64::MAX)) {
                let key = key?;
                let Some(bytes) = reader.get(&key)? else {
                    continue;
                };
                let step: StoredStep = decode(reader.path(), &key, &bytes)?;
                match step.kept_from {
                    Some(from) if from > batch => {
                        return Ok(Retention::Removed {
                            with: is_sure.then_some(step.step),
                        });
                    }
                    // A step removes what came before it, whichever build commits it.
                    _ if step.step.0 == batch => is_sure = true,
                    Some(_) => {}
                    None => is_sure = false,
                }
            }
            Ok(match is_sure {
                true => Retention::Kept,
                false => Retention::Unknown,
            })
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
