//! Looks at everything that is stored: every key, every value, what they say of each other.
//!
//! It reads beside a running committer, so what looks wrong is looked at again before it is called
//! a problem.
use super::codec::{decode, undecodable};
use super::error::StoreError;
use super::keys::Key;
use super::parts::Get;
use super::reader::Reader;
use super::types::{Finish, StoredCheckpoint, StoredInstance, StoredNote, StoredStep, Told};
use super::{Store, spans, trajectories};
use prost::Message;
use robust_proto::v1::Span;
use robust_shared::core::{Entry, Event, Incident, Record};
use robust_shared::history::Page;
use robust_shared::ids::{Step, TrajectoryId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Problems told at most; the rest is counted.
const TOLD: usize = 100;
/// What looks wrong must do so that often, so long apart.
const LOOKS: usize = 3;
const BETWEEN: Duration = Duration::from_millis(20);
/// Keys read between two words of progress.
const REPORT_EVERY: u64 = 1024;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Entries of the database.
    pub keys: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Records of the journal.
    pub records: u64,
    /// Steps that the journal commits.
    pub committed: u64,
    /// Trajectories.
    pub trajectories: u64,
    /// Their turns.
    pub turns: u64,
    /// Sentences, the first hundred.
    pub problems: Vec<String>,
    /// How many problems there are.
    pub problems_total: u64,
}

impl Checked {
    /// Adds a problem.
    pub fn problem(&mut self, text: impl Into<String>) {
        self.problems_total += 1;
        if self.problems.len() < TOLD {
            self.problems.push(text.into());
        }
    }
}

impl Store {
    /// Checks it all. Blocks for the reading; `progress` hears of the keys read so far.
    pub fn check(&self, progress: &mut dyn FnMut(u64)) -> Result<Checked, StoreError> {
        let mut checked = Checked::default();
        self.check_entries(&mut checked, progress)?;
        self.check_journal(&mut checked)?;
        self.check_trajectories(&mut checked)?;
        Ok(checked)
    }

    fn check_entries(
        &self,
        checked: &mut Checked,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), StoreError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let from = after.clone();
            // In pages, so that the slot's lock is not held while writers wait.
            let page = self.read(|reader| reader.entries_after(from.as_deref(), REPORT_EVERY))?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            for (key, bytes) in page {
                (checked.keys, checked.bytes) = (checked.keys + 1, checked.bytes + bytes);
                if let Some(problem) = self.lasting(|reader| entry(reader, &key))? {
                    checked.problem(problem);
                }
            }
            progress(checked.keys);
        }
    }

    fn check_journal(&self, checked: &mut Checked) -> Result<(), StoreError> {
        let mut consumed: BTreeMap<u64, Step> = BTreeMap::new();
        let (mut next, mut last) = (0, None);
        loop {
            let page = self.journal_since(next, REPORT_EVERY as usize)?;
            let Some((newest, _)) = page.last() else {
                return Ok(());
            };
            if page
                .first()
                .is_some_and(|(seq, _)| next > 0 && *seq != next)
            {
                checked.problem(format!("the journal has no record {next}"));
            }
            next = newest + 1;
            for (_, record) in page {
                checked.records += 1;
                let Record::Committed {
                    step, trajectories, ..
                } = record
                else {
                    continue;
                };
                checked.committed += 1;
                if last.is_some_and(|before: Step| step.0 != before.0 + 1) {
                    checked.problem(format!("step {step} is committed after {last:?}"));
                }
                last = Some(step);
                for t in trajectories {
                    if let Some(before) = consumed.insert(t.key(), step) {
                        checked.problem(format!("I-3: {t} is consumed by {before} and {step}"));
                    }
                }
            }
        }
    }

    fn check_trajectories(&self, checked: &mut Checked) -> Result<(), StoreError> {
        let mut next = Some(0);
        while let Some(from) = next {
            let Some(number) = self.read(|reader| trajectories::first_from(reader, from))? else {
                return Ok(());
            };
            checked.trajectories += 1;
            let mut turns = 0;
            let problem = self.lasting(|reader| {
                let (stored, problem) = trajectory(reader, number)?;
                turns = stored;
                Ok(problem)
            })?;
            checked.turns += turns;
            if let Some(problem) = problem {
                let id = TrajectoryId::from_key(number);
                checked.problem(format!("trajectory {id}: {problem}"));
            }
            next = number.checked_add(1);
        }
        Ok(())
    }

    /// A problem that is still there after some looks.
    fn lasting(
        &self,
        mut look: impl FnMut(&Reader<'_>) -> Result<Option<String>, StoreError>,
    ) -> Result<Option<String>, StoreError> {
        let look = std::cell::RefCell::new(&mut look);
        let mut found = None;
        for at in 0..LOOKS {
            if at > 0 {
                std::thread::sleep(BETWEEN);
            }
            found = match self.look(|reader| (look.borrow_mut())(reader)) {
                Err(StoreError::Corrupt { detail, .. }) => Some(detail),
                other => other?,
            };
            if found.is_none() {
                break;
            }
        }
        Ok(found)
    }
}

/// Whether a value can be read as what its key says.
fn entry(reader: &Reader<'_>, raw: &[u8]) -> Result<Option<String>, StoreError> {
    let path = reader.path();
    if let Some((of, _)) = raw
        .strip_prefix(b"x")
        .and_then(|rest| rest.split_last_chunk::<4>())
    {
        let orphan = reader.get_raw(of)?.is_none() && reader.get_raw(raw)?.is_some();
        return Ok(orphan.then(|| format!("part {} belongs to no value", raw.escape_ascii())));
    }
    let Some(key) = Key::decode(raw) else {
        return Ok(Some(format!(
            "{} is no key of this schema",
            raw.escape_ascii()
        )));
    };
    // Removed meanwhile.
    let Some(bytes) = reader.get(raw)? else {
        return Ok(None);
    };
    match key {
        Key::Journal(_) => drop(decode::<Record>(path, raw, &bytes)?),
        Key::History(..) => drop(decode::<Page>(path, raw, &bytes)?),
        Key::Event(_) => drop(decode::<Event>(path, raw, &bytes)?),
        Key::Incident(_) => drop(decode::<Incident>(path, raw, &bytes)?),
        Key::Notes(_) => drop(decode::<Vec<StoredNote>>(path, raw, &bytes)?),
        Key::Told => drop(decode::<Told>(path, raw, &bytes)?),
        Key::Step(_) => drop(decode::<StoredStep>(path, raw, &bytes)?),
        Key::Instance(_) => drop(decode::<StoredInstance>(path, raw, &bytes)?),
        Key::Checkpoint(_) => drop(decode::<StoredCheckpoint>(path, raw, &bytes)?),
        Key::Finish(_) => drop(decode::<Finish>(path, raw, &bytes)?),
        Key::Entry(entry) => {
            drop(Entry::decode(entry, &bytes).map_err(|e| undecodable(path, raw, &e))?);
        }
        Key::Span(..) => drop(Span::decode(&bytes[..]).map_err(|e| undecodable(path, raw, &e))?),
        Key::Version
        | Key::Group
        | Key::Position
        | Key::File(_)
        | Key::Audit(_)
        | Key::FormerState
        | Key::Written
        | Key::Published
        | Key::Shard(..)
        | Key::Consumed(_)
        | Key::Prompt(_)
        | Key::Turn(..)
        | Key::Unconsumed(_) => {}
    }
    Ok(None)
}

/// How many turns a trajectory has, and what of it contradicts itself.
fn trajectory(reader: &Reader<'_>, number: u64) -> Result<(u64, Option<String>), StoreError> {
    let stored = trajectories::load(reader, TrajectoryId::from_key(number))?;
    let waiting = reader.get_raw(&Key::Unconsumed(number).encode())?.is_some();
    let Some(stored) = stored else {
        let problem = waiting.then(|| "it is listed as finished and is not there".to_owned());
        return Ok((0, problem));
    };
    let ends = (Key::Turn(number, 0), Key::Turn(number, u32::MAX));
    let (there, turns) = (reader.keys(&ends.0, &ends.1).count(), stored.turns.len());
    let finished = stored.finished.as_ref();
    let next = u32::try_from(turns).unwrap_or(u32::MAX);
    let all = (
        Key::Span(number, 0, 0),
        Key::Span(number, u32::MAX, u32::MAX),
    );
    let begun = reader.keys(&all.0, &all.1).count() as u64;
    let (_, follow) = spans::of_turn(reader, number, next)?;
    let problem = if begun != follow {
        Some(format!(
            "{begun} spans of turns under way, of which {follow} follow each other in turn {next}"
        ))
    } else if begun > 0 && finished.is_some() {
        Some(format!("an end, and turn {next} is under way"))
    } else if there != turns {
        Some(format!("{there} turns, of which {turns} follow each other"))
    } else if finished.is_some_and(|f| f.turns as usize != turns) {
        Some(format!(
            "{turns} turns, and an end after {:?}",
            finished.map(|f| f.turns)
        ))
    } else if waiting != (finished.is_some() && stored.consumed_by.is_none()) {
        Some(format!(
            "finished and not consumed is {}, the index says {waiting}",
            !waiting
        ))
    } else if stored
        .turns
        .iter()
        .zip(0..)
        .any(|(turn, at)| turn.index != at)
    {
        Some("a turn is stored under another's number".to_owned())
    } else {
        None
    };
    Ok((turns as u64, problem))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_proto::v1::Turn;

    const ID: TrajectoryId = TrajectoryId {
        batch: 1,
        group: 2,
        member: 3,
    };

    fn store(dir: &std::path::Path) -> Store {
        let (store, _) = Store::open(dir).unwrap();
        let turn = |index| Turn {
            index,
            ..Default::default()
        };
        // A prompt of many parts.
        store
            .append_turn(ID, vec![7; 10_000], turn(0))
            .wait()
            .unwrap();
        store.append_turn(ID, Vec::new(), turn(1)).wait().unwrap();
        let finish = Finish {
            turns: 2,
            ..Default::default()
        };
        store.finish(ID, finish).wait().unwrap();
        store
    }

    fn problems(store: &Store) -> Vec<String> {
        store.check(&mut |_| ()).unwrap().problems
    }

    #[test]
    fn a_sound_store_has_no_problem_and_everything_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let checked = store.check(&mut |_| ()).unwrap();
        assert_eq!(checked.problems, [""; 0]);
        assert_eq!((checked.trajectories, checked.turns), (1, 2));
        assert!(checked.keys >= 7 && checked.bytes > 40_000, "{checked:?}");
    }

    #[test]
    fn what_is_missing_or_left_over_is_named() {
        let n = ID.key();
        let harms = [
            (Key::Turn(n, 0), "1 turns, of which 0 follow"),
            (Key::Turn(n, 1), "1 turns, and an end after Some(2)"),
            (Key::Unconsumed(n), "the index says false"),
        ];
        for (key, expected) in harms {
            let dir = tempfile::tempdir().unwrap();
            let store = store(dir.path());
            // Behind the store's back, as damage would.
            let raw = key.encode();
            store
                .submit(move |txn| txn.remove_range(raw.clone()..[&raw[..], &[0]].concat()))
                .wait()
                .unwrap();
            let said = problems(&store).join("\n");
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }

    #[test]
    fn tokens_of_a_turn_under_way_with_a_gap_or_without_a_place_are_named() {
        let n = ID.key();
        let span = |from: u32| Span {
            ids: vec![from, from + 1],
            logprobs: vec![-1.0; 2],
            version: 1,
        };
        let harms = [
            (Key::Span(n, 2, 0), "an end, and turn 2 is under way"),
            (Key::Span(n, 2, 1), "1 spans of turns under way, of which 0"),
            (Key::Span(n, 5, 0), "1 spans of turns under way, of which 0"),
        ];
        for (key, expected) in harms {
            let dir = tempfile::tempdir().unwrap();
            let store = store(dir.path());
            store
                .submit(move |txn| txn.put(&key, &span(0).encode_to_vec()))
                .wait()
                .unwrap();
            let said = problems(&store).join("\n");
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }

    #[test]
    fn a_lost_part_of_a_long_value_and_its_orphans_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let prompt = Key::Prompt(ID.key()).encode();
        let part = super::super::keys::part(&prompt, 0);
        store
            .submit(move |txn| txn.remove_range(part.clone()..[&part[..], &[0]].concat()))
            .wait()
            .unwrap();
        assert!(problems(&store).join("\n").contains("a part is missing"));
    }
}
