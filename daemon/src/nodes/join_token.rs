//! What makes a node of a machine: a text that both sides prove to have, without saying it.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::strength::{MIN_BITS, worth_bits};
use robust_identity::{Holders, IdentityError};

/// A join token: `STATE/nodes.token`, a file of the user's, or one that `robustctl token create` made.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken(String);

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JoinTokenError {
    /// It cannot be read.
    #[error(
        "--token-file {path}: {source}; make one with `robustctl token create` where the leader runs, or copy the \
         file `nodes.token` of its state directory"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is too easily guessed.
    #[error(
        "--token-file {path}: it can be guessed, by its length and its characters it is worth {bits} bits, and \
         {MIN_BITS} are needed; make one with `(umask 077; head -c 32 /dev/urandom | base64 > {path})` and copy it \
         to every node"
    )]
    Weak {
        /// The file.
        path: PathBuf,
        /// What it is worth at most.
        bits: u32,
    },
}

impl JoinToken {
    /// Of the text in a token file.
    pub fn of(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Reads a token file.
    pub fn read(path: &Path) -> Result<Self, JoinTokenError> {
        let text = fs::read_to_string(path).map_err(|source| JoinTokenError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        match worth_bits(&text) {
            bits if bits < MIN_BITS => Err(JoinTokenError::Weak {
                path: path.to_owned(),
                bits,
            }),
            _ => Ok(Self::of(&text)),
        }
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Those who have it, and the leader that takes it.
    pub fn holders(&self) -> Result<Holders, IdentityError> {
        Holders::of(&self.0)
    }
}

impl std::fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinToken(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_that_can_be_guessed_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("token");
        assert!(matches!(
            JoinToken::read(&path),
            Err(JoinTokenError::Unreadable { .. })
        ));
        // Half of the bits, a phrase, and one character again and again.
        for (weak, worth) in [
            ("0123456789abcdef", 64),
            ("correct horse battery staple", 44),
            ("correcthorsebatterystaplecorrecthorse", 74),
            (&"ab".repeat(64), 0),
        ] {
            fs::write(&path, format!("{weak}\n")).unwrap();
            let error = JoinToken::read(&path).err().unwrap();
            assert!(
                matches!(error, JoinTokenError::Weak { bits, .. } if bits == worth),
                "{error}"
            );
            assert!(
                error.to_string().contains("head -c 32 /dev/urandom"),
                "{error}"
            );
        }
        for good in [
            "0123456789abcdef0123456789abcdef",
            "q9Zx0PlmVb3KtYw7RcSdEa",
            "hU8mFv1q2o3N5xw0m3Z5b9kq4w8rXcDwEo0lq6y7T1s=",
        ] {
            fs::write(&path, format!("{good}\n")).unwrap();
            JoinToken::read(&path).unwrap();
        }
    }
}
