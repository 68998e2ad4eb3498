//! An authority that a site makes for its daemons, where nothing else on its machines certifies them (see [`Outside`]).
//!
//! ```text
//!  robustctl ca init DIR ──► DIR/ca.key, DIR/ca.crt
//!  robustctl ca issue ─────► a daemon's tls.crt, tls.key, and ca.crt beside them ──► robustd --certificate --key --authority
//! ```
//! [`Outside`]: crate::Outside

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use webpki::EndEntityCert;

use crate::{DaemonName, IdentityError, Term};

/// What all of them are called: who certified is found by the key.
const NAME: &str = "RobustRL authority of a site";

/// The authority, with its key.
pub struct SiteAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// An authority cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// What was read is no key, or no certificate.
    #[error("{what} cannot be read: {why}")]
    Unreadable {
        /// The key or the certificate.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// The certificate is of another key.
    #[error("the certificate is not of this key")]
    OtherKey,
}

impl SiteAuthority {
    /// A new one, and its key in PEM.
    pub fn new(term: Term) -> Result<(Self, String), IdentityError> {
        let key = KeyPair::generate()?;
        let pem = key.serialize_pem();
        let mut params = params();
        (params.not_before, params.not_after) = term.dates();
        let certificate = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        let made = Self {
            issuer,
            certificate,
        };
        Ok((made, pem))
    }

    /// One that was made before, of its certificate and its key in PEM.
    pub fn read(certificate: &str, key: &str) -> Result<Self, SiteError> {
        let unreadable =
            |what: &'static str| move |why: String| SiteError::Unreadable { what, why };
        let key = KeyPair::from_pem(key).map_err(|e| unreadable("the key")(e.to_string()))?;
        let its = CertificateDer::from_pem_slice(certificate.as_bytes());
        let its = its.map_err(|e| unreadable("the certificate")(e.to_string()))?;
        let its = EndEntityCert::try_from(&its);
        let its = its.map_err(|e| unreadable("the certificate")(e.to_string()))?;
        if *its.subject_public_key_info() != *key.subject_public_key_info() {
            return Err(SiteError::OtherKey);
        }
        Ok(Self {
            issuer: Issuer::new(params(), key),
            certificate: certificate.to_owned(),
        })
    }

    /// Its certificate in PEM, by which daemons believe those whom it certified.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate for a daemon of this name, and a new key, both in PEM.
    pub fn issue(
        &self,
        daemon: &DaemonName,
        term: Term,
    ) -> Result<(String, String), IdentityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        let uri = daemon.to_string();
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into()?)];
        params.distinguished_name = Default::default();
        params.distinguished_name.push(DnType::CommonName, uri);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        (params.not_before, params.not_after) = term.dates();
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok((certificate, key.serialize_pem()))
    }
}

impl std::fmt::Debug for SiteAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SiteAuthority").finish_non_exhaustive()
    }
}

fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name = Default::default();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    #[test]
    fn one_that_is_read_again_is_the_same_and_a_key_of_another_is_refused() {
        let (one, key) = SiteAuthority::new(Term::unbounded()).unwrap();
        let (other, _) = SiteAuthority::new(Term::unbounded()).unwrap();
        let again = SiteAuthority::read(one.certificate(), &key).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now_ms = u64::try_from(now.as_millis()).unwrap();
        let name = DaemonName::of("robust://demo/node/b").unwrap();
        let term = Term::of(now_ms, Duration::from_secs(60));
        let (certificate, own) = again.issue(&name, term).unwrap();
        let daemon = crate::Outside::of(&certificate, &own, one.certificate()).unwrap();
        assert_eq!(*daemon.name(), name);
        let refused = SiteAuthority::read(other.certificate(), &key).unwrap_err();
        assert!(matches!(refused, SiteError::OtherKey), "{refused}");
        for (certificate, key) in [("no", key.as_str()), (one.certificate(), "no")] {
            let refused = SiteAuthority::read(certificate, key).unwrap_err();
            assert!(refused.to_string().contains("cannot be read"), "{refused}");
        }
    }
}
