//! What the leader alone has: of it come the certificates of nodes and roles, and what roles prove to each other.
//!
//! ```text
//!  STATE/authority.key ──derive──┬─► NodeAuthority: certifies nodes, answers them
//!                                ├─► Authority of the roles: a certificate for each life, sent with its start
//!                                └─► JobToken: what roles prove to each other; nodes get it with their welcome
//! ```
//! It never leaves the leader's machine: a node that is broken into can speak for itself, and certify nobody.
use crate::random;
use crate::state::{Readers, StateDirError, read_private, write_private};
use robust_identity::{Authority, ClientsAuthority, EngineKeys, IdentityError, NodeAuthority};
use std::path::Path;
use std::sync::Arc;

const WORKERS: &str = "RobustRL 2026 token of a job's roles version 1";
const AUTHORITY: &str = "RobustRL 2026 authority over a job's roles version 1";

/// The leader's secret.
#[derive(Clone, PartialEq, Eq)]
pub struct JobSecret(Arc<str>);

/// What the roles of a job prove to each other before weights move, and what their engines' keys are made of. A role
/// finds it in its environment, which only its own user can read.
#[derive(Clone)]
pub struct JobToken(Arc<str>);

impl JobSecret {
    /// Of this text.
    pub fn of(text: &str) -> Self {
        Self(text.trim().into())
    }

    /// Reads it, or makes one that only its owner can read: a random one, or `known` as it was before there was a file.
    pub fn load_or_create(path: &Path, known: Option<&str>) -> Result<Self, StateDirError> {
        let stored = read_private(path, Readers::Owner)?;
        if let Some(text) = stored.filter(|text| !text.trim().is_empty()) {
            return Ok(Self::of(&text));
        }
        let text = match known {
            Some(known) => known.trim().to_owned(),
            None => random::hex::<32>().map_err(|source| StateDirError::Io {
                doing: "reading",
                path: random::SOURCE.into(),
                source,
            })?,
        };
        write_private(path, format!("{text}\n").as_bytes())?;
        Ok(Self::of(&text))
    }

    /// The text itself.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Who certifies this job's nodes.
    pub fn nodes(&self) -> Result<NodeAuthority, IdentityError> {
        NodeAuthority::of(&self.0)
    }

    /// Who certifies the roles of the job of this name.
    pub fn roles(&self, job: &str) -> Result<Authority, IdentityError> {
        Authority::of(&self.derive(AUTHORITY), job)
    }

    /// Who certifies what is served to programs that are not the job's.
    pub fn clients(&self) -> Result<ClientsAuthority, IdentityError> {
        ClientsAuthority::of(self.0.as_bytes())
    }

    /// What roles are started with: the same on all nodes of the job.
    pub fn job_token(&self) -> JobToken {
        let token = blake3::Hash::from(self.derive(WORKERS));
        JobToken::of(token.to_hex().as_str())
    }

    fn derive(&self, context: &str) -> [u8; 32] {
        blake3::derive_key(context, self.0.as_bytes())
    }
}

impl JobToken {
    /// As a leader told it.
    pub fn of(text: &str) -> Self {
        Self(text.into())
    }

    /// As a role's environment has it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What requests to the job's engines show: every role makes the same of its token.
    pub fn engines(&self) -> EngineKeys {
        EngineKeys::of(self.0.as_bytes())
    }
}

impl std::fmt::Debug for JobSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobSecret(..)")
    }
}

impl std::fmt::Debug for JobToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JobToken(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_is_made_once_and_one_that_was_known_before_goes_on() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("authority.key");
        let made = JobSecret::load_or_create(&path, None).unwrap();
        let again = JobSecret::load_or_create(&path, Some("another")).unwrap();
        assert_eq!(made.job_token().reveal(), again.job_token().reveal());
        std::fs::remove_file(&path).unwrap();
        let known = JobSecret::load_or_create(&path, Some("known\n")).unwrap();
        let expected = JobSecret::of("known").job_token();
        assert_eq!(known.job_token().reveal(), expected.reveal());
        assert_ne!(known.job_token().reveal(), made.job_token().reveal());
        assert_eq!(
            format!("{known:?} {expected:?}"),
            "JobSecret(..) JobToken(..)"
        );
    }
}
