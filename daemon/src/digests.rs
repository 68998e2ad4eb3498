//! Digests of files, known over a restart: those of a large model take minutes, and until then a node
//! that comes back is not admitted, or takes no order.
use crate::state::write_private;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A file that was changed so recently may be changed again at what its clock calls the same time.
const SETTLED: Duration = Duration::from_secs(2);

/// What is known, in a file of its own. A digest holds as long as its file's size, inode and time of
/// change stay.
#[derive(Clone, Debug)]
pub struct Digests {
    kept: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Known {
    seen: Seen,
    blake3: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    bytes: u64,
    inode: u64,
    /// Seconds and nanoseconds since 1970.
    changed: (i64, i64),
}

impl Seen {
    fn of(path: &Path) -> io::Result<Self> {
        let now = fs::metadata(path)?;
        Ok(Self {
            bytes: now.len(),
            inode: now.ino(),
            changed: (now.mtime(), now.mtime_nsec()),
        })
    }
}

impl Digests {
    /// Kept in this file, which need not be there.
    pub fn new(kept: PathBuf) -> Self {
        Self { kept }
    }

    /// A file's BLAKE3 and size; reads it, unless that is known.
    pub fn of(&self, path: &Path) -> io::Result<(blake3::Hash, u64)> {
        let seen = Seen::of(path)?;
        let same = |known: &Known| known.seen == seen;
        if let Some(known) = self.read().remove(path).filter(same)
            && let Ok(digest) = blake3::Hash::from_hex(&known.blake3)
        {
            return Ok((digest, seen.bytes));
        }
        let mut hasher = blake3::Hasher::new();
        let bytes = io::copy(&mut File::open(path)?, &mut hasher)?;
        let digest = hasher.finalize();
        if Seen::of(path)? == seen && is_settled(path)? {
            self.keep(path, seen, digest);
        }
        Ok((digest, bytes))
    }

    /// A file that was just written here, whole, and that nobody else writes.
    pub fn know(&self, path: &Path, digest: blake3::Hash) {
        if let Ok(seen) = Seen::of(path) {
            self.keep(path, seen, digest);
        }
    }

    /// One that cannot be read is made anew.
    fn read(&self) -> BTreeMap<PathBuf, Known> {
        let text = fs::read(&self.kept).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn keep(&self, path: &Path, seen: Seen, digest: blake3::Hash) {
        let mut all = self.read();
        all.retain(|path, _| path.exists());
        let blake3 = digest.to_hex().to_string();
        all.insert(path.to_owned(), Known { seen, blake3 });
        let text = serde_json::to_vec(&all).unwrap_or_default();
        if let Err(error) = write_private(&self.kept, &text) {
            tracing::debug!("a digest is computed again next time: {error}");
        }
    }
}

fn is_settled(path: &Path) -> io::Result<bool> {
    let changed = fs::metadata(path)?.modified()?;
    // A time to come is of a clock that is ahead: a change now would not have it.
    let away = match SystemTime::now().duration_since(changed) {
        Ok(age) => age,
        Err(ahead) => ahead.duration(),
    };
    Ok(away > SETTLED)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_is_read_again_only_when_it_changed() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("model");
        let hour = |hours: u64| SystemTime::now() - Duration::from_secs(3600 * hours);
        let (long_ago, later) = (hour(2), hour(1));
        let write = |bytes: &[u8], changed: SystemTime| {
            fs::write(&path, bytes).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(changed).unwrap();
        };
        let kept = temp.path().join("digests.json");
        let digest = |bytes: &[u8]| (blake3::hash(bytes), bytes.len() as u64);
        let of = || Digests::new(kept.clone()).of(&path).unwrap();
        write(b"one", long_ago);
        assert_eq!(of(), digest(b"one"));
        // Nobody can tell, so what comes out was not read.
        write(b"two", long_ago);
        assert_eq!(of(), digest(b"one"));
        write(b"two", later);
        assert_eq!(of(), digest(b"two"));
        write(b"three", later);
        assert_eq!(of(), digest(b"three"), "of another size");
        fs::write(&kept, "{damaged").unwrap();
        assert_eq!(of(), digest(b"three"));
        write(b"fresh", SystemTime::now());
        assert_eq!(of(), digest(b"fresh"));
        write(b"fresj", fs::metadata(&path).unwrap().modified().unwrap());
        assert_eq!(
            of(),
            digest(b"fresj"),
            "one that just changed is not trusted"
        );
        let to_come = SystemTime::now() + Duration::from_secs(3600);
        write(b"ahead", to_come);
        assert_eq!(of(), digest(b"ahead"));
        write(b"AHEAD", to_come);
        assert_eq!(
            of(),
            digest(b"ahead"),
            "of a server whose clock is ahead: known"
        );
        fs::remove_file(&path).unwrap();
        assert!(Digests::new(kept).of(&path).is_err());
    }
}
