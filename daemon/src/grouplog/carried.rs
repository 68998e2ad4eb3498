//! Files of the state directory without which another machine cannot go on: who the job is, and its secrets.
//!
//! They are few and small, and rarely change. Each is replaced by a rename, so the folder's own time tells whether one
//! may have changed.
use crate::state::StateDir;
use robust_grouplog::{Seal, SealError};
use rustix::fs::{StatxFlags, statx};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What a file's contents begin with as they are kept: plain, or sealed.
const PLAIN: u8 = 0;
const SEALED: u8 = 1;
/// Times of files move in steps of some milliseconds: what changed so recently may change again unseen.
const RECENT: Duration = Duration::from_millis(50);
/// A file larger than this is none of those.
const MOST_BYTES: u64 = 4 << 20;

/// The files that go along with the log, and what is known of them there.
pub struct Carried {
    root: PathBuf,
    seal: Option<Seal>,
    seen: Option<SystemTime>,
    known: BTreeMap<String, blake3::Hash>,
}

/// Whether a file says who the job is, what it is made of, or whom no controller may answer any more: it goes along in any
/// case.
fn is_open(name: &str) -> bool {
    let revision = name
        .strip_prefix("job.")
        .and_then(|n| n.strip_suffix(".json"));
    let is_revision = revision.is_some_and(|n| n.parse::<u32>().is_ok());
    matches!(name, "run" | "job.json" | "files.json" | "persons.revoked") || is_revision
}

/// Whether it is a secret, or says who has one, or has none any more: it is sealed where there is something to seal it with.
fn is_secret(name: &str) -> bool {
    matches!(
        name,
        "authority.key"
            | "authority.before.key"
            | "roles.token"
            | "joins.json"
            | "persons.revoked"
            | "nodes.token"
            | "token"
            | "router.key"
            | "clients.key"
            | "clients.pem"
            | "metrics.key"
            | "engines.key"
    )
}

impl Carried {
    /// Of a state directory. Secrets go along only where there is something to seal them with.
    /// `there` has the names of those that the store has.
    pub fn new(state: &StateDir, seal: Option<Seal>, there: Vec<String>) -> Self {
        Self {
            root: state.root().to_owned(),
            seal,
            seen: None,
            // What they hold is not known here: those that are there go along once more.
            known: there
                .into_iter()
                .map(|name| (name, blake3::Hash::from([0; 32])))
                .collect(),
        }
    }

    /// The files that changed since this was asked last, as they are kept; none for one that is gone.
    pub fn changed(&mut self) -> Vec<(String, Option<Vec<u8>>)> {
        let modified = modified(&self.root);
        if modified.is_some() && modified == self.seen {
            return Vec::new();
        }
        let is_recent = |at: SystemTime| at.elapsed().is_ok_and(|age| age < RECENT);
        let found = self.found();
        self.seen = modified.filter(|at| !is_recent(*at));
        let gone: Vec<String> = self
            .known
            .keys()
            .filter(|name| !found.contains_key(*name))
            .cloned()
            .collect();
        let mut changes = Vec::new();
        for name in gone {
            self.known.remove(&name);
            changes.push((name, None));
        }
        for (name, contents) in found {
            let digest = blake3::hash(&contents);
            if self.known.get(&name) == Some(&digest) {
                continue;
            }
            match self.kept(&name, &contents) {
                Ok(kept) => {
                    self.known.insert(name.clone(), digest);
                    changes.push((name, Some(kept)));
                }
                Err(error) => tracing::error!("{name} does not go into the job's log: {error}"),
            }
        }
        changes
    }

    fn kept(&self, name: &str, contents: &[u8]) -> Result<Vec<u8>, SealError> {
        Ok(match &self.seal {
            Some(seal) if is_secret(name) => [&[SEALED], &seal.close(name, contents)?[..]].concat(),
            _ => [&[PLAIN], contents].concat(),
        })
    }

    /// What the log has of them is not known any more: all of them go along with the next group.
    pub(super) fn again(&mut self) {
        for digest in self.known.values_mut() {
            *digest = blake3::Hash::from([0; 32]);
        }
        self.seen = None;
    }

    fn found(&self) -> BTreeMap<String, Vec<u8>> {
        let names = carried_in(&self.root, self.seal.is_some()).into_iter();
        // One that is gone between is found gone the next time.
        let read = |name: String| Some((name.clone(), std::fs::read(self.root.join(name)).ok()?));
        names.filter_map(read).collect()
    }
}

/// The names of the files in a state directory that go along; with secrets or without.
pub(super) fn carried_in(root: &Path, with_secrets: bool) -> Vec<String> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let wanted = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let wanted = is_open(&name) || with_secrets && is_secret(&name);
        let small = |m: std::fs::Metadata| m.is_file() && m.len() <= MOST_BYTES;
        (wanted && entry.metadata().is_ok_and(small)).then_some(name)
    });
    wanted.collect()
}

fn modified(root: &Path) -> Option<SystemTime> {
    let found = statx(
        rustix::fs::CWD,
        root,
        rustix::fs::AtFlags::empty(),
        StatxFlags::MTIME,
    );
    let at = found.ok()?.stx_mtime;
    let since = Duration::new(u64::try_from(at.tv_sec).ok()?, at.tv_nsec);
    Some(SystemTime::UNIX_EPOCH + since)
}

/// A file as it was before it was kept; none for one of this kind that there is nothing to open with.
pub(super) fn opened(
    name: &str,
    kept: &[u8],
    seal: Option<&Seal>,
) -> Result<Option<Vec<u8>>, SealError> {
    if !is_open(name) && !is_secret(name) {
        return Ok(None);
    }
    match (kept.split_first(), seal) {
        // Whoever can write to the log and has no secret makes none. What goes along in any case is plain in a log from before
        // a secret was named.
        (Some((&PLAIN, _)), Some(_)) if is_secret(name) && !is_open(name) => {
            Err(SealError::Other {
                name: name.to_owned(),
            })
        }
        (Some((&PLAIN, contents)), _) => Ok(Some(contents.to_vec())),
        (Some((&SEALED, sealed)), Some(seal)) => seal.open(name, sealed).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::state::write_private;

    #[test]
    fn what_went_along_before_a_secret_was_named_opens_with_one_and_a_plain_secret_does_not() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::make(temp.path()).unwrap();
        let revoked = b"operator.alice.4000000000\n";
        write_private(&state.revoked_persons(), revoked).unwrap();
        let changed = Carried::new(&state, None, Vec::new()).changed();
        let (name, kept) = &changed[0];
        assert_eq!((changed.len(), name.as_str()), (1, "persons.revoked"));
        let seal = Seal::new(&[7; 32]).unwrap();
        let kept = kept.as_ref().unwrap();
        let found = opened(name, kept, Some(&seal)).unwrap();
        assert_eq!(found.as_deref(), Some(&revoked[..]));
        assert!(opened("token", kept, Some(&seal)).is_err());
    }
}
