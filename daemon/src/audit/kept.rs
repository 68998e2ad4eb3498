//! The lines that went into the job's log as well, for whoever leads the job next.
//!
//! Where a job's writes go into a log ([`crate::grouplog`]), those of the audit log do, too. At the start of a controller
//! the files of its state directory are compared with that: they lack what other controllers wrote since, or they have
//! what the log lacks, as this machine was lost first.
use super::files::{lines_of, lines_to, older};
use crate::store::{Store, StoreError};
use robust_shared::audit::{FILE, HEAD, Head, older_file};
use std::io;
use std::path::Path;

/// A line of the chain: its number, and its text.
pub(super) type Line = (u64, String);

/// Why the two could not be brought together.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The files.
    #[error(transparent)]
    Files(#[from] io::Error),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Brings files and store together.
pub(super) fn reconcile(state: &Path, store: &Store) -> Result<(), KeptError> {
    for (n, line) in merge(state, store.audit()?)? {
        store.append_audit(n, &line);
    }
    Ok(())
}

/// Lays the lines into the files that those lack; the lines that `kept` lacks.
fn merge(state: &Path, kept: Vec<Line>) -> io::Result<Vec<Line>> {
    let here = lines_of(state)?;
    let Some((last_kept, _)) = kept.last() else {
        return Ok(here);
    };
    let last_here = here.last().map_or(0, |(n, _)| *n);
    let common = last_here.min(*last_kept);
    let of = |lines: &[Line]| lines.iter().find(|(n, _)| *n == common).cloned();
    // A line's link stands for all lines before it.
    let is_one_chain = of(&here).is_some() && of(&here) == of(&kept);
    match is_one_chain {
        true if last_here >= *last_kept => {
            Ok(here.into_iter().filter(|(n, _)| n > last_kept).collect())
        }
        true => {
            let missing = kept.into_iter().filter(|(n, _)| *n > last_here);
            lines_to(state, FILE, missing)?;
            Ok(Vec::new())
        }
        false => {
            if last_here > 0 {
                set_apart(state)?;
            }
            // A log whose beginning is not kept any more is not taken for a whole one.
            let is_whole = kept.first().is_some_and(|(n, _)| *n == 1);
            let file = match is_whole {
                true => FILE.to_owned(),
                false => older_file(2),
            };
            lines_to(state, &file, kept.into_iter())?;
            Ok(Vec::new())
        }
    }
}

/// The log of this machine has lines that are in nobody else's: they are kept beside it.
fn set_apart(state: &Path) -> io::Result<()> {
    let mut free = 1;
    let apart = |n: u64| state.join(format!("audit.apart-{n}"));
    while apart(free).exists() {
        free += 1;
    }
    let folder = apart(free);
    std::fs::create_dir(&folder)?;
    tracing::warn!(
        "the audit log of this machine is not that of the job's log, as another controller went on: it is kept in {}",
        folder.display()
    );
    let files = older(state)?.into_iter().map(older_file);
    for name in files.chain([FILE.to_owned(), HEAD.to_owned()]) {
        match std::fs::rename(state.join(&name), folder.join(&name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
    }
    Ok(())
}

/// The number of a line of the chain.
pub(super) fn number_of(line: &[u8]) -> Option<u64> {
    Head::after(line).map(|head| head.n)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Audit;
    use super::*;
    use std::time::Duration;

    fn asked(audit: &Audit, what: &str) {
        let entry = audit.asked("uid 7", what, "").unwrap();
        audit.came_of(&entry, "done", "", Duration::ZERO).unwrap();
    }

    fn kept(store: &Store) -> Vec<Line> {
        store.audit().unwrap()
    }

    fn synced(store: &Store) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(store.sync()).unwrap();
    }

    #[test]
    fn another_machine_has_the_audit_log_and_goes_on_with_its_chain() {
        let temp = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = temp.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            folder
        };
        let (store, _) = Store::open(&folder("store")).unwrap();
        let first = Audit::open_kept(&folder("a"), &store).unwrap();
        asked(&first, "pause");
        synced(&store);
        let second = Audit::open_kept(&folder("b"), &store).unwrap();
        asked(&second, "resume");
        synced(&store);
        assert_eq!(lines_of(&folder("b")).unwrap(), kept(&store));
        assert_eq!(kept(&store).len(), 4);
        // The first one leads again: it lacks what was written since.
        let first = Audit::open_kept(&folder("a"), &store).unwrap();
        let (entries, _) = first.read(Default::default()).unwrap();
        let asked: Vec<&str> = entries.iter().map(|entry| &*entry.what).collect();
        assert_eq!(asked, ["pause", "pause", "resume", "resume"]);
        assert_eq!(lines_of(&folder("a")).unwrap(), kept(&store));
    }

    #[test]
    fn lines_of_a_leader_that_was_passed_by_are_kept_apart() {
        let temp = tempfile::tempdir().unwrap();
        let (mine, other) = (temp.path().join("a"), temp.path().join("b"));
        std::fs::create_dir_all(&mine).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        // Written where the log did not get it.
        asked(&Audit::open(&mine).unwrap(), "pause");
        let (store, _) = Store::open(&temp.path().join("store")).unwrap();
        asked(&Audit::open_kept(&other, &store).unwrap(), "stop");
        synced(&store);
        let audit = Audit::open_kept(&mine, &store).unwrap();
        let (entries, _) = audit.read(Default::default()).unwrap();
        assert!(entries.iter().all(|entry| entry.what == "stop"));
        let apart = std::fs::read_to_string(mine.join("audit.apart-1").join(FILE)).unwrap();
        assert!(apart.contains("pause"));
    }

    #[test]
    fn what_the_log_lacks_goes_there_at_the_next_start() {
        let temp = tempfile::tempdir().unwrap();
        let state = temp.path().join("a");
        std::fs::create_dir_all(&state).unwrap();
        asked(&Audit::open(&state).unwrap(), "pause");
        let (store, _) = Store::open(&temp.path().join("store")).unwrap();
        drop(Audit::open_kept(&state, &store).unwrap());
        synced(&store);
        assert_eq!(lines_of(&state).unwrap(), kept(&store));
        assert_eq!(kept(&store).len(), 2);
    }
}
