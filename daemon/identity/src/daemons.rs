//! TLS 1.3 between the daemons of a job, and whoever else has its token.
//!
//! ```text
//!  the token ──derive──► authority of the job's daemons ──► a certificate for each process, never stored
//!
//!  Caller ── its certificate ──► Callee         each verifies the other's by its own copy of the authority,
//!         ◄── its certificate ──                before a byte of the protocol above is read
//! ```
//! Nothing has to be distributed but the token, which both have. Roles do not have it: what certifies them
//! is another authority.

use std::sync::Arc;

use crate::tls::{Callee, Caller, Certified};
use crate::{Authority, IdentityError, MEMBER};

const CONTEXT: &str = "RobustRL 2026 authority over a job's daemons version 1";

/// Certifies the daemons of a job.
#[derive(Debug)]
pub struct Daemons {
    authority: Authority,
}

impl Daemons {
    /// What is derived of the text of a token file for [`Daemons::of`].
    pub fn key(token: &str) -> [u8; 32] {
        blake3::derive_key(CONTEXT, token.trim().as_bytes())
    }

    /// Of the job whose token has this key. The same key gives the same authority.
    pub fn of(key: &[u8; 32]) -> Result<Self, IdentityError> {
        let authority = Authority::of(key, "daemons")?;
        Ok(Self { authority })
    }

    /// For a daemon that is called, named as `control`.
    pub fn callee(&self, whose: &str) -> Result<Callee, IdentityError> {
        let config = self.certify(whose)?.callee()?;
        Ok(Callee(Arc::new(config).into()))
    }

    /// For a process that calls one, named as `node/b`.
    pub fn caller(&self, whose: &str) -> Result<Caller, IdentityError> {
        self.certify(whose)?.caller(MEMBER.to_owned())
    }

    fn certify(&self, whose: &str) -> Result<Certified, IdentityError> {
        Certified::by(&self.authority, whose, MEMBER)
    }
}

#[cfg(test)]
mod tests;
