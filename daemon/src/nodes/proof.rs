//! Both sides prove that they know the token, without saying it.
//!
//! ```text
//!  key = derive(token)        said = name, node's nonce, leader's nonce, run
//!  leader's proof = keyed(key, "leader", said)      node's proof = keyed(key, "node", said)
//!  session        = keyed(key, "session", said)
//! ```
//! It happens within TLS, for which both have proven themselves by what they derive of the same token; it names the node
//! and the run, and begins the session. Both nonces are fresh, so that neither proof can be used again; the labels differ, so that
//! neither side's proof can be given back to it as the other's.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::strength::{MIN_BITS, worth_bits};
use robust_identity::{Authority, Daemons, EngineKeys, IdentityError};

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
const CONTEXT: &str = "RobustRL 2026 node handshake version 1";

const WORKERS: &str = "RobustRL 2026 token of a job's roles version 1";
const AUTHORITY: &str = "RobustRL 2026 authority over a job's roles version 1";

/// The keys derived from a token file.
#[derive(Clone)]
pub struct Secret {
    /// Proven in the handshake of nodes.
    handshake: [u8; 32],
    /// Of which the certificates of daemons are made.
    daemons: [u8; 32],
    roles: JobToken,
}

/// What the roles of a job prove to each other before weights move, and what certifies them. Never shown:
/// a role finds the one in its environment, which only its own user can read, and never sees the other.
#[derive(Clone)]
pub struct JobToken {
    token: Arc<str>,
    authority: [u8; 32],
}

impl JobToken {
    /// As a role's environment has it.
    pub fn reveal(&self) -> &str {
        &self.token
    }

    /// What requests to the job's engines show: every role makes the same of its token.
    pub fn engines(&self) -> EngineKeys {
        EngineKeys::of(self.token.as_bytes())
    }

    /// Who certifies the roles of the job of this name: the same on all its nodes.
    pub fn authority(&self, job: &str) -> Result<Authority, IdentityError> {
        Authority::of(&self.authority, job)
    }
}

impl std::fmt::Debug for JobToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobToken(..)")
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be read.
    #[error(
        "--token-file {path}: {source}; copy the file `nodes.token` of the leader's state directory"
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

impl Secret {
    /// Of the text in a token file.
    pub fn of(token: &str) -> Self {
        let derive = |context| blake3::derive_key(context, token.trim().as_bytes());
        let roles = blake3::Hash::from(derive(WORKERS)).to_hex();
        Self {
            handshake: derive(CONTEXT),
            daemons: Daemons::key(token),
            roles: JobToken {
                token: roles.as_str().into(),
                authority: derive(AUTHORITY),
            },
        }
    }

    /// Who certifies this job's daemons to each other.
    pub fn daemons(&self) -> Result<Daemons, IdentityError> {
        Daemons::of(&self.daemons)
    }

    /// What roles on this machine are started with: the same on all nodes of the job.
    pub fn job_token(&self) -> JobToken {
        self.roles.clone()
    }

    /// Reads a token file.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let text = fs::read_to_string(path).map_err(|source| SecretError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        match worth_bits(&text) {
            bits if bits < MIN_BITS => Err(SecretError::Weak {
                path: path.to_owned(),
                bits,
            }),
            _ => Ok(Self::of(&text)),
        }
    }
}

/// A nonce nobody can foresee.
pub fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    crate::random::bytes()
}

/// Who proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The leader.
    Leader,
    /// The node.
    Node,
}

/// What both sides have heard of each other.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// The key.
    pub secret: Secret,
    /// The node's name.
    pub name: String,
    /// The node's nonce.
    pub node: [u8; NONCE_BYTES],
    /// The leader's nonce.
    pub leader: [u8; NONCE_BYTES],
    /// The job's life.
    pub run: String,
}

impl Handshake {
    /// A side's proof.
    pub fn proof(&self, side: Side) -> [u8; 32] {
        let label = match side {
            Side::Leader => "leader",
            Side::Node => "node",
        };
        *self.keyed(label).as_bytes()
    }

    /// Whether what was shown is that side's proof. The time taken tells nothing.
    pub fn proves(&self, side: Side, shown: &[u8]) -> bool {
        let shown: Result<[u8; 32], _> = shown.try_into();
        // Compared as hashes, which is without an early exit.
        shown.is_ok_and(|shown| blake3::Hash::from(shown) == blake3::Hash::from(self.proof(side)))
    }

    /// The key that the session's other calls show.
    pub fn session(&self) -> String {
        self.keyed("session").to_hex().to_string()
    }

    fn keyed(&self, label: &str) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret.handshake);
        let said = [
            label.as_bytes(),
            self.name.as_bytes(),
            &self.node,
            &self.leader,
            self.run.as_bytes(),
        ];
        for part in said {
            // With its length: no two sequences of parts may give the same bytes.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn handshake(token: &str) -> Handshake {
        Handshake {
            secret: Secret::of(token),
            name: "a".to_owned(),
            node: [1; NONCE_BYTES],
            leader: [2; NONCE_BYTES],
            run: "r".to_owned(),
        }
    }

    #[test]
    fn only_the_same_token_and_the_same_side_prove() {
        let ours = handshake("0123456789abcdef");
        let same = handshake("0123456789abcdef\n");
        assert!(ours.proves(Side::Leader, &same.proof(Side::Leader)));
        assert!(!ours.proves(Side::Leader, &same.proof(Side::Node)));
        let other = handshake("0123456789abcdee");
        assert!(!ours.proves(Side::Leader, &other.proof(Side::Leader)));
        assert!(!ours.proves(Side::Leader, b""));
        assert_ne!(ours.session(), other.session());
    }

    #[test]
    fn roles_of_one_token_file_share_a_token_that_is_shown_nowhere() {
        let (ours, copy) = (
            Secret::of("0123456789abcdef"),
            Secret::of("0123456789abcdef\n"),
        );
        assert_eq!(ours.job_token().reveal(), copy.job_token().reveal());
        let other = Secret::of("0123456789abcdee");
        assert_ne!(ours.job_token().reveal(), other.job_token().reveal());
        assert_eq!(format!("{:?}", ours.job_token()), "JobToken(..)");
    }

    #[test]
    fn a_proof_is_of_these_nonces_this_name_and_this_run() {
        let ours = handshake("0123456789abcdef");
        let shown = ours.proof(Side::Node);
        let differ: [fn(&mut Handshake); 4] = [
            |h| h.node = [9; NONCE_BYTES],
            |h| h.leader = [9; NONCE_BYTES],
            |h| h.name = "b".to_owned(),
            |h| h.run = "s".to_owned(),
        ];
        for change in differ {
            let mut other = ours.clone();
            change(&mut other);
            assert!(!other.proves(Side::Node, &shown));
        }
    }

    #[test]
    fn a_token_that_can_be_guessed_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("token");
        assert!(matches!(
            Secret::read(&path),
            Err(SecretError::Unreadable { .. })
        ));
        // Half of the bits, a phrase, and one character again and again.
        for (weak, worth) in [
            ("0123456789abcdef", 64),
            ("correct horse battery staple", 44),
            ("correcthorsebatterystaplecorrecthorse", 74),
            (&"ab".repeat(64), 0),
        ] {
            fs::write(&path, format!("{weak}\n")).unwrap();
            let error = Secret::read(&path).err().unwrap();
            assert!(
                matches!(error, SecretError::Weak { bits, .. } if bits == worth),
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
            Secret::read(&path).unwrap();
        }
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }
}
