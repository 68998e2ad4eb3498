//! The certificate that the leader shows to nodes, which it makes for itself.
use robust_identity::{Answering, IdentityError, LIFE_OF_NODE, NodeAuthority, Term};
use std::sync::{Mutex, PoisonError};

/// The leader before those that one authority certified.
pub(super) struct Shown {
    authority: NodeAuthority,
    /// What is shown now, and when that is to be made anew.
    now: Mutex<Option<(Answering, u64)>>,
}

impl Shown {
    /// By this authority; the certificate is made with the first call.
    pub fn of(authority: NodeAuthority) -> Self {
        let now = Mutex::default();
        Self { authority, now }
    }

    /// By which name nodes call that it certified.
    pub fn name(&self) -> &str {
        self.authority.name()
    }

    /// Who certifies nodes.
    pub fn authority(&self) -> &NodeAuthority {
        &self.authority
    }

    /// How its nodes are answered at `now_ms`. The certificate is made anew at half of its life, in memory alone.
    pub fn answering(&self, now_ms: u64) -> Result<Answering, IdentityError> {
        // What is in it is replaced as a whole.
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((answering, _)) = now.as_ref().filter(|(_, renewed_at)| now_ms < *renewed_at) {
            return Ok(answering.clone());
        }
        let answering = self.authority.answering(now_ms)?;
        let until_ms = Term::of(now_ms, LIFE_OF_NODE).until_ms();
        *now = Some((answering.clone(), Term::renewed_at(now_ms, until_ms)));
        Ok(answering)
    }
}
