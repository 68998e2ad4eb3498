//! What a node proves to its leader: a key of its own, and what the leader made of it.
//!
//! ```text
//!  no key ── made ──► node-key.next.json ── enrolled by a join token ──► node-key.json ── joins with it from now on
//!                          ▲                                                  │
//!                          └── the leader knows it no more, and there is a token: a new key
//! ```
//! A key is on disk before it is certified: asked again after a death in between, the leader gives the same answer. The
//! one in use stays until there is a better one: whoever refuses it takes nothing from this node.
use crate::nodes::JoinToken;
use crate::state::{
    Readers, StateDir, StateDirError, read_private, remove_if_there, write_private,
};
use robust_identity::{Caller, IdentityError, NodeKey};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Why a node has nothing to prove.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be read or written.
    #[error(transparent)]
    State(#[from] StateDirError),
    /// A key or a certificate is none.
    #[error("{0}; remove node-key.json from the state directory, and enroll with --token-file")]
    Identity(#[from] IdentityError),
    /// Nobody is let in without.
    #[error(
        "--join needs --token-file the first time: a token that `robustctl token create` made where the leader runs, \
         or a copy of the file `nodes.token` of its state directory"
    )]
    NoToken,
}

/// What both files hold.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// For which name the key is.
    name: String,
    key: String,
    /// In PEM; empty: not certified yet.
    certificates: String,
}

/// The key of one node, and how it gets its certificate.
#[derive(Debug)]
pub(super) struct Credentials {
    state: StateDir,
    name: String,
    token: Option<JoinToken>,
}

impl Credentials {
    /// Of the node of this name. It has a certificate, or a token to ask for one with.
    pub fn new(
        state: StateDir,
        name: String,
        token: Option<JoinToken>,
    ) -> Result<Self, CredentialsError> {
        let credentials = Self { state, name, token };
        match (credentials.caller()?, &credentials.token) {
            (None, None) => Err(CredentialsError::NoToken),
            _ => Ok(credentials),
        }
    }

    /// With what it may ask for a certificate.
    pub fn token(&self) -> Option<&JoinToken> {
        self.token.as_ref()
    }

    /// How the leader is called, once there is a certificate.
    pub fn caller(&self) -> Result<Option<Caller>, CredentialsError> {
        let Some(stored) = self.read(&self.state.node_key())? else {
            return Ok(None);
        };
        let key = NodeKey::from_pem(&stored.key)?;
        Ok(Some(key.caller(&stored.certificates)?))
    }

    /// A key to be certified: the one that was not yet, or a new one.
    pub fn uncertified(&self) -> Result<NodeKey, CredentialsError> {
        let next = self.state.next_node_key();
        if let Some(stored) = self.read(&next)? {
            return Ok(NodeKey::from_pem(&stored.key)?);
        }
        let key = NodeKey::new()?;
        self.write(&next, &key, "")?;
        Ok(key)
    }

    /// What the leader made of that key.
    pub fn certified(&self, key: &NodeKey, certificates: &str) -> Result<(), CredentialsError> {
        // What cannot be used replaces nothing.
        key.caller(certificates)?;
        self.write(&self.state.node_key(), key, certificates)?;
        Ok(remove_if_there(&self.state.next_node_key())?)
    }

    /// What is for this name; what is for another, or is damaged, counts as not there.
    fn read(&self, path: &Path) -> Result<Option<Stored>, CredentialsError> {
        let text = read_private(path, Readers::Owner)?;
        let stored = text.and_then(|text| serde_json::from_str::<Stored>(&text).ok());
        Ok(stored.filter(|stored| stored.name == self.name))
    }

    fn write(&self, path: &Path, key: &NodeKey, certificates: &str) -> Result<(), StateDirError> {
        let stored = serde_json::json!({
            "name": self.name,
            "key": key.pem(),
            "certificates": certificates,
        });
        write_private(path, stored.to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_identity::NodeAuthority;

    fn of(state: &StateDir, name: &str, token: bool) -> Result<Credentials, CredentialsError> {
        let token = token.then(|| JoinToken::of("token"));
        Credentials::new(state.clone(), name.to_owned(), token)
    }

    #[test]
    fn a_node_asks_with_the_same_key_until_it_has_a_certificate_and_needs_no_token_then() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::make(temp.path()).unwrap();
        let refused = of(&state, "b", false).unwrap_err().to_string();
        assert!(refused.contains("robustctl token create"), "{refused}");
        let first = of(&state, "b", true).unwrap().uncertified().unwrap();
        let again = of(&state, "b", true).unwrap();
        let key = again.uncertified().unwrap();
        assert_eq!(first.public(), key.public());
        assert!(again.caller().unwrap().is_none());
        assert!(again.certified(&key, "nonsense").is_err());
        let leader = NodeAuthority::of("secret").unwrap();
        let certificate = leader.certify(key.public(), "b").unwrap();
        again.certified(&key, &certificate.pem).unwrap();
        let later = of(&state, "b", false).unwrap();
        assert!(later.caller().unwrap().is_some());
        // It is refused later on: another key, and the one in use stays where it is.
        assert_ne!(later.uncertified().unwrap().public(), key.public());
        assert!(later.caller().unwrap().is_some());
        assert!(
            of(&state, "c", false).is_err(),
            "another name is another node"
        );
    }
}
