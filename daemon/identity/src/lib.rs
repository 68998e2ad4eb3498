//! The authority of a job, and what it certifies.
//!
//! ```text
//!  the job's secret ──derive──► Authority ──issue("role/17")──► certificate, its key, the authority's
//!    (its leader alone has it)                                  certificate: one text in PEM, for one life
//! ```
//! The leader makes the same authority of the same secret after each start, and so goes on certifying. Nodes and
//! roles that were certified can certify nobody: they never see that secret. A certificate says what it is for in a
//! name of the form `robust://JOB/role/17`.

mod addresses;
mod between;
mod clients;
mod engines;
mod holders;
mod member;
mod nodes;
mod outside;
mod pem;
mod persons;
mod pooled;
mod site;
mod term;
mod tls;
mod verify;
mod web;

pub use addresses::network;
pub use between::Between;
pub use clients::ClientsAuthority;
pub use engines::{EngineKey, EngineKeys};
pub use holders::{Door, Holders};
pub use member::{Believed, Member};
pub use nodes::{Fingerprint, LIFE_OF_NODE, NodeAuthority, NodeCertificate, NodeKey};
pub use outside::{DaemonKind, DaemonName, OUTSIDE, Outside, OutsideError, ShownChain, misnamed};
pub use persons::{NoPerson, Person};
pub use pooled::Pooled;
pub use site::{SiteAuthority, SiteError};
pub use term::Term;
pub use tls::{Answering, Caller, Unsealed, answer_named, unsealed};
pub use web::{EngineClient, EngineServer, FIRST_BYTE};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType, SerialNumber,
};

/// How long the certificate of a life of a role is good.
pub const LIFE_OF_ROLE: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// The name that every member's certificate has; who calls a member checks that it is there.
pub const MEMBER: &str = "member.robust.internal";

const CONTEXT: &str = "RobustRL 2026 authority of a job version 1";
/// What comes before the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410, section 7).
const ED25519_PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Certifies the processes of one job.
pub struct Authority {
    job: String,
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, in PEM.
    certificate: String,
}

/// A certificate could not be made, or not be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// While it was made.
    #[error("making a certificate: {0}")]
    Made(#[from] rcgen::Error),
    /// While TLS was set up with it.
    #[error("setting up TLS: {0}")]
    Used(#[from] rustls::Error),
}

impl Authority {
    /// Of the job `job`, whose daemons share `secret`. The same arguments give the same authority.
    pub fn of(secret: &[u8], job: &str) -> Result<Authority, IdentityError> {
        let seed = blake3::derive_key(CONTEXT, secret);
        let key = [&ED25519_PKCS8[..], &seed].concat();
        let key = KeyPair::try_from(key)?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name = Default::default();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("authority of {job}"));
        params.serial_number = Some(SerialNumber::from(1));
        // The same for all daemons, and wide: it ends with the secret that it is made of.
        (params.not_before, params.not_after) = Term::unbounded().dates();
        let certificate = params.self_signed(&key)?.pem();
        Ok(Authority {
            job: job.to_owned(),
            issuer: Issuer::new(params, key),
            certificate,
        })
    }

    /// Its own certificate, in PEM: those whom it certified are known by it.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Certifies a new key for `whose`, such as `role/17`: certificate, key and the authority's
    /// certificate, in PEM.
    pub fn issue(&self, whose: &str, term: Term) -> Result<String, IdentityError> {
        self.issue_named((whose, MEMBER), term)
    }

    /// The same for `whose`, with another name than [`MEMBER`] that callers check.
    fn issue_named(&self, names: (&str, &str), term: Term) -> Result<String, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let certificates = self.certify(&key, names, term)?;
        Ok([certificates, key.serialize_pem()].concat())
    }

    /// Certifies a new key for a server of this process that clients call by these names and addresses.
    fn issue_server(
        &self,
        whose: &str,
        names: Vec<String>,
        term: Term,
    ) -> Result<String, IdentityError> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = self.params(whose, names, term)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // Strict clients look for it.
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok([certificate, self.certificate.clone(), key.serialize_pem()].concat())
    }

    /// Certifies a key that somebody else has: its certificate and the authority's, in PEM.
    fn certify(
        &self,
        key: &impl PublicKeyData,
        (whose, named): (&str, &str),
        term: Term,
    ) -> Result<String, IdentityError> {
        let params = self.params(whose, vec![named.to_owned()], term)?;
        let certificate = params.signed_by(key, &self.issuer)?;
        Ok([certificate.pem(), self.certificate.clone()].concat())
    }

    fn params(
        &self,
        whose: &str,
        names: Vec<String>,
        term: Term,
    ) -> Result<CertificateParams, IdentityError> {
        let name = format!("robust://{}/{whose}", self.job);
        let mut params = CertificateParams::new(names)?;
        params
            .subject_alt_names
            .push(SanType::URI(name.as_str().try_into()?));
        params.distinguished_name = Default::default();
        params.distinguished_name.push(DnType::CommonName, whose);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        (params.not_before, params.not_after) = term.dates();
        Ok(params)
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("job", &self.job)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_secret_makes_one_authority_and_another_another() {
        let certificate = |secret: &[u8]| Authority::of(secret, "demo").unwrap().certificate;
        assert_eq!(certificate(b"a"), certificate(b"a"));
        assert_ne!(certificate(b"a"), certificate(b"b"));
    }

    #[test]
    fn every_life_gets_a_key_of_its_own() {
        let authority = Authority::of(b"a", "demo").unwrap();
        let issued = || authority.issue("role/1", Term::unbounded()).unwrap();
        assert_ne!(issued(), issued());
    }

    #[test]
    fn neither_key_nor_secret_is_shown() {
        let shown = format!("{:?}", Authority::of(b"a", "demo").unwrap());
        assert_eq!(shown, "Authority { job: \"demo\", .. }");
    }
}
