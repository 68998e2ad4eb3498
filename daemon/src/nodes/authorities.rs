//! The authorities over a job's nodes and roles, and how the leader's secret is replaced while the job runs.
//!
//! ```text
//!  alone ── rotate ──► trusting ──── every role that lives believes both ────► certifying
//!    ▲                 roles are certified by the one before                   roles are certified by the new one
//!    └──── every role and every node has a certificate by the new one, or nobody waits any more ────┘
//! ```
//! Roles trust first and are certified after that: no two of them refuse each other in between. Nodes call the leader by
//! the name of the authority that certified them, and get a certificate by the new one as soon as they are told.
//!
//! Which secret is in force is on disk: that of `authority.key`. Beside it `authority.before.key` has the one before for
//! as long as that is taken, too; where both are the same, the leader died before it replaced the first, and nothing was
//! begun. After a start in between all begins at `trusting` again, which costs a certificate each.
use super::authority::{JobSecret, JobToken};
use super::shown::Shown;
use crate::random;
use crate::state::{
    Readers, StateDir, StateDirError, read_private, remove_if_there, write_private,
};
use robust_identity::{
    Answering, Authority, EngineClient, Fingerprint, IdentityError, LIFE_OF_ROLE, MEMBER,
    NodeCertificate, Term,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A role that has not said that it took a certificate by then is sent another.
const AGAIN_MS: u64 = 10_000;

/// Why the leader's secret is not replaced.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// It is being replaced already.
    #[error(
        "the leader's secret is being replaced already; `robustctl ca show` says who is waited for, and `robustctl ca \
         rotate --now` waits no longer"
    )]
    UnderWay,
    /// Nobody is waited for.
    #[error("the leader's secret is not being replaced: begin with `robustctl ca rotate`")]
    NotUnderWay,
    /// A certificate cannot be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It cannot be read or kept.
    #[error(transparent)]
    State(#[from] StateDirError),
    /// There is no random number.
    #[error("reading random numbers: {0}")]
    Random(#[from] std::io::Error),
}

/// How far a rotation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// There is one authority, and no rotation.
    Alone,
    /// Roles learn to believe both.
    Trusting,
    /// Everybody gets a certificate by the new one.
    Certifying,
}

/// What a role has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// As it is shown, `rollout-1`.
    pub role: String,
    /// By which authority it is certified; empty: not known.
    pub by: String,
    /// Which ones it believes.
    pub believes: Vec<String>,
    /// When its certificate was made and when it is over, in Unix time.
    pub since_ms: u64,
    /// When it is over.
    pub until_ms: u64,
    fingerprint: String,
}

/// All there is to show.
#[derive(Clone, Debug)]
pub struct Shows {
    /// Of the authority in force.
    pub name: String,
    /// Of the one before, while it is taken too.
    pub before: Option<String>,
    /// How far the rotation is.
    pub stage: Stage,
    /// What roles have, by their incarnation, and whether the rotation waits for them.
    pub roles: Vec<(u64, Held, bool)>,
}

/// The leader's authorities. Clones share them.
#[derive(Clone)]
pub struct Authorities(Arc<Inner>);

struct Inner {
    key: PathBuf,
    before_key: PathBuf,
    token_file: PathBuf,
    job: String,
    /// What roles prove to each other: it is made of the secret with which the job began.
    token: JobToken,
    /// Knows engines by all authorities that there are.
    engines: EngineClient,
    now: Mutex<Now>,
}

struct Now {
    current: Made,
    before: Option<Made>,
    stage: Stage,
    roles: BTreeMap<u64, Role>,
    /// What nodes have for each other, by their names.
    among_nodes: BTreeMap<String, Held>,
}

#[derive(Default)]
struct Role {
    held: Held,
    /// What it was sent and has not said that it took, and when.
    sent: Option<(Held, u64)>,
}

/// What one secret makes.
#[derive(Clone)]
struct Made {
    secret: JobSecret,
    nodes: Arc<Shown>,
    roles: Arc<Authority>,
}

impl Made {
    fn of(secret: JobSecret, job: &str) -> Result<Self, IdentityError> {
        Ok(Self {
            nodes: Arc::new(Shown::of(secret.nodes()?)),
            roles: Arc::new(secret.roles(job)?),
            secret,
        })
    }

    /// What is shown of it: a digest that tells nothing else.
    fn name(&self) -> String {
        self.nodes.name().chars().take(16).collect()
    }
}

impl Now {
    /// Who certifies roles now.
    fn certifier(&self) -> &Made {
        match (&self.before, self.stage) {
            (Some(before), Stage::Trusting) => before,
            _ => &self.current,
        }
    }

    fn believed(&self) -> impl Iterator<Item = &Made> {
        [&self.current].into_iter().chain(&self.before)
    }

    fn names(&self) -> Vec<String> {
        self.believed().map(Made::name).collect()
    }

    /// Whether a role has what it is to have.
    fn is_up_to_date(&self, held: &Held, now_ms: u64) -> bool {
        held.by == self.certifier().name()
            && held.believes == self.names()
            && now_ms < Term::renewed_at(held.since_ms, held.until_ms)
    }

    /// Whether a rotation can go on as far as this role goes.
    fn waits_for(&self, held: &Held) -> bool {
        let believes = |made: &Made| held.believes.contains(&made.name());
        match self.stage {
            Stage::Alone => false,
            Stage::Trusting => !self.believed().all(believes),
            Stage::Certifying => held.by != self.current.name() || !believes(&self.current),
        }
    }

    /// A new certificate for `whose`, shown as `role`, and what it will have then.
    fn issue(&self, whose: &str, role: &str, now_ms: u64) -> Result<(String, Held), IdentityError> {
        let (certifier, term) = (self.certifier(), Term::of(now_ms, LIFE_OF_ROLE));
        let mut pem = certifier.roles.issue(whose, term)?;
        let others = self
            .believed()
            .filter(|made| made.name() != certifier.name());
        for other in others {
            pem += other.roles.certificate();
        }
        let held = Held {
            role: role.to_owned(),
            by: certifier.name(),
            believes: self.names(),
            since_ms: now_ms,
            until_ms: term.until_ms(),
            fingerprint: Fingerprint::of_pem(&pem)?.to_string(),
        };
        Ok((pem, held))
    }
}

impl Authorities {
    /// Of the leader that has this secret in force. `is_new`: no life of the job was before.
    pub fn open(
        state: &StateDir,
        secret: JobSecret,
        job: &str,
        is_new: bool,
    ) -> Result<Self, AuthoritiesError> {
        let (before_key, token_file) = (state.authority_before_key(), state.roles_token());
        if is_new {
            remove_if_there(&token_file)?;
        }
        let token = match read_private(&token_file, Readers::Owner)? {
            Some(text) => JobToken::of(text.trim()),
            None => secret.job_token(),
        };
        let before = read_private(&before_key, Readers::Owner)?;
        let before = before
            .map(|text| JobSecret::of(&text))
            .filter(|b| *b != secret);
        if before.is_none() {
            remove_if_there(&before_key)?;
        }
        let current = Made::of(secret, job)?;
        let before = before.map(|secret| Made::of(secret, job)).transpose()?;
        let now = Now {
            stage: match before {
                Some(_) => Stage::Trusting,
                None => Stage::Alone,
            },
            current,
            before,
            roles: BTreeMap::new(),
            among_nodes: BTreeMap::new(),
        };
        Ok(Self(Arc::new(Inner {
            key: state.authority_key(),
            before_key,
            token_file,
            job: job.to_owned(),
            token,
            engines: EngineClient::of(&certificates(&now))?,
            now: Mutex::new(now),
        })))
    }

    /// What roles prove to each other.
    pub fn job_token(&self) -> JobToken {
        self.0.token.clone()
    }

    /// How the leader asks engines of other machines.
    pub fn engine_client(&self) -> EngineClient {
        self.0.engines.clone()
    }

    /// Takes a new secret into use, beside the one that was in force until now. It is on disk before anybody is certified
    /// by it.
    pub fn rotate(&self) -> Result<(), AuthoritiesError> {
        let text = random::hex::<32>()?;
        let mut now = self.lock();
        if now.before.is_some() {
            return Err(AuthoritiesError::UnderWay);
        }
        let next = Made::of(JobSecret::of(&text), &self.0.job)?;
        let line = |text: &str| format!("{text}\n").into_bytes();
        write_private(&self.0.token_file, &line(self.0.token.reveal()))?;
        write_private(&self.0.before_key, &line(now.current.secret.reveal()))?;
        write_private(&self.0.key, &line(&text))?;
        now.before = Some(std::mem::replace(&mut now.current, next));
        now.stage = Stage::Trusting;
        tracing::warn!(
            "the leader's secret is new: {} is taken beside {} until everybody has a certificate by it",
            now.names().last().map_or("", String::as_str),
            now.current.name()
        );
        Ok(self.0.engines.believe(&certificates(&now))?)
    }

    /// Takes nobody any more whom the one before certified.
    pub fn drop_before(&self) -> Result<(), AuthoritiesError> {
        self.let_go(&mut self.lock())
    }

    /// Whether there is an authority before this one that can be dropped.
    pub fn is_being_replaced(&self) -> Result<(), AuthoritiesError> {
        match self.lock().before {
            Some(_) => Ok(()),
            None => Err(AuthoritiesError::NotUnderWay),
        }
    }

    fn let_go(&self, now: &mut Now) -> Result<(), AuthoritiesError> {
        if now.before.is_none() {
            return Err(AuthoritiesError::NotUnderWay);
        }
        remove_if_there(&self.0.before_key)?;
        now.before = None;
        now.stage = Stage::Alone;
        tracing::warn!(
            "the leader's secret before {} is worth nothing any more",
            now.current.name()
        );
        Ok(self.0.engines.believe(&certificates(now))?)
    }

    /// How those nodes are answered that call by this name: each by the authority that certified it. Nodes of an earlier
    /// build call all authorities by one name, and were certified by the oldest.
    pub(super) fn answering(
        &self,
        name: &str,
        now_ms: u64,
    ) -> Option<Result<Answering, IdentityError>> {
        let now = self.lock();
        let meant = match name == MEMBER {
            true => Some(now.before.as_ref().unwrap_or(&now.current)),
            false => now.believed().find(|made| made.nodes.name() == name),
        };
        let meant = meant.map(|made| Arc::clone(&made.nodes));
        drop(now);
        meant.map(|shown| shown.answering(now_ms))
    }

    /// How those are answered whom nobody knows: they are refused by the authority in force.
    pub(super) fn refusing(&self, now_ms: u64) -> Result<Answering, IdentityError> {
        let shown = Arc::clone(&self.lock().current.nodes);
        shown.answering(now_ms)
    }

    /// Certifies a node's key, and says by which authority.
    pub(super) fn certify_node(
        &self,
        key: &[u8],
        node: &str,
        now_ms: u64,
    ) -> Result<(NodeCertificate, String), IdentityError> {
        let current = self.lock().current.clone();
        let certificate = current.nodes.authority().certify(key, node, now_ms)?;
        Ok((certificate, current.name()))
    }

    /// By which name nodes call the authority in force.
    pub fn called(&self) -> String {
        self.lock().current.nodes.name().to_owned()
    }

    /// The name of the authority in force; it is what nodes are to be certified by.
    pub fn name(&self) -> String {
        self.lock().current.name()
    }

    /// Whether one takes the place of another.
    pub fn is_rotating(&self) -> bool {
        self.lock().before.is_some()
    }

    /// The certificate with which a life of a role begins.
    pub fn certify_role(
        &self,
        incarnation: u64,
        role: &str,
        now_ms: u64,
    ) -> Result<String, IdentityError> {
        let mut now = self.lock();
        let (pem, held) = now.issue(&of_role(incarnation), role, now_ms)?;
        let sent = None;
        now.roles.insert(incarnation, Role { held, sent });
        Ok(pem)
    }

    /// A role says which certificate it uses: with each link, and when it took another. One that nobody knows was given by
    /// an earlier life of this leader, and is replaced; an empty text is that of a role that can take no other.
    pub fn role_says(&self, incarnation: u64, fingerprint: &str) {
        let mut now = self.lock();
        let known = now.roles.entry(incarnation).or_default();
        let sent = known
            .sent
            .take_if(|(sent, _)| sent.fingerprint == fingerprint);
        if let Some((sent, _)) = sent {
            known.held = sent;
        } else if known.held.fingerprint != fingerprint {
            known.held = Held {
                role: std::mem::take(&mut known.held.role),
                fingerprint: fingerprint.to_owned(),
                ..Held::default()
            };
        }
    }

    /// Roles that are to be sent another certificate now.
    pub fn due(&self, now_ms: u64) -> Vec<u64> {
        let now = self.lock();
        let is_due = |role: &Role| {
            let able = !role.held.fingerprint.is_empty();
            let waits = role.sent.as_ref().is_some_and(|(sent, at_ms)| {
                now.is_up_to_date(sent, now_ms) && now_ms < at_ms + AGAIN_MS
            });
            able && !waits && !now.is_up_to_date(&role.held, now_ms)
        };
        let due = now.roles.iter().filter(|(_, role)| is_due(role));
        due.map(|(incarnation, _)| *incarnation).collect()
    }

    /// Another certificate for a role that lives.
    pub fn renew_role(&self, incarnation: u64, now_ms: u64) -> Result<String, IdentityError> {
        let mut now = self.lock();
        let known = now.roles.get(&incarnation);
        let role = known
            .map(|known| known.held.role.clone())
            .unwrap_or_default();
        let (pem, held) = now.issue(&of_role(incarnation), &role, now_ms)?;
        now.roles.entry(incarnation).or_default().sent = Some((held, now_ms));
        Ok(pem)
    }

    /// What this node shows to other nodes of the job from now on, and by whom it knows them.
    pub(super) fn certify_among_nodes(
        &self,
        node: &str,
        now_ms: u64,
    ) -> Result<String, IdentityError> {
        let mut now = self.lock();
        let (pem, held) = now.issue(&format!("node/{node}"), node, now_ms)?;
        now.among_nodes.insert(node.to_owned(), held);
        Ok(pem)
    }

    /// Nodes that are to have another certificate for each other, with it.
    pub fn renewed_among_nodes(&self, now_ms: u64) -> Result<Vec<(String, String)>, IdentityError> {
        let mut now = self.lock();
        let late = |(_, held): &(&String, &Held)| !now.is_up_to_date(held, now_ms);
        let due = now.among_nodes.iter().filter(late);
        let due: Vec<String> = due.map(|(node, _)| node.clone()).collect();
        let mut renewed = Vec::new();
        for node in due {
            let (pem, held) = now.issue(&format!("node/{node}"), &node, now_ms)?;
            now.among_nodes.insert(node.clone(), held);
            renewed.push((node, pem));
        }
        Ok(renewed)
    }

    /// Goes on with a rotation as far as these roles, which are all that live, by their incarnations, and the nodes let it.
    /// `nodes_wait`: there are nodes that have no certificate by the authority in force.
    pub fn settle(
        &self,
        living: &BTreeMap<u64, String>,
        nodes_wait: bool,
    ) -> Result<(), AuthoritiesError> {
        let mut now = self.lock();
        now.roles
            .retain(|incarnation, _| living.contains_key(incarnation));
        for (incarnation, name) in living {
            // One that has not said a word yet to this life of the leader is waited for.
            let role = now.roles.entry(*incarnation).or_default();
            role.held.role.clone_from(name);
        }
        let waits = now.roles.values().any(|role| now.waits_for(&role.held));
        match now.stage {
            Stage::Trusting if !waits => now.stage = Stage::Certifying,
            Stage::Certifying if !waits && !nodes_wait => self.let_go(&mut now)?,
            _ => {}
        }
        Ok(())
    }

    /// All there is to show.
    pub fn show(&self) -> Shows {
        let now = self.lock();
        let roles = now.roles.iter();
        let roles = roles.map(|(incarnation, role)| {
            let waits = now.waits_for(&role.held);
            (*incarnation, role.held.clone(), waits)
        });
        Shows {
            name: now.current.name(),
            before: now.before.as_ref().map(Made::name),
            stage: now.stage,
            roles: roles.collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        // A rotation writes first and then replaces as a whole.
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_role(incarnation: u64) -> String {
    format!("role/{incarnation}")
}

/// Those by which the leader knows roles, in PEM.
fn certificates(now: &Now) -> String {
    now.believed()
        .map(|made| made.roles.certificate())
        .collect()
}

impl std::fmt::Debug for Authorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authorities(..)")
    }
}

#[cfg(test)]
#[path = "authorities_tests.rs"]
mod tests;
