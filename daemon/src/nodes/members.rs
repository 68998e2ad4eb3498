//! Who may become a node of the job, and who did.
//!
//! ```text
//!  a join token:   made ── enroll(key) ──► used, by this key alone ── its time is over ──► gone
//!                   └────────── taken back, or its time is over ───────────────────────────┘
//!  a node:         enrolled(fingerprint) ── enrolled again, by another key ──► enrolled(that one's)
//!                   │   └── it asks for another ──► both count ── it calls by the new one ──► enrolled(that one's)
//!                   └── taken back ──► unknown: its certificate opens nothing
//!  a name in a certificate from outside: taken ── taken back ──► refused ── a token is made for it ──► taken
//! ```
//! The shared token (`STATE/nodes.token`) is never used up; with it nobody takes a name over that is joined. All is
//! on disk before anybody is told of it, so that a leader that dies in between has forgotten nothing it said.
use super::authorities::Authorities;
use super::join_token::JoinToken;
use super::outside::OutsideFiles;
use super::proven::{Proof, Proven, TokenId};
use crate::random;
use crate::state::{Readers, StateDirError, read_private, write_private};
use robust_identity::{
    Answering, Fingerprint, Holders, IdentityError, NodeCertificate, OUTSIDE, ShownChain,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const VERSION: u32 = 1;
/// A token that nobody used by then is none.
pub const LONGEST_TTL_S: u64 = 30 * 24 * 3600;
/// Longest name and identity of a node, in bytes: they are shown and kept.
pub const LONGEST_NAME: usize = 64;
/// Tokens that may be used at a time.
const MOST_TOKENS: usize = 1024;

/// A token that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// By which it is taken back.
    pub id: String,
    /// It.
    pub token: JoinToken,
    /// Unix time.
    pub expires_ms: u64,
}

/// A node as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedNode {
    /// Its name.
    pub name: String,
    /// When it was enrolled, in Unix time.
    pub since_ms: u64,
    /// When the newest of its certificates is over, in Unix time; 0: made by an earlier build, it never is.
    pub until_ms: u64,
    /// Of the certificate that it used last.
    pub fingerprint: String,
    /// Which authority made that; empty: that of an earlier build.
    pub by: String,
}

impl ListedNode {
    /// Whether it may still come with a certificate by another authority than that of this name.
    pub fn waits_for(&self, authority: &str, now_ms: u64) -> bool {
        let is_over = self.until_ms != 0 && self.until_ms < now_ms;
        self.by != authority && !is_over
    }
}

/// A token as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// By which it is taken back.
    pub id: String,
    /// The only node it is good for.
    pub node: Option<String>,
    /// Unix time.
    pub expires_ms: u64,
    /// For which node it was used.
    pub used_by: Option<String>,
}

/// Why nobody is made a node, or nothing is changed.
#[derive(Debug, thiserror::Error)]
pub enum MembersError {
    /// The token is none any more.
    #[error(
        "this join token was taken back, or has expired; make one with `robustctl token create`"
    )]
    NoToken,
    /// Somebody was faster.
    #[error(
        "this join token was used by another machine; make one for each with `robustctl token create`"
    )]
    Used,
    /// It is for another node.
    #[error(
        "this join token is for node `{node}`, not for `{asked}`; start robustd with --name {node}, or make another"
    )]
    ForAnother {
        /// For whom.
        node: String,
        /// Who asked.
        asked: String,
    },
    /// The name is in use.
    #[error(
        "another node named `{name}` is joined; choose another name with --name, or make a token for it: \
         `robustctl token create --node {name}`"
    )]
    Taken {
        /// It.
        name: String,
    },
    /// There is no such token, or no such node.
    #[error("{what}; `robustctl token list` shows those that there are")]
    Unknown {
        /// What is not there.
        what: String,
    },
    /// A wish that is out of bounds.
    #[error("{0}")]
    Bounds(String),
    /// The key is none, or nothing can be certified.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It cannot be read or kept.
    #[error(transparent)]
    State(#[from] StateDirError),
    /// It is not what this program wrote.
    #[error("{path} cannot be read: {reason}; without it all nodes have to enroll anew")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// There is no random number.
    #[error("reading random numbers: {0}")]
    Random(#[from] std::io::Error),
}

/// The leader's list. Clones share it.
#[derive(Clone)]
pub struct Members(Arc<Inner>);

struct Inner {
    path: PathBuf,
    /// Who certifies nodes, and answers those that were certified.
    authorities: Authorities,
    /// The token that all may use: its name, and how its holders are answered.
    shared: Option<(String, Answering)>,
    /// The leader's own certificate from outside, by which nodes are answered that have one.
    outside: Option<OutsideFiles>,
    stored: Mutex<Stored>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    version: u32,
    tokens: Vec<Token>,
    nodes: BTreeMap<String, Node>,
    /// Names that are not taken from certificates from outside.
    #[serde(default)]
    refused: BTreeSet<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Token {
    id: String,
    text: String,
    node: Option<String>,
    expires_ms: u64,
    used: Option<Used>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Used {
    node: String,
    /// Of the key that was certified.
    key: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Node {
    fingerprint: String,
    since_ms: u64,
    /// 0: made by an earlier build, for ever.
    #[serde(default)]
    until_ms: u64,
    /// Which authority made it; empty: that of an earlier build, of the first secret.
    #[serde(default)]
    by: String,
    /// What it got last, and has not called by yet.
    #[serde(default)]
    next: Option<NextOfNode>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct NextOfNode {
    fingerprint: String,
    until_ms: u64,
    by: String,
}

impl Node {
    /// Whether the certificate of this fingerprint is one of its own and still good: a connection may outlive the one
    /// that opened it.
    fn has(&self, shown: &str, now_ms: u64) -> bool {
        // One of an earlier build has no end.
        let is_good = |until_ms: u64| until_ms == 0 || until_ms >= now_ms;
        let next = self.next.as_ref();
        (self.fingerprint == shown && is_good(self.until_ms))
            || next.is_some_and(|next| next.fingerprint == shown && is_good(next.until_ms))
    }

    /// Uses what it got last.
    fn take_next(&mut self) {
        if let Some(next) = self.next.take() {
            self.fingerprint = next.fingerprint;
            self.until_ms = next.until_ms;
            self.by = next.by;
        }
    }

    /// The end of the certificate that ends last.
    fn last_until_ms(&self) -> u64 {
        self.next
            .as_ref()
            .map_or(self.until_ms, |next| next.until_ms)
    }

    fn has_next(&self, shown: &str) -> bool {
        self.next.as_ref().is_some_and(|n| n.fingerprint == shown)
    }
}

impl Members {
    /// Those of this file. `shared`: the token that all may use, if there is one; `outside`: the leader's certificate from
    /// outside, likewise.
    pub fn open(
        path: &Path,
        authorities: &Authorities,
        shared: Option<&JoinToken>,
        outside: Option<OutsideFiles>,
    ) -> Result<Self, MembersError> {
        let unreadable = |reason: String| MembersError::Unreadable {
            path: path.to_owned(),
            reason,
        };
        let stored = match read_private(path, Readers::Owner)? {
            Some(text) => serde_json::from_str(&text).map_err(|e| unreadable(e.to_string()))?,
            None => Stored {
                version: VERSION,
                tokens: Vec::new(),
                nodes: BTreeMap::new(),
                refused: BTreeSet::new(),
            },
        };
        if stored.version > VERSION {
            return Err(unreadable(format!("it has version {}", stored.version)));
        }
        let shared = match shared {
            Some(token) => {
                let holders = token.holders()?;
                Some((holders.name().to_owned(), holders.answering()?))
            }
            None => None,
        };
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            authorities: authorities.clone(),
            shared,
            outside,
            stored: Mutex::new(stored),
        })))
    }

    /// What this node shows to other nodes, and by whom it knows them, in PEM.
    pub(super) fn certify_among_nodes(
        &self,
        name: &str,
        now_ms: u64,
    ) -> Result<String, IdentityError> {
        self.0.authorities.certify_among_nodes(name, now_ms)
    }

    /// How a caller is answered that calls the leader by this name, and what that will have proven of him. Whoever means nobody that there is is answered as a node, and refused by its authority.
    pub(super) fn answering(
        &self,
        name: &str,
        now_ms: u64,
    ) -> Result<(Answering, Proof), IdentityError> {
        if let Some(answering) = self.0.authorities.answering(name, now_ms) {
            return Ok((answering?, Proof::Certificate));
        }
        if let Some(outside) = self.0.outside.as_ref().filter(|_| name == OUTSIDE) {
            return Ok((outside.current().answering(), Proof::Outside));
        }
        if let Some((_, answering)) = self.0.shared.as_ref().filter(|(known, _)| known == name) {
            return Ok((answering.clone(), Proof::Token(TokenId::Shared)));
        }
        let stored = self.lock();
        let mut alive = stored.tokens.iter().filter(|t| t.expires_ms > now_ms);
        // Strangers have this done: no key is made but for a token that there is.
        let Some(token) = alive.find(|t| Holders::name_of(&t.text) == name) else {
            return Ok((self.0.authorities.refusing(now_ms)?, Proof::Certificate));
        };
        let holders = JoinToken::of(&token.text).holders()?;
        Ok((
            holders.answering()?,
            Proof::Token(TokenId::Single(token.id.clone())),
        ))
    }

    /// Who has the certificate of this fingerprint.
    pub fn node_of(&self, fingerprint: Fingerprint, now_ms: u64) -> Proven {
        let shown = fingerprint.to_string();
        let stored = self.lock();
        let mut known = stored.nodes.iter();
        let known = known.find(|(_, node)| node.has(&shown, now_ms));
        known.map_or(Proven::Former, |(name, _)| Proven::Node(name.clone()))
    }

    /// Who has shown this certificate from outside, as things are now.
    pub(super) fn node_outside(&self, shown: &ShownChain) -> Proven {
        let Some(outside) = &self.0.outside else {
            return Proven::Former;
        };
        let name = match outside.node_of(shown) {
            Ok(name) => name,
            Err(error) => return Proven::Refused(error.to_string()),
        };
        if name.len() > LONGEST_NAME {
            let text = format!("a node's name has 1 to {LONGEST_NAME} bytes");
            return Proven::Refused(text);
        }
        match self.lock().refused.contains(&name) {
            true => Proven::Refused(format!(
                "node `{name}` was taken back, and is refused whatever its certificate from outside; `robustctl token \
                 create --node {name}` where the leader runs lets it in again"
            )),
            false => Proven::Node(name),
        }
    }

    /// Whether the node of this fingerprint has called by it for the first time, so that the one before counts no more.
    pub(super) fn is_next(&self, fingerprint: Fingerprint) -> bool {
        let shown = fingerprint.to_string();
        self.lock().nodes.values().any(|node| node.has_next(&shown))
    }

    /// The node of this fingerprint has called by it: the certificate before opens nothing any more.
    pub(super) fn was_used(
        &self,
        fingerprint: Fingerprint,
        now_ms: u64,
    ) -> Result<(), MembersError> {
        let shown = fingerprint.to_string();
        let mut stored = self.lock();
        let mut next = stored.clone();
        let node = next.nodes.values_mut().find(|node| node.has_next(&shown));
        let Some(node) = node else {
            return Ok(());
        };
        node.take_next();
        self.keep(&mut stored, next, now_ms)
    }

    /// Certifies another key of a node, which has proven itself by the certificate `shown`. Until the node calls by the new
    /// one both count: it may die before it has it on disk, and asks again then.
    pub fn renew(
        &self,
        shown: Fingerprint,
        (name, key): (&str, &[u8]),
        now_ms: u64,
    ) -> Result<NodeCertificate, MembersError> {
        let shown = shown.to_string();
        let mut stored = self.lock();
        let mut next = stored.clone();
        let node = next.nodes.get_mut(name);
        let node = node.filter(|node| node.has(&shown, now_ms));
        let node = node.ok_or_else(|| MembersError::Unknown {
            what: format!("this is not the certificate of node `{name}`"),
        })?;
        let (certificate, by) = self.0.authorities.certify_node(key, name, now_ms)?;
        node.next = Some(NextOfNode {
            fingerprint: certificate.fingerprint.to_string(),
            until_ms: certificate.until_ms,
            by,
        });
        self.keep(&mut stored, next, now_ms)?;
        Ok(certificate)
    }

    /// Certifies a machine's key as the node of this name. `joined`: one of that name is joined now.
    pub fn enroll(
        &self,
        token: &TokenId,
        (name, key): (&str, &[u8]),
        joined: bool,
        now_ms: u64,
    ) -> Result<NodeCertificate, MembersError> {
        let mut stored = self.lock();
        let mut next = stored.clone();
        let user = Used {
            node: name.to_owned(),
            key: blake3::hash(key).to_hex().to_string(),
        };
        match token {
            TokenId::Shared if joined => {
                let name = name.to_owned();
                return Err(MembersError::Taken { name });
            }
            TokenId::Shared => {}
            TokenId::Single(id) => {
                let token = next.tokens.iter_mut();
                let mut token = token.filter(|t| t.id == *id && t.expires_ms > now_ms);
                let token = token.next().ok_or(MembersError::NoToken)?;
                if let Some(node) = token.node.clone().filter(|node| node != name) {
                    let asked = name.to_owned();
                    return Err(MembersError::ForAnother { node, asked });
                }
                match &token.used {
                    Some(used) if *used != user => return Err(MembersError::Used),
                    // Its answer was lost, not the question.
                    Some(_) => {}
                    None if joined && token.node.is_none() => {
                        let name = name.to_owned();
                        return Err(MembersError::Taken { name });
                    }
                    None => token.used = Some(user),
                }
            }
        }
        let (certificate, by) = self.0.authorities.certify_node(key, name, now_ms)?;
        let node = Node {
            fingerprint: certificate.fingerprint.to_string(),
            since_ms: now_ms,
            until_ms: certificate.until_ms,
            by,
            next: None,
        };
        next.nodes.insert(name.to_owned(), node);
        self.keep(&mut stored, next, now_ms)?;
        Ok(certificate)
    }

    /// Whether a node may still come that has no certificate by the authority of this name.
    pub fn wait_for(&self, authority: &str, now_ms: u64) -> bool {
        let nodes = self.list(now_ms).1;
        nodes.iter().any(|node| node.waits_for(authority, now_ms))
    }

    /// Takes back all certificates that are not by the authority of this name; the names of the nodes that have no other.
    pub fn keep_only(&self, authority: &str, now_ms: u64) -> Result<Vec<String>, MembersError> {
        let mut stored = self.lock();
        let mut next = stored.clone();
        for node in next.nodes.values_mut() {
            if node.next.as_ref().is_some_and(|next| next.by == authority) {
                node.take_next();
            }
        }
        let out = next.nodes.iter().filter(|(_, node)| node.by != authority);
        let out: Vec<String> = out.map(|(name, _)| name.clone()).collect();
        next.nodes.retain(|_, node| node.by == authority);
        self.keep(&mut stored, next, now_ms)?;
        Ok(out)
    }

    /// Makes a token for one machine.
    pub fn create(
        &self,
        node: Option<String>,
        ttl_s: u64,
        now_ms: u64,
    ) -> Result<Created, MembersError> {
        if !(1..=LONGEST_TTL_S).contains(&ttl_s) {
            let text = "a join token lives 1 second to 30 days";
            return Err(MembersError::Bounds(text.to_owned()));
        }
        let mut stored = self.lock();
        let mut next = stored.clone();
        next.tokens.retain(|t| t.expires_ms > now_ms);
        if next.tokens.len() >= MOST_TOKENS {
            let text = format!("there are {MOST_TOKENS} join tokens: take some back first");
            return Err(MembersError::Bounds(text));
        }
        let token = Token {
            id: random::hex::<4>()?,
            text: random::hex::<32>()?,
            node: node.clone(),
            expires_ms: now_ms + ttl_s * 1000,
            used: None,
        };
        let created = Created {
            id: token.id.clone(),
            token: JoinToken::of(&token.text),
            expires_ms: token.expires_ms,
        };
        next.tokens.push(token);
        // Whoever makes a token for a node wants it in the job.
        if let Some(name) = node {
            next.refused.remove(&name);
        }
        self.keep(&mut stored, next, now_ms)?;
        Ok(created)
    }

    /// Takes a token back.
    pub fn revoke_token(&self, id: &str, now_ms: u64) -> Result<(), MembersError> {
        let mut stored = self.lock();
        let mut next = stored.clone();
        next.tokens.retain(|t| t.id != id);
        if next.tokens.len() == stored.tokens.len() {
            let what = format!("there is no join token {id}");
            return Err(MembersError::Unknown { what });
        }
        self.keep(&mut stored, next, now_ms)
    }

    /// Takes a node's certificate back. Where nodes come with certificates from outside the name is refused in these, too:
    /// the leader does not know which there are.
    pub fn revoke_node(&self, name: &str, now_ms: u64) -> Result<(), MembersError> {
        if !(1..=LONGEST_NAME).contains(&name.len()) {
            let text = format!("a node's name has 1 to {LONGEST_NAME} bytes");
            return Err(MembersError::Bounds(text));
        }
        let mut stored = self.lock();
        let mut next = stored.clone();
        let enrolled = next.nodes.remove(name).is_some();
        if self.0.outside.is_some() {
            next.refused.insert(name.to_owned());
        } else if !enrolled {
            let what = format!("no node named `{name}` has a certificate");
            return Err(MembersError::Unknown { what });
        }
        // The token by which it had it would give it another one.
        let of_it = |t: &Token| t.used.as_ref().is_some_and(|used| used.node == name);
        next.tokens.retain(|t| !of_it(t));
        self.keep(&mut stored, next, now_ms)
    }

    /// The tokens that are not over, and the nodes.
    pub fn list(&self, now_ms: u64) -> (Vec<Listed>, Vec<ListedNode>) {
        let stored = self.lock();
        let alive = stored.tokens.iter().filter(|t| t.expires_ms > now_ms);
        let tokens = alive.map(|t| Listed {
            id: t.id.clone(),
            node: t.node.clone(),
            expires_ms: t.expires_ms,
            used_by: t.used.as_ref().map(|used| used.node.clone()),
        });
        let nodes = stored.nodes.iter().map(|(name, node)| ListedNode {
            name: name.clone(),
            since_ms: node.since_ms,
            until_ms: node.last_until_ms(),
            fingerprint: node.fingerprint.clone(),
            by: node.by.clone(),
        });
        (tokens.collect(), nodes.collect())
    }

    /// On disk first: nothing is in force that a leader that is started again would not know.
    fn keep(&self, stored: &mut Stored, mut next: Stored, now_ms: u64) -> Result<(), MembersError> {
        next.tokens.retain(|t| t.expires_ms > now_ms);
        let unwritable = |e: serde_json::Error| MembersError::Unreadable {
            path: self.0.path.clone(),
            reason: e.to_string(),
        };
        let text = serde_json::to_vec_pretty(&next).map_err(unwritable)?;
        write_private(&self.0.path, &text)?;
        *stored = next;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Stored> {
        // What is in it is replaced as a whole, once it is written.
        self.0.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Members(..)")
    }
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
