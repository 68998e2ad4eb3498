//! The files of a certificate that somebody else makes and makes anew, such as cert-manager or spiffe-helper.
//!
//! ```text
//!  --certificate, --key, --authority ── read with the start ──► in use ◄── a connection begins, and they are as they were
//!                                                                 ▲ │
//!             whole, and of the same daemon ─── read again ───────┘ └── they changed
//!             torn, or another daemon's: a warning, and what was in use stays
//! ```
use super::unix_ms;
use crate::logging::Seldom;
use robust_identity::{DaemonKind, DaemonName, Outside, OutsideError, ShownChain};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Others than the owner and his group.
const OTHERS: u32 = 0o007;

/// Where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsidePaths {
    /// The daemon's certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities that stand for the job's other daemons.
    pub authority: PathBuf,
}

/// Why they cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutsideFilesError {
    /// One cannot be read.
    #[error("{option} {path}: {source}; name a file in PEM that robustd can read")]
    Unreadable {
        /// Which.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The key is everybody's.
    #[error(
        "--key {path}: everybody on this machine may use it (mode {mode:03o}); `chmod o= {path}`, in Kubernetes \
         `defaultMode: 0440` of the volume and `fsGroup` of the pod"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// What is in them is of no use.
    #[error("{paths}: {why}")]
    Unusable {
        /// The files.
        paths: Box<OutsidePaths>,
        /// Why.
        why: Box<OutsideError>,
    },
    /// They are a leader's on a node, or a node's on the leader.
    #[error(
        "--certificate {path} is that of `{found}`, and this daemon needs one whose name ends with {needed}"
    )]
    Kind {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// What is needed.
        needed: String,
    },
    /// They are another node's.
    #[error(
        "--certificate {path} is that of node `{certified}` (`{found}`), and this node joins as `{asked}`: start it with \
         --name {certified}, or have a certificate made for node/{asked}"
    )]
    Name {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// The name in it.
        certified: String,
        /// The name that is wished.
        asked: String,
    },
    /// They were another daemon's with the start.
    #[error(
        "--certificate {path} is that of `{found}` now, and this daemon was started as `{own}`"
    )]
    Another {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it was.
        own: String,
    },
}

/// What they held when they could be used last. Clones share it.
#[derive(Clone)]
pub struct OutsideFiles(Arc<Inner>);

struct Inner {
    paths: OutsidePaths,
    name: DaemonName,
    log: Seldom,
    now: Mutex<Held>,
}

struct Held {
    seen: [Seen; 3],
    outside: Arc<Outside>,
}

/// What changes with a file: also where it is a link to a link, as mounts of Kubernetes have them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    bytes: u64,
    inode: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

impl std::fmt::Display for OutsidePaths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [certificate, key, authority] = self
            .all()
            .map(|(option, path)| format!("{option} {}", path.display()));
        write!(f, "{certificate}, {key}, {authority}")
    }
}

impl OutsidePaths {
    fn all(&self) -> [(&'static str, &Path); 3] {
        [
            ("--certificate", &self.certificate),
            ("--key", &self.key),
            ("--authority", &self.authority),
        ]
    }

    fn seen(&self) -> Result<[Seen; 3], OutsideFilesError> {
        let [certificate, key, authority] = self.all().map(|(option, path)| seen(option, path));
        Ok([certificate?, key?, authority?])
    }

    fn read(&self) -> Result<Held, OutsideFilesError> {
        // Before they are read: what changes in between is read again.
        let seen = self.seen()?;
        let [certificate, key, authority] = self.all().map(|(option, path)| {
            let text = fs::read_to_string(path);
            text.map_err(|source| unreadable(option, path, source))
        });
        let outside = Outside::of(&certificate?, &key?, &authority?);
        let outside = outside.map_err(|why| OutsideFilesError::Unusable {
            paths: Box::new(self.clone()),
            why: Box::new(why),
        })?;
        let outside = Arc::new(outside);
        Ok(Held { seen, outside })
    }
}

impl OutsideFiles {
    /// Of the leader.
    pub fn of_leader(paths: OutsidePaths) -> Result<Self, OutsideFilesError> {
        Self::open(paths, DaemonKind::Control, "control/NAME")
    }

    /// Of a node, which joins by this name where it was told one.
    pub fn of_node(paths: OutsidePaths, asked: Option<&str>) -> Result<Self, OutsideFilesError> {
        let needed = format!("node/{}", asked.unwrap_or("NAME"));
        let files = Self::open(paths, DaemonKind::Node, &needed)?;
        match asked.filter(|asked| *asked != files.name()) {
            None => Ok(files),
            Some(asked) => Err(OutsideFilesError::Name {
                path: files.0.paths.certificate.clone(),
                found: files.0.name.to_string(),
                certified: files.name().to_owned(),
                asked: asked.to_owned(),
            }),
        }
    }

    fn open(
        paths: OutsidePaths,
        kind: DaemonKind,
        needed: &str,
    ) -> Result<Self, OutsideFilesError> {
        let held = paths.read()?;
        let name = held.outside.name().clone();
        if name.kind() != kind {
            return Err(OutsideFilesError::Kind {
                path: paths.certificate,
                found: name.to_string(),
                needed: needed.to_owned(),
            });
        }
        Ok(Self(Arc::new(Inner {
            paths,
            name,
            log: Seldom::default(),
            now: Mutex::new(held),
        })))
    }

    /// Which daemon the certificate is of.
    pub fn name(&self) -> &str {
        self.0.name.name()
    }

    /// What is in use from now on: what the files hold, if they can be used.
    pub fn current(&self) -> Arc<Outside> {
        // What is in it is replaced as a whole.
        let mut now = self.0.now.lock().unwrap_or_else(PoisonError::into_inner);
        match self.changed(&now.seen) {
            Ok(None) => {}
            Ok(Some(held)) => {
                tracing::info!(
                    "the certificate of {} was read again: {}",
                    self.0.name,
                    held.outside.fingerprint()
                );
                *now = held;
            }
            Err(error) => self
                .0
                .log
                .say(|| format!("the certificate that was read before stays in use: {error}")),
        }
        Arc::clone(&now.outside)
    }

    /// Which node has shown this to the leader.
    pub(super) fn node_of(&self, shown: &ShownChain) -> Result<String, OutsideError> {
        self.current().node_of(shown, unix_ms())
    }

    fn changed(&self, seen: &[Seen; 3]) -> Result<Option<Held>, OutsideFilesError> {
        let Inner { paths, name, .. } = &*self.0;
        if paths.seen()? == *seen {
            return Ok(None);
        }
        let held = paths.read()?;
        match held.outside.name() {
            same if same == name => Ok(Some(held)),
            found => Err(OutsideFilesError::Another {
                path: paths.certificate.clone(),
                found: found.to_string(),
                own: name.to_string(),
            }),
        }
    }
}

fn unreadable(option: &'static str, path: &Path, source: io::Error) -> OutsideFilesError {
    let path = path.to_owned();
    OutsideFilesError::Unreadable {
        option,
        path,
        source,
    }
}

fn seen(option: &'static str, path: &Path) -> Result<Seen, OutsideFilesError> {
    // Of what a link leads to: that of a link says nothing.
    let meta = fs::metadata(path).map_err(|source| unreadable(option, path, source))?;
    let mode = meta.mode() & 0o777;
    if option == "--key" && mode & OTHERS != 0 {
        let path = path.to_owned();
        return Err(OutsideFilesError::Open { path, mode });
    }
    Ok(Seen {
        bytes: meta.len(),
        inode: (meta.dev(), meta.ino()),
        modified: (meta.mtime(), meta.mtime_nsec()),
        changed: (meta.ctime(), meta.ctime_nsec()),
    })
}

impl std::fmt::Debug for OutsideFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OutsideFiles({}, ..)", self.0.name)
    }
}

#[cfg(test)]
#[path = "outside_tests.rs"]
mod tests;
