//! Tokens of persons that were taken back before their end.
//!
//! ```text
//!  operator.alice.1790000000.SECRET ── its id: all but the secret ──► STATE/persons.revoked, until that end
//! ```
//! Nothing else is stored of such a token: whoever has the one that it is made of derives it (`robust_identity::Person`). The
//! file goes along with the job's log, so that another controller that leads knows them, and stays over `--fresh` as the
//! tokens do.
use crate::state::{Readers, StateDirError, read_private, write_private};
use robust_identity::Person;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tonic::Status;

/// Tokens that are remembered at a time: each ends by itself, and more are taken back with the one that they are made of.
const MOST: usize = 1024;

/// Why a token is not taken back.
#[derive(Debug, thiserror::Error)]
pub enum NotRevoked {
    /// It names no person's token.
    #[error(
        "`{0}` is no id of a person's token: that is KIND.NAME.END, what the token begins with, such as \
         operator.alice.1790000000"
    )]
    NoId(String),
    /// It opens nothing anyway.
    #[error("the token {0} is over already")]
    Over(String),
    /// There is no room.
    #[error(
        "{MOST} tokens of persons were taken back and are not over yet; make another token that theirs are made of, \
         which takes all back"
    )]
    Many,
    /// It cannot be kept.
    #[error(transparent)]
    State(#[from] StateDirError),
}

impl From<NotRevoked> for Status {
    fn from(error: NotRevoked) -> Self {
        let text = error.to_string();
        match error {
            NotRevoked::NoId(_) => Self::invalid_argument(text),
            NotRevoked::Over(_) => Self::failed_precondition(text),
            NotRevoked::Many => Self::resource_exhausted(text),
            NotRevoked::State(_) => Self::internal(text),
        }
    }
}

/// The tokens that were taken back. Clones share them.
#[derive(Clone, Debug)]
pub struct Revoked(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    ids: Mutex<BTreeSet<String>>,
}

impl Revoked {
    /// Those of this file, an id a line.
    pub fn open(path: &Path) -> Result<Self, StateDirError> {
        let text = read_private(path, Readers::Owner)?.unwrap_or_default();
        let ids = text.lines().map(str::to_owned).collect();
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            ids: Mutex::new(ids),
        })))
    }

    /// Whether an id is one of a person's token, by its form, and none of a node's.
    pub(super) fn is_of_person(id: &str) -> bool {
        id.contains('.')
    }

    /// Whether somebody's token was taken back.
    pub(super) fn has(&self, person: &Person) -> bool {
        self.ids().contains(&person.id())
    }

    /// The ids of those that would be good still.
    pub(super) fn list(&self) -> Vec<String> {
        let ids = self.ids();
        ids.iter().filter(|id| is_good(id)).cloned().collect()
    }

    /// Takes one back; on disk when this returns.
    pub(super) fn revoke(&self, id: &str) -> Result<(), NotRevoked> {
        let person = Person::of_id(id).ok_or_else(|| NotRevoked::NoId(id.to_owned()))?;
        if person.is_over() {
            return Err(NotRevoked::Over(id.to_owned()));
        }
        let mut ids = self.ids();
        let mut next: BTreeSet<String> = ids.iter().filter(|id| is_good(id)).cloned().collect();
        next.insert(person.id());
        if next.len() > MOST {
            return Err(NotRevoked::Many);
        }
        let lines: String = next.iter().map(|id| format!("{id}\n")).collect();
        write_private(&self.0.path, lines.as_bytes())?;
        *ids = next;
        Ok(())
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_good(id: &str) -> bool {
    Person::of_id(id).is_some_and(|person| !person.is_over())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn alice(until_s: u64) -> Person {
        Person::new("operator", "alice", until_s).unwrap()
    }

    #[test]
    fn one_token_is_taken_back_and_stays_so_and_no_other_of_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("persons.revoked");
        let revoked = Revoked::open(&path).unwrap();
        assert_eq!(revoked.list(), Vec::<String>::new());
        let (lost, kept) = (alice(4_000_000_000), alice(4_000_000_001));
        revoked.revoke(&lost.id()).unwrap();
        for known in [revoked, Revoked::open(&path).unwrap()] {
            assert!(known.has(&lost) && !known.has(&kept));
            assert_eq!(known.list(), ["operator.alice.4000000000"]);
        }
    }

    #[test]
    fn what_is_no_token_or_over_is_not_taken_back_and_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("persons.revoked");
        let over = alice(1_700_000_000);
        write_private(&path, format!("{}\n", over.id()).as_bytes()).unwrap();
        let revoked = Revoked::open(&path).unwrap();
        assert_eq!(revoked.list(), Vec::<String>::new());
        let refusal = |id: &str| revoked.revoke(id).unwrap_err().to_string();
        assert!(refusal(&over.id()).contains("over already"));
        assert!(refusal("operator.Alice.4000000000").contains("is no id"));
        assert!(refusal("operator.alice.4000000000.secret").contains("is no id"));
        revoked.revoke(&alice(4_000_000_000).id()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "operator.alice.4000000000\n");
    }
}
