//! Who a process of a job is to the others of it, and whom it believes: both are replaced while the process lives.
//!
//! ```text
//!  own certificate, authorities' certificates, own key ── from_pem ──► Member ──► what every new connection shows
//!                                                       ── renew ─────►        ──► and by whom it knows others
//! ```
//! Who has open connections judges them again when [`Believed::renewals`] has changed. While the authority of a job is replaced a process believes those whom
//! either of the two certified.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DistinguishedName, RootCertStore, SignatureScheme};

use crate::pem::{certificates, key};
use crate::tls::refused_setting;
use crate::verify::signatures_by;
use crate::{Fingerprint, IdentityError, MEMBER};

/// A process of a job. Clones share what it is.
#[derive(Clone, Debug)]
pub struct Member {
    own: Arc<RwLock<Arc<CertifiedKey>>>,
    believed: Believed,
}

/// Whom a process believes to be of its job. Clones share it.
#[derive(Clone, Debug)]
pub struct Believed(Arc<Told>);

#[derive(Debug)]
struct Told {
    now: RwLock<Arc<Verifiers>>,
    renewals: AtomicU64,
}

#[derive(Debug)]
struct Verifiers {
    callees: Arc<WebPkiServerVerifier>,
    callers: Arc<dyn ClientCertVerifier>,
    member: ServerName<'static>,
}

/// What a text in PEM has: certificates, the process's own first where it has a key.
struct Parts {
    own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    authorities: Vec<CertificateDer<'static>>,
}

impl Parts {
    fn of(pem: &str) -> Result<Self, IdentityError> {
        let mut authorities = certificates(pem).map_err(refused_setting)?;
        let own = key(pem).ok().map(|key| (authorities.remove(0), key));
        match authorities.is_empty() {
            true => Err(refused_setting("no certificate of an authority")),
            false => Ok(Self { own, authorities }),
        }
    }
}

impl Member {
    /// Of a process's certificate, those of the authorities that it believes, and its key, in PEM.
    pub fn from_pem(pem: &str) -> Result<Self, IdentityError> {
        let Parts { own, authorities } = Parts::of(pem)?;
        Ok(Self {
            own: Arc::new(RwLock::new(Arc::new(certified(own)?))),
            believed: Believed::in_these(authorities)?,
        })
    }

    /// Is this from now on, for connections that begin then; what cannot be used replaces nothing.
    pub fn renew(&self, pem: &str) -> Result<(), IdentityError> {
        let Parts { own, authorities } = Parts::of(pem)?;
        let own = Arc::new(certified(own)?);
        self.believed.replace(authorities)?;
        // What is in it is replaced as a whole.
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = own;
        Ok(())
    }

    /// Of the certificate that it shows now.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.shown().cert.first().map(Fingerprint::of)
    }

    /// Whom it believes, now and after it is renewed.
    pub fn believed(&self) -> Believed {
        self.believed.clone()
    }

    fn shown(&self) -> Arc<CertifiedKey> {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&own)
    }
}

fn certified(
    own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> Result<CertifiedKey, IdentityError> {
    let (certificate, key) = own.ok_or_else(|| refused_setting("no key"))?;
    let key = CertifiedKey::from_der(vec![certificate], key, &default_provider());
    Ok(key?)
}

impl Believed {
    /// Whom the authorities of this text in PEM certified.
    pub fn of(pem: &str) -> Result<Self, IdentityError> {
        Self::in_these(Parts::of(pem)?.authorities)
    }

    /// Those of another text from now on.
    pub fn renew(&self, pem: &str) -> Result<(), IdentityError> {
        self.replace(Parts::of(pem)?.authorities)
    }

    fn in_these(authorities: Vec<CertificateDer<'static>>) -> Result<Self, IdentityError> {
        let now = RwLock::new(Arc::new(Verifiers::of(authorities)?));
        let renewals = AtomicU64::new(0);
        Ok(Self(Arc::new(Told { now, renewals })))
    }

    fn replace(&self, authorities: Vec<CertificateDer<'static>>) -> Result<(), IdentityError> {
        let verifiers = Arc::new(Verifiers::of(authorities)?);
        let now = self.0.now.write();
        *now.unwrap_or_else(PoisonError::into_inner) = verifiers;
        // After it: whoever sees the new number judges by the new ones.
        self.0.renewals.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// How often these were replaced: what was judged before is to be judged again.
    pub fn renewals(&self) -> u64 {
        self.0.renewals.load(Ordering::Acquire)
    }

    /// Whether who showed these certificates, its own first, is one of them now. All members can call and be
    /// called, so it does not matter who called whom.
    pub fn includes(&self, shown: &[CertificateDer<'_>]) -> bool {
        let judged = shown.split_first().map(|(own, between)| {
            let callers = &self.now().callers;
            callers.verify_client_cert(own, between, UnixTime::now())
        });
        judged.is_some_and(|judged| judged.is_ok())
    }

    fn now(&self) -> Arc<Verifiers> {
        let now = self.0.now.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&now)
    }
}

impl Verifiers {
    fn of(authorities: Vec<CertificateDer<'static>>) -> Result<Self, IdentityError> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority)?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(default_provider()));
        let callees =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(refused_setting)?;
        let callers = WebPkiClientVerifier::builder_with_provider(roots, provider)
            .build()
            .map_err(refused_setting)?;
        let member = ServerName::try_from(MEMBER).map_err(refused_setting)?;
        Ok(Self {
            callees,
            callers,
            member,
        })
    }
}

impl ResolvesServerCert for Member {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown())
    }
}

impl ResolvesClientCert for Member {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.shown())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Takes every member of the job, and nobody else, at whatever address it was called.
impl ServerCertVerifier for Believed {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _called: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Verifiers {
            callees, member, ..
        } = &*self.now();
        callees.verify_server_cert(own, between, member, ocsp, now)
    }

    signatures_by!(own => own.now().callees);
}

impl ClientCertVerifier for Believed {
    /// None are named to callers: which authorities there are changes.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.now().callers.verify_client_cert(own, between, now)
    }

    signatures_by!(own => own.now().callers);
}

#[cfg(test)]
#[path = "member_tests.rs"]
mod tests;
