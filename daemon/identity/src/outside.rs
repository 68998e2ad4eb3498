//! Certificates of daemons by an authority that is not the job's, such as the site's own.
//!
//! ```text
//!  robust://JOB/node/b                 a node's certificate      the leader believes it under this name
//!  spiffe://TRUST-DOMAIN/../node/b
//!  robust://JOB/control/a              the leader's              nodes believe nobody else to be their leader
//!  spiffe://TRUST-DOMAIN/../control/a
//!  └──────── alike ──────┘
//! ```
//! What comes before the last two parts has to be alike, so that one authority serves several jobs whose daemons do not
//! believe each other.
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::server;

use crate::tls::{Certified, causes, refused_setting};
use crate::{Answering, Caller, Fingerprint, IdentityError, pem};

/// By which name nodes call a leader that have a certificate from outside; nobody looks it up.
pub const OUTSIDE: &str = "outside.authority.robust.internal";

/// What a daemon is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonKind {
    /// The leader.
    Control,
    /// A node that joins it.
    Node,
}

/// The name that a certificate from outside gives a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonName {
    /// All that is before the last two parts.
    within: String,
    kind: DaemonKind,
    name: String,
}

/// What is wrong with a certificate from outside.
#[derive(Debug, thiserror::Error)]
pub enum OutsideError {
    /// There is none where one is to be.
    #[error("there is no {what} in it, in PEM: {why}")]
    Empty {
        /// Certificate, key or authority.
        what: &'static str,
        /// What was read instead.
        why: String,
    },
    /// Certificate and key do not belong together.
    #[error("the key is not that of the certificate")]
    AnotherKey,
    /// TLS cannot be set up with it.
    #[error(transparent)]
    Unusable(#[from] IdentityError),
    /// It names no daemon, or several.
    #[error(
        "a daemon's certificate has one URI among its alternative names that is robust://JOB/node/NAME or \
         spiffe://TRUST-DOMAIN/../node/NAME (the leader's: control/NAME); this one has {found}"
    )]
    Unnamed {
        /// The names that it has.
        found: String,
    },
    /// Who calls is no node.
    #[error(
        "its certificate is that of `{shown}`, which is no node's name: that ends with node/NAME"
    )]
    NoNode {
        /// Who.
        shown: DaemonName,
    },
    /// Who answers is not the leader.
    #[error(
        "its certificate is that of `{shown}`, which is not the leader's name: that ends with control/NAME"
    )]
    NotTheLeader {
        /// Who.
        shown: DaemonName,
    },
    /// Who calls or answers is of other daemons.
    #[error(
        "its certificate is that of `{shown}`, which belongs not to `{own}`: names of one job's daemons are alike up to \
         their last two parts"
    )]
    Elsewhere {
        /// Who.
        shown: DaemonName,
        /// Whose it has to be like.
        own: DaemonName,
    },
    /// The authority does not stand for it, or not at this time.
    #[error("its certificate is not believed: {0}")]
    Unbelieved(rustls::Error),
}

/// A daemon's certificate from outside, with its key and those whom it believes.
pub struct Outside {
    name: DaemonName,
    fingerprint: Fingerprint,
    answering: Answering,
    caller: Caller,
    /// Those who call, again, after the handshake.
    callers: Arc<dyn ClientCertVerifier>,
}

/// The certificates that a caller has shown, its own first.
#[derive(Clone, PartialEq, Eq)]
pub struct ShownChain(Vec<CertificateDer<'static>>);

impl DaemonName {
    /// Of a URI; none for the names of others.
    pub fn of(uri: &str) -> Option<Self> {
        let (scheme, path) = uri.split_once("://")?;
        let parts: Vec<&str> = path.split('/').collect();
        let is_long_enough = match scheme {
            "robust" => parts.len() == 3,
            "spiffe" => parts.len() >= 3,
            _ => false,
        };
        let is_plain = |part: &&str| !part.is_empty() && !part.contains(['?', '#']);
        let [.., kind, name] = parts.as_slice() else {
            return None;
        };
        if !is_long_enough || !parts.iter().all(is_plain) {
            return None;
        }
        let within = uri.strip_suffix(&format!("{kind}/{name}"))?.to_owned();
        let (kind, name) = match *kind {
            "control" => (DaemonKind::Control, (*name).to_owned()),
            "node" => (DaemonKind::Node, (*name).to_owned()),
            _ => return None,
        };
        Some(Self { within, kind, name })
    }

    /// Which daemon it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    pub fn kind(&self) -> DaemonKind {
        self.kind
    }

    /// The one in a certificate. It is read as by those who verify certificates, so that both see the same.
    pub(crate) fn in_certificate(certificate: &CertificateDer<'_>) -> Result<Self, OutsideError> {
        let read = webpki::EndEntityCert::try_from(certificate).map_err(refused_setting)?;
        let uris: Vec<&str> = read.valid_uri_names().collect();
        let mut names = uris.iter().filter_map(|uri| Self::of(uri));
        match (names.next(), names.next()) {
            (Some(name), None) => Ok(name),
            _ if uris.is_empty() => Err(OutsideError::Unnamed {
                found: "no URI".to_owned(),
            }),
            _ => Err(OutsideError::Unnamed {
                found: uris.join(", "),
            }),
        }
    }
}

impl fmt::Display for DaemonName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DaemonKind::Control => "control",
            DaemonKind::Node => "node",
        };
        write!(f, "{}{kind}/{}", self.within, self.name)
    }
}

impl Outside {
    /// Of a certificate with those between it and its authority, its key, and the authorities that stand for other
    /// daemons, each in PEM.
    pub fn of(certificate: &str, key: &str, authority: &str) -> Result<Self, OutsideError> {
        let chain = pem::certificates(certificate).map_err(|why| empty("certificate", why))?;
        let key = pem::key(key).map_err(|why| empty("key", why))?;
        let mut roots = RootCertStore::empty();
        for root in pem::certificates(authority).map_err(|why| empty("authority", why))? {
            roots.add(root).map_err(IdentityError::from)?;
        }
        let own = chain
            .first()
            .ok_or_else(|| empty("certificate", "nothing"))?;
        let (name, fingerprint) = (DaemonName::in_certificate(own)?, Fingerprint::of(own));
        let (provider, roots) = (
            Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            Arc::new(roots),
        );
        let callers =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let leader = TheLeader {
            roots: Arc::clone(&roots),
            algorithms: provider.signature_verification_algorithms,
            own: name.clone(),
        };
        let certified = || Certified {
            chain: chain.clone(),
            key: key.clone_key(),
            roots: Arc::clone(&roots),
        };
        Ok(Self {
            answering: certified().callee().map_err(of_key)?,
            caller: certified()
                .caller_who_believes(Arc::new(leader), OUTSIDE)
                .map_err(of_key)?,
            callers: callers.build().map_err(refused_setting)?,
            name,
            fingerprint,
        })
    }

    /// Whose certificate it is.
    pub fn name(&self) -> &DaemonName {
        &self.name
    }

    /// Of its certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// How the leader answers those who call it by the name [`OUTSIDE`].
    pub fn answering(&self) -> Answering {
        self.answering.clone()
    }

    /// How a node calls its leader.
    pub fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// Which node has shown this, at `now_ms` (Unix time) and by the authorities that are believed now.
    pub fn node_of(&self, shown: &ShownChain, now_ms: u64) -> Result<String, OutsideError> {
        let (own, between) = shown
            .0
            .split_first()
            .ok_or_else(|| empty("certificate", "nothing"))?;
        let now = UnixTime::since_unix_epoch(Duration::from_millis(now_ms));
        let verified = self.callers.verify_client_cert(own, between, now);
        verified.map_err(OutsideError::Unbelieved)?;
        let shown = DaemonName::in_certificate(own)?;
        match shown.kind {
            DaemonKind::Control => Err(OutsideError::NoNode { shown }),
            DaemonKind::Node if shown.within != self.name.within => {
                let own = self.name.clone();
                Err(OutsideError::Elsewhere { shown, own })
            }
            DaemonKind::Node => Ok(shown.name),
        }
    }
}

impl ShownChain {
    /// Of whoever is at the other end of a connection that was answered.
    pub fn of_caller(stream: &server::TlsStream<TcpStream>) -> Option<Self> {
        let chain = stream.get_ref().1.peer_certificates()?;
        let owned = chain.iter().map(|one| one.clone().into_owned());
        Some(Self(owned.collect()))
    }
}

/// What a calling node has against the name of whoever answered, among an error and its causes.
pub fn misnamed(error: &(dyn Error + 'static)) -> Option<String> {
    causes(error).find_map(|error| match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => {
            why.downcast_ref::<OutsideError>().map(ToString::to_string)
        }
        _ => None,
    })
}

fn empty(what: &'static str, why: impl fmt::Display) -> OutsideError {
    let why = why.to_string();
    OutsideError::Empty { what, why }
}

fn of_key(error: IdentityError) -> OutsideError {
    match error {
        IdentityError::Used(rustls::Error::InconsistentKeys(_)) => OutsideError::AnotherKey,
        error => error.into(),
    }
}

/// Takes the leader of the daemon `own` alone, at whatever address it is.
#[derive(Debug)]
struct TheLeader {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
    own: DaemonName,
}

impl TheLeader {
    fn is_named_in(&self, certificate: &CertificateDer<'_>) -> Result<(), OutsideError> {
        let (shown, own) = (DaemonName::in_certificate(certificate)?, self.own.clone());
        match shown.kind {
            DaemonKind::Node => Err(OutsideError::NotTheLeader { shown }),
            DaemonKind::Control if shown.within != own.within => {
                Err(OutsideError::Elsewhere { shown, own })
            }
            DaemonKind::Control => Ok(()),
        }
    }
}

impl ServerCertVerifier for TheLeader {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _called: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let read = ParsedCertificate::try_from(own)?;
        let all = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&read, &self.roots, between, now, all)?;
        let named = self.is_named_in(own);
        named.map_err(|why| CertificateError::Other(OtherError(Arc::new(why))))?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, own, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, own, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outside({}, ..)", self.name)
    }
}

impl fmt::Debug for ShownChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShownChain({} certificates)", self.0.len())
    }
}

#[cfg(test)]
#[path = "outside_tests.rs"]
mod tests;
