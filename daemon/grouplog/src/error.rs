//! Why the log could not be used.
use object_store::path::Path as Key;

/// Why the log could not be written or read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The object store refused, or cannot be reached.
    #[error("cannot {doing} {key} of the log: {reason}")]
    Store {
        /// What was being done.
        doing: &'static str,
        /// With which object.
        key: String,
        /// The store's words.
        reason: String,
    },
    /// What was read is not what was written there.
    #[error("{key} of the log is damaged: {reason}")]
    Damaged {
        /// The object.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Somebody else wrote where only this controller writes.
    #[error(
        "{key} of the log was written by another controller: only one may run the job, and the log goes on with \
         whoever was started last"
    )]
    Taken {
        /// The object.
        key: String,
    },
    /// A group between two that are there is not.
    #[error(
        "the log has no group {number} before {until}: it cannot be read from its last base on"
    )]
    Gap {
        /// The group that is missing.
        number: u64,
        /// The one that names it.
        until: u64,
    },
    /// There is nothing to begin from.
    #[error("there is no complete base in the log below {root}")]
    NoBase {
        /// Where.
        root: String,
    },
}

impl LogError {
    /// Whether it may be otherwise in a moment: nobody can be reached.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Store { .. })
    }

    pub(crate) fn store(doing: &'static str, key: &Key) -> impl Fn(object_store::Error) -> Self {
        let key = key.to_string();
        move |source| Self::Store {
            doing,
            key: key.clone(),
            reason: told(&source),
        }
    }

    pub(crate) fn damaged(key: &Key, reason: impl Into<String>) -> Self {
        let (key, reason) = (key.to_string(), reason.into());
        Self::Damaged { key, reason }
    }
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
