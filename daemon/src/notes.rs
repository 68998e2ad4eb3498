//! What operators wrote beside incidents.
//!
//! ```text
//!  rpc Note ──► checked ──► store (and the job's log), awaited ──► book ──► statuses and reports
//! ```
//! They are the store's and not the controller's: nothing is decided by them, they come when the incident is long over, and
//! whoever leads next reads them with everything else. The book has them for those who look, who must not wait for a disk.
use crate::store::{Store, StoreError, StoredNote};
use robust_proto::v1;
use robust_shared::note::{NoteError, checked};
use robust_shared::time::Time;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::Mutex;

/// Notes of one incident at most.
pub const MOST_OF_AN_INCIDENT: usize = 20;
/// Bytes of all notes of a job at most: they are part of every status, four times a second for each console.
pub const MOST_BYTES: usize = 256 << 10;

/// Why a note is not kept.
#[derive(Debug, thiserror::Error)]
pub enum NotesError {
    /// The text is none.
    #[error(transparent)]
    Text(#[from] NoteError),
    /// Nobody knows the incident.
    #[error("there is no incident {incident}; `robustctl status --all` lists those that there are")]
    Unknown {
        /// The number that was given.
        incident: u64,
    },
    /// The incident has [`MOST_OF_AN_INCIDENT`].
    #[error(
        "incident {incident} has {MOST_OF_AN_INCIDENT} notes, which is the most that one may have"
    )]
    TooMany {
        /// Its number.
        incident: u64,
    },
    /// The job has [`MOST_BYTES`].
    #[error("the notes of this job have {} KiB, which is the most that all may have: no further one is kept", MOST_BYTES >> 10)]
    Full,
    /// Nothing is written here.
    #[error("{0}")]
    Closed(&'static str),
    /// The store did not take it.
    #[error("the note is not kept: {0}")]
    Store(#[from] StoreError),
    /// The daemon ends.
    #[error("the note is perhaps not kept: the daemon is ending")]
    Ending,
}

/// The notes of all incidents. Cheap to clone.
#[derive(Clone)]
pub struct Notes(Arc<Inner>);

struct Inner {
    store: Store,
    /// Why none may be written; none: they may.
    closed: Option<&'static str>,
    book: RwLock<BTreeMap<u64, Vec<StoredNote>>>,
    /// Held while one is written: all of an incident are written together.
    writing: Mutex<()>,
}

impl Notes {
    /// Those that a store has; `closed` is why no others may be written.
    pub fn open(store: &Store, closed: Option<&'static str>) -> Result<Self, StoreError> {
        let book = store.notes()?.into_iter().collect();
        Ok(Self(Arc::new(Inner {
            store: store.clone(),
            closed,
            book: RwLock::new(book),
            writing: Mutex::new(()),
        })))
    }

    /// Keeps a note, and says how many the incident has with it. It is durable when this returns, and goes on to be written
    /// where whoever asked leaves before.
    pub async fn add(
        &self,
        incident: u64,
        (at, who, text): (Time, String, &str),
    ) -> Result<(StoredNote, usize), NotesError> {
        let text = checked(text)?;
        let (inner, note) = (Arc::clone(&self.0), StoredNote { at, who, text });
        let written = tokio::spawn(async move { inner.write(incident, note).await });
        written.await.map_err(|_| NotesError::Ending)?
    }

    /// Puts the notes beside their incidents.
    pub fn show(&self, incidents: &mut [v1::Incident]) {
        let book = self.0.book.read().unwrap_or_else(PoisonError::into_inner);
        if book.is_empty() {
            return;
        }
        for incident in incidents {
            let notes = book.get(&incident.id).into_iter().flatten();
            incident.notes = notes.map(shown).collect();
        }
    }
}

impl Inner {
    async fn write(
        &self,
        incident: u64,
        note: StoredNote,
    ) -> Result<(StoredNote, usize), NotesError> {
        if let Some(why) = self.closed {
            return Err(NotesError::Closed(why));
        }
        let _writing = self.writing.lock().await;
        let notes = self.with(incident, &note)?;
        let count = notes.len();
        if !self.store.put_notes(incident, notes.clone()).await? {
            return Err(NotesError::Unknown { incident });
        }
        let mut book = self.book.write().unwrap_or_else(PoisonError::into_inner);
        book.insert(incident, notes);
        Ok((note, count))
    }

    /// The notes of an incident with this one.
    fn with(&self, incident: u64, note: &StoredNote) -> Result<Vec<StoredNote>, NotesError> {
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        let mut notes = book.get(&incident).cloned().unwrap_or_default();
        if notes.len() >= MOST_OF_AN_INCIDENT {
            return Err(NotesError::TooMany { incident });
        }
        let kept: usize = book.values().flatten().map(bytes).sum();
        if kept + bytes(note) > MOST_BYTES {
            return Err(NotesError::Full);
        }
        notes.push(note.clone());
        Ok(notes)
    }
}

fn bytes(note: &StoredNote) -> usize {
    note.who.len() + note.text.len()
}

/// A note as operators see it.
pub fn shown(note: &StoredNote) -> v1::IncidentNote {
    v1::IncidentNote {
        at_ms: note.at.millis(),
        who: note.who.clone(),
        text: note.text.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::Remembered;
    use robust_shared::core::{Incident, IncidentOutcome, Record};
    use robust_shared::ids::{Incarnation, IncidentId, InstanceId, Role, Step};

    fn incident(id: u64) -> Record {
        Record::Incident(Box::new(Incident {
            id: IncidentId(id),
            who: InstanceId {
                role: Role::Rollout,
                index: 0,
            },
            judged: None,
            under: None,
            innocent: false,
            incarnation: Incarnation(id),
            rule: "exit".to_owned(),
            reason: "killed by SIGKILL".to_owned(),
            cause: None,
            plan: "restart rollout-0".to_owned(),
            step: Step(1),
            struck: Time(1),
            verdict: Time(2),
            attached: Some(Time(3)),
            resumed: Some(Time(4)),
            outcome: IncidentOutcome::Recovered,
            evidence: String::new(),
            testimony: Vec::new(),
            root: None,
            swept: Vec::new(),
            marks: Vec::new(),
        }))
    }

    /// A store with two incidents that are over.
    async fn with_two() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        let records = vec![incident(1), incident(2)];
        store.record(records, Remembered::default()).await.unwrap();
        (dir, store)
    }

    fn said(text: &str) -> (Time, String, &str) {
        (Time(5_000_000), "uid 7 (ann), pid 9".to_owned(), text)
    }

    fn texts(notes: &Notes) -> Vec<(u64, Vec<String>)> {
        let of = |id| v1::Incident {
            id,
            ..Default::default()
        };
        let mut incidents = [of(1), of(2)];
        notes.show(&mut incidents);
        let told = incidents.into_iter().map(|i| {
            let texts = i.notes.into_iter().map(|n| n.text).collect();
            (i.id, texts)
        });
        told.collect()
    }

    #[tokio::test]
    async fn notes_stay_with_their_incident_across_a_restart_in_the_order_they_came() {
        let (dir, store) = with_two().await;
        let notes = Notes::open(&store, None).unwrap();
        assert_eq!(notes.add(2, said("the switch")).await.unwrap().1, 1);
        let (note, count) = notes.add(2, said(" is replaced \n")).await.unwrap();
        assert_eq!((&*note.text, count), ("is replaced", 2));
        let wanted = [
            (1, vec![]),
            (2, vec!["the switch".to_owned(), "is replaced".to_owned()]),
        ];
        assert_eq!(texts(&notes), wanted);
        drop((notes, store));
        let (store, _) = Store::open(dir.path()).unwrap();
        let notes = Notes::open(&store, None).unwrap();
        assert_eq!(texts(&notes), wanted);
        let mut shown = [v1::Incident {
            id: 2,
            ..Default::default()
        }];
        notes.show(&mut shown);
        let first = &shown[0].notes[0];
        assert_eq!((first.at_ms, &*first.who), (5_000, "uid 7 (ann), pid 9"));
    }

    #[tokio::test]
    async fn an_incident_that_is_not_known_and_a_text_that_is_none_are_refused_and_nothing_is_kept()
    {
        let (_dir, store) = with_two().await;
        let notes = Notes::open(&store, None).unwrap();
        let refusal = notes.add(3, said("x")).await.unwrap_err().to_string();
        assert_eq!(
            refusal,
            "there is no incident 3; `robustctl status --all` lists those that there are"
        );
        let refusal = notes.add(1, said("a\nb")).await.unwrap_err().to_string();
        assert!(refusal.contains("U+000A"), "{refusal}");
        assert_eq!(store.notes().unwrap(), []);
        let closed = Notes::open(&store, Some("it is only shown")).unwrap();
        let refusal = closed.add(1, said("x")).await.unwrap_err().to_string();
        assert_eq!(refusal, "it is only shown");
    }

    #[tokio::test]
    async fn an_incident_has_so_many_notes_and_all_of_a_job_have_so_many_bytes() {
        let (_dir, store) = with_two().await;
        let notes = Notes::open(&store, None).unwrap();
        for n in 1..=MOST_OF_AN_INCIDENT {
            assert_eq!(notes.add(1, said("x")).await.unwrap().1, n);
        }
        let refusal = notes.add(1, said("x")).await.unwrap_err();
        assert!(matches!(refusal, NotesError::TooMany { incident: 1 }));
        notes.add(2, said("another incident")).await.unwrap();
        // What others wrote before fills the job's share.
        let note = StoredNote {
            at: Time(1),
            who: String::new(),
            text: "x".repeat(MOST_BYTES),
        };
        assert!(store.put_notes(1, vec![note]).await.unwrap());
        let notes = Notes::open(&store, None).unwrap();
        let refusal = notes.add(2, said("x")).await.unwrap_err();
        assert!(matches!(refusal, NotesError::Full), "{refusal}");
    }

    #[tokio::test]
    async fn of_several_who_write_at_once_none_is_lost() {
        let (_dir, store) = with_two().await;
        let notes = Notes::open(&store, None).unwrap();
        let writing = (0..MOST_OF_AN_INCIDENT).map(|n| {
            let notes = notes.clone();
            async move { notes.add(1, said(&n.to_string())).await.unwrap().1 }
        });
        let mut counts = futures::future::join_all(writing).await;
        counts.sort_unstable();
        let wanted: Vec<usize> = (1..=MOST_OF_AN_INCIDENT).collect();
        assert_eq!(counts, wanted);
        assert_eq!(store.notes().unwrap()[0].1.len(), MOST_OF_AN_INCIDENT);
    }
}
