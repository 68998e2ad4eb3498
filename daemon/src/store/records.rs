//! The journal, what the daemon remembers and what is derived from records: steps, incidents, intervals.
use super::codec::{decode, encode, undecodable};
use super::error::StoreError;
use super::keys::{self, Key};
use super::parts::Get;
use super::txn::Txn;
use super::types::{Remembered, StoredStep};
use super::{Durable, Options, Store, WayBack};
use robust_shared::core::{Event, Incident, Record};
use robust_shared::ettr::Interval;
use robust_shared::ids::{Step, TrajectoryId};
use robust_shared::time::Time;

/// Lines of the audit log that the store has at most.
pub const AUDIT_KEPT: u64 = 10_000;

impl Store {
    /// Journals records with what changes of what is remembered, atomically: after a crash either all of
    /// it is there or nothing. A `Committed` record consumes its trajectories in the same write, and
    /// prunes those of long past steps.
    pub fn record(&self, records: Vec<Record>, changes: Remembered) -> Durable<()> {
        let at = super::now();
        let keep = (self.inner.options, *self.way_back_now());
        self.submit(move |txn| {
            for record in &records {
                let seq = txn.next_journal;
                txn.put(&Key::Journal(seq), &encode("record", record)?)?;
                txn.next_journal = seq + 1;
                apply(txn, (seq, record), at, keep)?;
            }
            remember(txn, &changes)
        })
    }

    /// Puts on record which trajectories steps consumed, as the manifests of checkpoints say.
    pub fn mark_consumed(&self, consumed: Vec<(Step, Vec<TrajectoryId>)>) -> Durable<()> {
        self.submit(move |txn| {
            let each = consumed
                .iter()
                .flat_map(|(step, ids)| ids.iter().map(|id| (*id, *step)));
            each.into_iter()
                .try_for_each(|(id, step)| consume(txn, id, step))
        })
    }

    /// What is remembered since the last durable `record`, in the order of keys.
    pub fn remembered(&self) -> Result<Vec<(Key, Vec<u8>)>, StoreError> {
        self.read(|reader| {
            let mut found = Vec::new();
            for raw in keys::REMEMBERED.iter().flat_map(|tag| reader.table(*tag)) {
                let raw = raw?;
                // One that this build does not know: the daemon of a newer one wrote it.
                let key =
                    Key::decode(&raw).ok_or_else(|| undecodable(reader.path(), &raw, &"no key"))?;
                if let Some(bytes) = reader.get(&raw)? {
                    found.push((key, bytes));
                }
            }
            Ok(found)
        })
    }

    /// What a daemon of schema 3 or before remembered, where none recorded anything since.
    pub fn former_state(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|reader| reader.get(&Key::FormerState.encode()))
    }

    /// The journal from `seq` on, `limit` entries at most. Numbers start at 1.
    pub fn journal_since(&self, seq: u64, limit: usize) -> Result<Vec<(u64, Record)>, StoreError> {
        self.numbered(Key::Journal(seq), Key::Journal(u64::MAX), limit)
    }

    /// Every committed step's figures, in order.
    pub fn steps(&self) -> Result<Vec<StoredStep>, StoreError> {
        self.steps_between(Step(0), Step(u64::MAX))
    }

    /// One committed step's figures.
    pub fn step(&self, step: Step) -> Result<Option<StoredStep>, StoreError> {
        Ok(self.steps_between(step, step)?.pop())
    }

    /// The figures of those committed steps that are on record from the first of these to the last, in order.
    pub fn steps_between(&self, first: Step, last: Step) -> Result<Vec<StoredStep>, StoreError> {
        self.values(Key::Step(first.0), Key::Step(last.0))
    }

    /// Every incident in its last state, in order.
    pub fn incidents(&self) -> Result<Vec<Incident>, StoreError> {
        self.values(Key::Incident(0), Key::Incident(u64::MAX))
    }

    /// The ledger of phase intervals, in the order they were recorded.
    pub fn intervals(&self) -> Result<Vec<Interval>, StoreError> {
        let journal = self.journal_since(0, usize::MAX)?;
        let interval = |(_, record)| match record {
            Record::Interval(interval) => Some(interval),
            _ => None,
        };
        Ok(journal.into_iter().filter_map(interval).collect())
    }

    /// Appends an event. Its number is known at once; await the rest to know it durable.
    pub fn append_event(&self, event: impl std::borrow::Borrow<Event>) -> (u64, Durable<()>) {
        let bytes = encode("event", event.borrow());
        // Held over the submission so that numbers reach the disk in their order.
        let mut next = self
            .inner
            .next_event
            .lock()
            .unwrap_or_else(|e| e.into_inner());
        let seq = *next;
        *next += 1;
        (
            seq,
            self.submit_at_leisure(move |txn| txn.put(&Key::Event(seq), &bytes?)),
        )
    }

    /// Appends a line of the audit log, of which the last [`AUDIT_KEPT`] stay. What is submitted after this becomes durable
    /// after it.
    pub fn append_audit(&self, n: u64, line: &str) {
        let line = line.as_bytes().to_vec();
        drop(self.submit_at_leisure(move |txn| {
            if let Some(old) = n.checked_sub(AUDIT_KEPT) {
                txn.remove(&Key::Audit(old))?;
            }
            txn.put(&Key::Audit(n), &line)
        }));
    }

    /// The lines of the audit log that went here as well, in order.
    pub fn audit(&self) -> Result<Vec<(u64, String)>, StoreError> {
        self.read(|reader| {
            let mut lines = Vec::new();
            for key in reader.keys(&Key::Audit(0), &Key::Audit(u64::MAX)) {
                let key = key?;
                if let (Some(Key::Audit(n)), Some(line)) = (Key::decode(&key), reader.get(&key)?) {
                    lines.push((n, String::from_utf8_lossy(&line).into_owned()));
                }
            }
            Ok(lines)
        })
    }

    /// Events numbered `seq` and above, `limit` at most. Numbers start at 1.
    pub fn events_since(&self, seq: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        self.numbered(Key::Event(seq), Key::Event(u64::MAX), limit)
    }

    fn numbered<T: serde::de::DeserializeOwned>(
        &self,
        from: Key,
        to: Key,
        limit: usize,
    ) -> Result<Vec<(u64, T)>, StoreError> {
        self.read(|reader| {
            let mut found = Vec::new();
            for key in reader.keys(&from, &to).take(limit) {
                let key = key?;
                let (Some(Key::Journal(seq) | Key::Event(seq)), Some(bytes)) =
                    (Key::decode(&key), reader.get(&key)?)
                else {
                    continue;
                };
                found.push((seq, decode(reader.path(), &key, &bytes)?));
            }
            Ok(found)
        })
    }

    pub(super) fn values<T: serde::de::DeserializeOwned>(
        &self,
        from: Key,
        to: Key,
    ) -> Result<Vec<T>, StoreError> {
        self.read(|reader| {
            let mut found = Vec::new();
            for key in reader.keys(&from, &to) {
                let key = key?;
                if let Some(bytes) = reader.get(&key)? {
                    found.push(decode(reader.path(), &key, &bytes)?);
                }
            }
            Ok(found)
        })
    }
}

/// Takes in what changes of what is remembered.
fn remember(txn: &mut Txn<'_>, changes: &Remembered) -> Result<(), StoreError> {
    if changes.whole {
        txn.remove(&Key::FormerState)?;
        for tag in keys::REMEMBERED {
            txn.remove_range(vec![tag]..vec![tag + 1])?;
            txn.remove_range(vec![b'x', tag]..vec![b'x', tag + 1])?;
        }
    }
    for (key, value) in &changes.puts {
        txn.put(key, value)?;
    }
    changes.removed.iter().try_for_each(|key| txn.remove(key))
}

fn apply(
    txn: &mut Txn<'_>,
    (seq, record): (u64, &Record),
    at: Time,
    keep: (Options, WayBack),
) -> Result<(), StoreError> {
    match record {
        Record::Committed {
            step,
            generation,
            trajectories,
            metrics,
            ..
        } => {
            let kept_from = first_kept(txn, *step, keep)?;
            let figures = StoredStep {
                step: *step,
                at,
                generation: *generation,
                metrics: *metrics,
                record: Some(seq),
                kept_from: Some(kept_from),
            };
            txn.put(&Key::Step(step.0), &encode("step", &figures)?)?;
            trajectories
                .iter()
                .try_for_each(|id| consume(txn, *id, *step))?;
            prune(txn, kept_from)
        }
        Record::Incident(incident) => txn.put(
            &Key::Incident(incident.id.0),
            &encode("incident", incident)?,
        ),
        Record::Discarded { trajectories } => {
            trajectories.iter().try_for_each(|id| discard(txn, *id))
        }
        Record::SetAside { trajectory, .. } => set_aside(txn, *trajectory),
        Record::Issued { .. }
        | Record::Published { .. }
        | Record::Quarantined { .. }
        | Record::Armed { .. }
        | Record::Revised { .. }
        | Record::Interval(_) => Ok(()),
    }
}

/// I-3: exactly one committed step; the same step may say so again after a restart.
fn consume(txn: &mut Txn<'_>, trajectory: TrajectoryId, step: Step) -> Result<(), StoreError> {
    let key = Key::Consumed(trajectory.key());
    if let Some(by) = super::trajectories::consumer(txn, trajectory)?
        && by != step
    {
        return Err(StoreError::ConsumedTwice {
            trajectory,
            by,
            again: step,
        });
    }
    txn.put(&key, &step.0.to_be_bytes())?;
    txn.remove(&Key::Unconsumed(trajectory.key()))
}

/// Its step consumes it with the rest of its batch and does not train on it, now or when it is trained
/// again: an end that came too late goes. Its turns stay as evidence.
fn set_aside(txn: &mut Txn<'_>, trajectory: TrajectoryId) -> Result<(), StoreError> {
    txn.remove(&Key::Finish(trajectory.key()))?;
    consume(txn, trajectory, Step(trajectory.batch))
}

/// Removes what was generated for a trajectory: it begins anew.
fn discard(txn: &mut Txn<'_>, trajectory: TrajectoryId) -> Result<(), StoreError> {
    let number = trajectory.key();
    remove_range(txn, number, number.saturating_add(1))?;
    txn.remove(&Key::Unconsumed(number))
}

/// Removes trajectories from one number on, up to another one, with the parts of long values.
fn remove_range(txn: &mut Txn<'_>, from: u64, to: u64) -> Result<(), StoreError> {
    let whole = keys::trajectory_prefix(from)..keys::trajectory_prefix(to);
    let parts = [&b"x"[..], &whole.start].concat()..[&b"x"[..], &whole.end].concat();
    txn.remove_range(whole)?;
    txn.remove_range(parts)
}

/// The first batch whose trajectories a way back may need: those after the oldest checkpoint that
/// retention keeps for being new, and of so many steps in any case.
fn first_kept(
    txn: &Txn<'_>,
    committed: Step,
    (keep, way_back): (Options, WayBack),
) -> Result<u64, StoreError> {
    let by_number = committed.0.saturating_sub(keep.keep_steps);
    let oldest = match way_back {
        WayBack::OnDisk => txn.oldest_checkpoint_of_last(keep.keep_checkpoints)?,
        WayBack::Unknown => return Ok(0),
        WayBack::Elsewhere(oldest) => oldest.map(|step| step.0),
    };
    Ok(oldest.map_or(by_number, |oldest| by_number.min(oldest + 1)))
}

/// Removes every trajectory of a batch before `step`.
fn prune(txn: &mut Txn<'_>, step: u64) -> Result<(), StoreError> {
    let end = TrajectoryId {
        batch: step,
        group: 0,
        member: 0,
    }
    .key();
    remove_range(txn, 0, end)?;
    txn.remove_range(Key::Unconsumed(0).encode()..Key::Unconsumed(end).encode())
}
