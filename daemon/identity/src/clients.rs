//! TLS towards programs that are not the job's and have no certificate of it: they know the authority's, and show a key.
use std::time::Duration;

use crate::{Authority, EngineServer, IdentityError, Member, Term};

const CONTEXT: &str = "RobustRL 2026 authority towards clients of a job version 1";
/// Some libraries take no certificate of a server that is good for longer.
const LIFE: Duration = Duration::from_secs(825 * 24 * 3600);

/// Certifies what a daemon serves to clients. They keep its certificate, so it does not change with the job's secret.
#[derive(Debug)]
pub struct ClientsAuthority(Authority);

impl ClientsAuthority {
    /// Of the daemon that has this secret. The same secret gives the same authority.
    pub fn of(secret: &[u8]) -> Result<Self, IdentityError> {
        let key = blake3::derive_key(CONTEXT, secret);
        Ok(Self(Authority::of(&key, "clients")?))
    }

    /// Its certificate, in PEM: what clients are to believe.
    pub fn certificate(&self) -> &str {
        self.0.certificate()
    }

    /// How clients are answered that call the daemon by one of these names and addresses.
    pub fn server(&self, names: Vec<String>, now_ms: u64) -> Result<EngineServer, IdentityError> {
        let term = Term::of(now_ms, LIFE);
        let pem = self.0.issue_server("control", names, term)?;
        EngineServer::of(&Member::from_pem(&pem)?)
    }
}
