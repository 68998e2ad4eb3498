//! What a node proves to its leader: a key of its own, and what the leader made of it.
//!
//! ```text
//!  no key ── made ──► node-key.next.json ── enrolled by a join token ──► node-key.json ── joins with it from now on
//!                          ▲                                                  │
//!                          ├── half of its life is over: a new key, certified by what the one in use proves
//!                          └── the leader knows it no more, and there is a token: a new key
//! ```
//! A key is on disk before it is certified: asked again after a death in between, the leader gives the same answer. The
//! one in use stays until there is a better one: whoever refuses it takes nothing from this node. A node with a certificate
//! from outside shows that one alone, has no key made, and asks the leader for nothing.
use crate::nodes::{JoinToken, OutsideFiles};
use crate::state::{
    Readers, StateDir, StateDirError, read_private, remove_if_there, write_private,
};
use robust_identity::{Caller, IdentityError, NodeAuthority, NodeKey, Term};
use robust_proto::v1;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

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
         or a copy of the file `nodes.token` of its state directory; or a certificate from outside: --certificate, --key \
         and --authority"
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
    /// From when to when they are good, by the leader's clock, in Unix time; 0: an earlier build made them, for ever.
    #[serde(default)]
    since_ms: u64,
    #[serde(default)]
    until_ms: u64,
}

/// By which authority the leader wants this node to be certified.
#[derive(Debug, Default)]
struct Wanted {
    by: Option<String>,
    /// The same when a certificate was asked for last.
    asked: Option<String>,
}

/// The key of one node, and how it gets its certificate.
#[derive(Debug)]
pub(super) struct Credentials {
    state: StateDir,
    name: String,
    token: Option<JoinToken>,
    /// A certificate that others make, and make anew.
    outside: Option<OutsideFiles>,
    looks: Notify,
    wanted: Mutex<Wanted>,
}

impl Credentials {
    /// Of the node of this name. It has a certificate, or a token to ask for one with.
    pub fn new(
        state: StateDir,
        name: String,
        token: Option<JoinToken>,
    ) -> Result<Self, CredentialsError> {
        let credentials = Self {
            state,
            name,
            token,
            outside: None,
            looks: Notify::new(),
            wanted: Mutex::default(),
        };
        match (credentials.caller()?, &credentials.token) {
            (None, None) => Err(CredentialsError::NoToken),
            _ => Ok(credentials),
        }
    }

    /// Of a node with a certificate from outside.
    pub fn from_outside(state: StateDir, name: String, files: OutsideFiles) -> Self {
        Self {
            state,
            name,
            token: None,
            outside: Some(files),
            looks: Notify::new(),
            wanted: Mutex::default(),
        }
    }

    /// Whether the certificate is made by others.
    pub fn are_from_outside(&self) -> bool {
        self.outside.is_some()
    }

    /// With what it may ask for a certificate.
    pub fn token(&self) -> Option<&JoinToken> {
        self.token.as_ref()
    }

    /// How the leader is called, once there is a certificate.
    pub fn caller(&self) -> Result<Option<Caller>, CredentialsError> {
        if let Some(files) = &self.outside {
            return Ok(Some(files.current().caller()));
        }
        let Some(stored) = self.read(&self.state.node_key())? else {
            return Ok(None);
        };
        let key = NodeKey::from_pem(&stored.key)?;
        Ok(Some(key.caller(&stored.certificates)?))
    }

    /// The same at each connection, with the certificate that there is then.
    pub fn certified_caller(self: Arc<Self>) -> impl Fn() -> io::Result<Caller> + Send + Sync {
        move || {
            let caller = self.caller().map_err(io::Error::other)?;
            caller.ok_or_else(|| io::Error::other("this node has no certificate"))
        }
    }

    /// Whether the certificate is to be made anew at `now_ms`: half of its life is over, it has no end, or the leader wants
    /// one by another authority.
    pub fn is_renewed_at(&self, now_ms: u64) -> bool {
        if self.are_from_outside() {
            return false;
        }
        let stored = self.read(&self.state.node_key()).unwrap_or_default();
        let wanted = self.wanted().by.clone();
        stored.is_some_and(|stored| {
            let by = NodeAuthority::name_in(&stored.certificates).ok();
            let is_late = now_ms >= Term::renewed_at(stored.since_ms, stored.until_ms);
            is_late || wanted.is_some_and(|wanted| Some(wanted) != by)
        })
    }

    /// The leader wants this node to have a certificate by the authority of this name.
    pub fn renew_by(&self, authority: String) {
        self.wanted().by = Some(authority);
        self.look();
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There may be something to do about the certificate.
    pub fn look(&self) {
        self.looks.notify_one();
    }

    /// Until [`Self::look`] is called.
    pub async fn looked_at(&self) {
        self.looks.notified().await;
    }

    /// A key to be certified: the one that was not yet, or a new one.
    pub fn uncertified(&self) -> Result<NodeKey, CredentialsError> {
        let mut wanted = self.wanted();
        wanted.asked = wanted.by.clone();
        drop(wanted);
        let next = self.state.next_node_key();
        let in_use = self.read(&self.state.node_key())?;
        // The one in use lies there where the node died before it was removed.
        let is_new = |stored: &Stored| in_use.as_ref().is_none_or(|used| used.key != stored.key);
        if let Some(stored) = self.read(&next)?.filter(is_new) {
            return Ok(NodeKey::from_pem(&stored.key)?);
        }
        let key = NodeKey::new()?;
        self.write(&next, &key, &v1::EnrollReply::default())?;
        Ok(key)
    }

    /// What the leader made of that key.
    pub fn certified(
        &self,
        key: &NodeKey,
        reply: &v1::EnrollReply,
    ) -> Result<(), CredentialsError> {
        // What cannot be used replaces nothing.
        key.caller(&reply.certificates)?;
        self.write(&self.state.node_key(), key, reply)?;
        // By whichever authority it is: one that the leader has no more would be asked for again and again, each
        // time with another key. What it has said since then counts.
        let mut wanted = self.wanted();
        if wanted.by == wanted.asked {
            wanted.by = None;
        }
        drop(wanted);
        Ok(remove_if_there(&self.state.next_node_key())?)
    }

    /// What is for this name; what is for another, or is damaged, counts as not there.
    fn read(&self, path: &Path) -> Result<Option<Stored>, CredentialsError> {
        let text = read_private(path, Readers::Owner)?;
        let stored = text.and_then(|text| serde_json::from_str::<Stored>(&text).ok());
        Ok(stored.filter(|stored| stored.name == self.name))
    }

    fn write(
        &self,
        path: &Path,
        key: &NodeKey,
        reply: &v1::EnrollReply,
    ) -> Result<(), StateDirError> {
        let stored = serde_json::json!({
            "name": self.name,
            "key": key.pem(),
            "certificates": reply.certificates,
            "since_ms": reply.since_ms,
            "until_ms": reply.until_ms,
        });
        write_private(path, stored.to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(state: &StateDir, name: &str, token: bool) -> Result<Credentials, CredentialsError> {
        let token = token.then(|| JoinToken::of("token"));
        Credentials::new(state.clone(), name.to_owned(), token)
    }

    /// What a leader makes of a key at `now_ms`.
    fn reply(key: &NodeKey, now_ms: u64) -> v1::EnrollReply {
        let leader = NodeAuthority::of("secret").unwrap();
        let certificate = leader.certify(key.public(), "b", now_ms).unwrap();
        v1::EnrollReply {
            certificates: certificate.pem,
            since_ms: certificate.since_ms,
            until_ms: certificate.until_ms,
        }
    }

    #[test]
    fn a_certificate_is_made_anew_at_half_of_its_life_and_one_without_an_end_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::make(temp.path()).unwrap();
        let node = of(&state, "b", true).unwrap();
        assert!(!node.is_renewed_at(u64::MAX), "there is none");
        let (key, begun) = (node.uncertified().unwrap(), 1_800_000_000_000);
        let made = reply(&key, begun);
        node.certified(&key, &made).unwrap();
        let half = (made.until_ms - begun) / 2;
        assert!(!node.is_renewed_at(begun + half - 1));
        assert!(node.is_renewed_at(begun + half));
        // It asks, and dies: what it has is what it had, and it asks with the same key.
        let asked = node.uncertified().unwrap();
        let again = of(&state, "b", false).unwrap();
        assert!(again.caller().unwrap().is_some());
        assert!(again.is_renewed_at(begun + half));
        assert_eq!(again.uncertified().unwrap().public(), asked.public());
        again
            .certified(&asked, &reply(&asked, begun + half))
            .unwrap();
        assert!(!again.is_renewed_at(begun + half + 1));
        assert_ne!(again.uncertified().unwrap().public(), asked.public());
        let of_earlier = v1::EnrollReply {
            since_ms: 0,
            until_ms: 0,
            ..reply(&asked, begun)
        };
        again.certified(&asked, &of_earlier).unwrap();
        assert!(again.is_renewed_at(begun));
    }

    #[test]
    fn an_authority_that_the_leader_has_no_more_is_asked_for_once_with_one_key() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::make(temp.path()).unwrap();
        let node = of(&state, "b", true).unwrap();
        let (key, now_ms) = (node.uncertified().unwrap(), 1_800_000_000_000);
        node.certified(&key, &reply(&key, now_ms)).unwrap();
        assert!(!node.is_renewed_at(now_ms));
        // The leader names the authority that takes its place, and is then restored from before that.
        node.renew_by("another".to_owned());
        assert!(node.is_renewed_at(now_ms));
        let asked = node.uncertified().unwrap();
        assert_eq!(node.uncertified().unwrap().public(), asked.public());
        node.certified(&asked, &reply(&asked, now_ms)).unwrap();
        assert!(!node.is_renewed_at(now_ms));
        // What it says while it is asked is not forgotten.
        node.renew_by("another".to_owned());
        let asked = node.uncertified().unwrap();
        node.renew_by("a third".to_owned());
        node.certified(&asked, &reply(&asked, now_ms)).unwrap();
        assert!(node.is_renewed_at(now_ms));
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
        let nonsense = v1::EnrollReply {
            certificates: "nonsense".to_owned(),
            ..v1::EnrollReply::default()
        };
        assert!(again.certified(&key, &nonsense).is_err());
        again.certified(&key, &reply(&key, 0)).unwrap();
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
