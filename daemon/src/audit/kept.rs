//! The lines that went into the job's log as well, for whoever leads the job next.
//!
//! Where a job's writes go into a log ([`crate::grouplog`]), those of the audit log do, too. At the start of a controller
//! the files of its state directory are compared with that: they lack what other controllers wrote since, or they have
//! what the log lacks, as this machine was lost first.
use super::files::{cut_after, lines_of, lines_to, older};
use crate::store::{AUDIT_KEPT, Store, StoreError};
use robust_shared::audit::{FILE, Head, older_file};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Files of lines that only this machine has, at most.
const MOST_APART: usize = 8;

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

/// Lays the lines into the files that those lack; those of the last lines that `kept` lacks.
fn merge(state: &Path, kept: Vec<Line>) -> io::Result<Vec<Line>> {
    let most = usize::try_from(AUDIT_KEPT).unwrap_or(usize::MAX);
    let mut here = lines_of(state, most)?;
    here.drain(..here.len().saturating_sub(most));
    let Some((last_kept, _)) = kept.last().cloned() else {
        return Ok(here);
    };
    let kept: BTreeMap<u64, String> = kept.into_iter().collect();
    // A line's link stands for all lines before it.
    let common = here
        .iter()
        .rev()
        .find(|(n, line)| kept.get(n) == Some(line));
    let last_here = here.last().map_or(0, |(n, _)| *n);
    let last_common = common.map_or(0, |(n, _)| *n);
    if last_common > 0 && last_common == last_kept {
        return Ok(here
            .into_iter()
            .filter(|(n, _)| !kept.contains_key(n))
            .collect());
    }
    if last_common < last_here {
        set_apart(state, last_common)?;
    }
    let missing: Vec<Line> = kept.into_iter().filter(|(n, _)| *n > last_common).collect();
    // A log whose beginning is not kept any more is not taken for a whole one.
    let begins_late = last_common == 0 && missing.first().is_some_and(|(n, _)| *n > 1);
    let file = match begins_late && older(state)?.is_empty() {
        true => older_file(2),
        false => FILE.to_owned(),
    };
    lines_to(state, &file, missing.into_iter())?;
    Ok(Vec::new())
}

/// Lines of this machine's files that are not in the job's log, as another controller went on, are kept beside them.
fn set_apart(state: &Path, last_common: u64) -> io::Result<()> {
    let apart = apart(state)?;
    let number = apart.last().map_or(1, |(number, _)| number + 1);
    let name = format!("audit.apart-{number}.jsonl");
    let lines = cut_after(state, last_common)?;
    tracing::warn!(
        "{} lines of this machine's audit log are not in the job's log, as another controller went on: they are kept in {}",
        lines.len(),
        state.join(&name).display()
    );
    lines_to(state, &name, lines.into_iter())?;
    let surplus = (apart.len() + 1).saturating_sub(MOST_APART);
    for (_, path) in apart.into_iter().take(surplus) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// The files of such lines, in order.
fn apart(state: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(state)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| {
            let number = name.strip_prefix("audit.apart-")?.strip_suffix(".jsonl")?;
            number.parse().ok()
        });
        found.extend(number.map(|number| (number, entry.path())));
    }
    found.sort_unstable();
    Ok(found)
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
    use robust_shared::wire::AuditResult;
    use std::time::Duration;

    fn asked(audit: &Audit, what: &str) {
        let entry = audit.asked("uid 7", what, "").unwrap();
        audit
            .came_of(&entry, AuditResult::Done, "", Duration::ZERO)
            .unwrap();
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
        assert_eq!(lines_of(&folder("b"), 9).unwrap(), kept(&store));
        assert_eq!(kept(&store).len(), 4);
        // The first one leads again: it lacks what was written since.
        let first = Audit::open_kept(&folder("a"), &store).unwrap();
        let (entries, _) = first.read(Default::default()).unwrap();
        let asked: Vec<&str> = entries.iter().map(|entry| &*entry.what).collect();
        assert_eq!(asked, ["pause", "pause", "resume", "resume"]);
        assert_eq!(lines_of(&folder("a"), 9).unwrap(), kept(&store));
    }

    #[test]
    fn lines_of_a_leader_that_was_passed_by_are_kept_apart() {
        let temp = tempfile::tempdir().unwrap();
        let (mine, other) = (temp.path().join("a"), temp.path().join("b"));
        std::fs::create_dir_all(&mine).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(
            mine.join(FILE),
            "{\"id\":1,\"what\":\"of a build without a chain\"}\n",
        )
        .unwrap();
        // Written where the log did not get it.
        asked(&Audit::open(&mine).unwrap(), "pause");
        let (store, _) = Store::open(&temp.path().join("store")).unwrap();
        asked(&Audit::open_kept(&other, &store).unwrap(), "stop");
        synced(&store);
        let audit = Audit::open_kept(&mine, &store).unwrap();
        let (entries, _) = audit.read(Default::default()).unwrap();
        let said: Vec<&str> = entries.iter().map(|entry| &*entry.what).collect();
        assert_eq!(said, ["of a build without a chain", "stop", "stop"]);
        let apart = std::fs::read_to_string(mine.join("audit.apart-1.jsonl")).unwrap();
        assert!(apart.contains("pause"));
        assert_eq!(lines_of(&mine, 9).unwrap(), kept(&store));
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
        assert_eq!(lines_of(&state, 9).unwrap(), kept(&store));
        assert_eq!(kept(&store).len(), 2);
    }
}
