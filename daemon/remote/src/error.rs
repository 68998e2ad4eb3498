//! Why an object store could not be used.
use object_store::path::Path as Key;
use std::io;
use std::path::{Path, PathBuf};

/// Why an object store could not be used.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The address is none, or none that is known.
    #[error("`{url}` cannot be used as an object store: {reason}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The store refused, or cannot be reached.
    #[error("cannot {doing} {key}: {}", told(source))]
    Store {
        /// What was being done.
        doing: &'static str,
        /// With which object.
        key: String,
        /// The store's words.
        source: object_store::Error,
    },
    /// A local file.
    #[error("cannot {doing} {path}: {source}")]
    Local {
        /// What was being done.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// What is there, or was read, is not what a manifest says.
    #[error("{what}: {reason}")]
    Bad {
        /// The object or file.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A client's error names its cause only in its sources.
fn told(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

impl RemoteError {
    pub(crate) fn store(doing: &'static str, key: &Key) -> impl Fn(object_store::Error) -> Self {
        let key = key.to_string();
        move |source| Self::Store {
            doing,
            key: key.clone(),
            source,
        }
    }

    pub(crate) fn local(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Local {
            doing,
            path: path.clone(),
            source,
        }
    }

    pub(crate) fn bad(what: impl ToString, reason: impl Into<String>) -> Self {
        let (what, reason) = (what.to_string(), reason.into());
        Self::Bad { what, reason }
    }
}
