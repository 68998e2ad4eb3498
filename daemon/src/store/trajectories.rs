//! Trajectories, turn by turn. Every write is idempotent and the first one wins, so that an agent
//! whose acknowledgement got lost, or a fenced agent's successor, cannot change what others saw
//! (I-2).
use super::codec::{decode, encode, undecodable};
use super::error::StoreError;
use super::keys::Key;
use super::parts::Get;
use super::reader::Reader;
use super::txn::Txn;
use super::types::{Appended, Finish, StoredTrajectory};
use super::{Durable, Store, spans};
use prost::Message;
use robust_proto::v1::Turn;
use robust_shared::ids::{Step, TrajectoryId};

impl Store {
    /// Stores a turn. `prompt_ids` is kept from the first turn and ignored later.
    pub fn append_turn(
        &self,
        trajectory: TrajectoryId,
        prompt_ids: Vec<u32>,
        turn: Turn,
    ) -> Durable<Appended> {
        self.submit(move |txn| append(txn, trajectory, &prompt_ids, &turn))
    }

    /// Stores the end of a trajectory, whose turns must all be stored.
    pub fn finish(&self, trajectory: TrajectoryId, finish: Finish) -> Durable<Appended> {
        self.submit(move |txn| end(txn, trajectory, &finish))
    }

    /// One trajectory with all its turns.
    pub fn trajectory(&self, id: TrajectoryId) -> Result<Option<StoredTrajectory>, StoreError> {
        self.read(|reader| load(reader, id))
    }

    /// Stored trajectories from this one on, in order, `most` at most.
    pub fn trajectories_from(
        &self,
        from: TrajectoryId,
        most: usize,
    ) -> Result<Vec<(TrajectoryId, StoredTrajectory)>, StoreError> {
        self.read(|reader| {
            let (mut found, mut next) = (Vec::new(), Some(from.key()));
            while let Some(at) = next.filter(|_| found.len() < most) {
                let Some(number) = first_from(reader, at)? else {
                    break;
                };
                let id = TrajectoryId::from_key(number);
                // One of which only the consumption is on record was pruned.
                found.extend(load(reader, id)?.map(|stored| (id, stored)));
                next = number.checked_add(1);
            }
            Ok(found)
        })
    }

    /// The trajectories that a committed step consumed and that are still there, in order. They are
    /// consumed, and removed, all at once: where any is, all are.
    pub fn consumed_by(&self, step: Step) -> Result<Vec<TrajectoryId>, StoreError> {
        let first = |batch| TrajectoryId {
            batch,
            group: 0,
            member: 0,
        };
        let (first, end) = (first(step.0).key(), first(step.0 + 1).key());
        self.read(|reader| {
            let (mut found, mut from) = (Vec::new(), first);
            while let Some(number) = first_from(reader, from)?.filter(|n| *n < end) {
                let id = TrajectoryId::from_key(number);
                // Of one without its end only the consumption is on record.
                if consumer(reader, id)? == Some(step) && finish_of(reader, number)?.is_some() {
                    found.push(id);
                }
                from = number + 1;
            }
            Ok(found)
        })
    }

    /// Finished trajectories of batches after `after` that no step consumed, in order.
    pub fn finished_unconsumed(
        &self,
        after: Step,
    ) -> Result<Vec<(TrajectoryId, Finish)>, StoreError> {
        let first = TrajectoryId {
            batch: after.0 + 1,
            group: 0,
            member: 0,
        }
        .key();
        self.read(|reader| {
            let mut found = Vec::new();
            for key in reader.keys(&Key::Unconsumed(first), &Key::Unconsumed(u64::MAX)) {
                let Some(Key::Unconsumed(number)) = Key::decode(&key?) else {
                    continue;
                };
                if let Some(finish) = finish_of(reader, number)? {
                    found.push((TrajectoryId::from_key(number), finish));
                }
            }
            Ok(found)
        })
    }
}

/// The first stored trajectory from a number on.
pub fn first_from(reader: &Reader<'_>, from: u64) -> Result<Option<u64>, StoreError> {
    let end = Key::Turn(u64::MAX, u32::MAX);
    let Some(key) = reader.keys(&Key::Consumed(from), &end).next().transpose()? else {
        return Ok(None);
    };
    match Key::decode(&key).and_then(|key| key.trajectory()) {
        Some(number) => Ok(Some(number)),
        None => Err(undecodable(reader.path(), &key, &"no key of a trajectory")),
    }
}

fn append(
    txn: &mut Txn<'_>,
    trajectory: TrajectoryId,
    prompt_ids: &[u32],
    turn: &Turn,
) -> Result<Appended, StoreError> {
    let number = trajectory.key();
    let bytes = turn.encode_to_vec();
    let key = Key::Turn(number, turn.index);
    if let Some(stored) = txn.value(&key)? {
        return Ok(if stored == bytes {
            Appended::Repeated
        } else {
            Appended::Already
        });
    }
    must_follow(txn, trajectory, turn.index)?;
    if !spans::replace(txn, number, turn)? {
        return Ok(Appended::Already);
    }
    if turn.index == 0 {
        put_prompt(txn, number, prompt_ids)?;
    }
    txn.put(&key, &bytes)?;
    Ok(Appended::Stored)
}

/// One stored turn.
pub fn turn(txn: &Txn<'_>, number: u64, index: u32) -> Result<Option<Turn>, StoreError> {
    let key = Key::Turn(number, index);
    let decode = |bytes: Vec<u8>| {
        Turn::decode(&bytes[..]).map_err(|e| undecodable(txn.path(), &key.encode(), &e))
    };
    txn.value(&key)?.map(decode).transpose()
}

/// Keeps the prompt, the first one of those that come.
pub fn put_prompt(txn: &mut Txn<'_>, number: u64, ids: &[u32]) -> Result<(), StoreError> {
    if txn.has(&Key::Prompt(number))? {
        return Ok(());
    }
    let prompt: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    txn.put(&Key::Prompt(number), &prompt)
}

/// Refuses a turn, or tokens of one, that is not the next.
pub fn must_follow(txn: &Txn<'_>, trajectory: TrajectoryId, index: u32) -> Result<(), StoreError> {
    let number = trajectory.key();
    if txn.has(&Key::Finish(number))? {
        return Err(StoreError::AfterFinish { trajectory, index });
    }
    // Turns have no gap, so the one before says it all.
    let Some(before) = index.checked_sub(1) else {
        return Ok(());
    };
    if txn.has(&Key::Turn(number, before))? {
        return Ok(());
    }
    Err(StoreError::TurnGap {
        trajectory,
        expected: turns_stored(txn, number, index)?,
        got: index,
    })
}

/// How many turns are stored, `most` at most.
fn turns_stored(txn: &Txn<'_>, number: u64, most: u32) -> Result<u32, StoreError> {
    for index in 0..most {
        if !txn.has(&Key::Turn(number, index))? {
            return Ok(index);
        }
    }
    Ok(most)
}

fn end(
    txn: &mut Txn<'_>,
    trajectory: TrajectoryId,
    finish: &Finish,
) -> Result<Appended, StoreError> {
    let number = trajectory.key();
    if let Some(stored) = finish_of(txn, number)? {
        return Ok(if stored.says_same(finish) {
            Appended::Repeated
        } else {
            Appended::Already
        });
    }
    let stored = turns_stored(txn, number, finish.turns.saturating_add(1))?;
    if stored != finish.turns {
        return Err(StoreError::TurnCount {
            trajectory,
            stored,
            named: finish.turns,
        });
    }
    if spans::stored_tokens(txn, number, finish.turns)? > 0 {
        let turn = finish.turns;
        return Err(StoreError::TurnOpen { trajectory, turn });
    }
    txn.put(&Key::Finish(number), &encode("finish", finish)?)?;
    if consumer(txn, trajectory)?.is_none() {
        txn.put(&Key::Unconsumed(number), &[])?;
    }
    Ok(Appended::Stored)
}

/// The step that consumed a trajectory, if one did.
pub fn consumer<G: Get>(from: &G, trajectory: TrajectoryId) -> Result<Option<Step>, StoreError> {
    let key = Key::Consumed(trajectory.key()).encode();
    let Some(bytes) = from.get(&key)? else {
        return Ok(None);
    };
    let bytes: [u8; 8] = bytes
        .try_into()
        .map_err(|_| undecodable(from.path(), &key, &"not 8 bytes"))?;
    Ok(Some(Step(u64::from_be_bytes(bytes))))
}

fn finish_of<G: Get>(from: &G, number: u64) -> Result<Option<Finish>, StoreError> {
    let key = Key::Finish(number).encode();
    from.get(&key)?
        .map(|bytes| decode(from.path(), &key, &bytes))
        .transpose()
}

/// A trajectory with all its turns, and what is stored of the one under way.
pub fn load(from: &Reader<'_>, id: TrajectoryId) -> Result<Option<StoredTrajectory>, StoreError> {
    let number = id.key();
    let finished = finish_of(from, number)?;
    let prompt = from.get(&Key::Prompt(number).encode())?;
    if prompt.is_none() && finished.is_none() {
        return Ok(None);
    }
    let mut turns = Vec::new();
    for index in 0.. {
        let key = Key::Turn(number, index).encode();
        let Some(bytes) = from.get(&key)? else { break };
        turns.push(Turn::decode(&bytes[..]).map_err(|e| undecodable(from.path(), &key, &e))?);
    }
    let next = u32::try_from(turns.len()).unwrap_or(u32::MAX);
    let (running, _) = spans::of_turn(from, number, next)?;
    let ids = prompt.unwrap_or_default();
    let (ids, _) = ids.as_chunks::<4>();
    Ok(Some(StoredTrajectory {
        prompt_ids: ids.iter().map(|b| u32::from_le_bytes(*b)).collect(),
        turns,
        running,
        finished,
        consumed_by: consumer(from, id)?,
    }))
}
