//! Certificates of a job's nodes: the leader certifies, nodes have a key each.
//!
//! ```text
//!  the leader's secret ──derive──► NodeAuthority ── certify(key of b) ──► b's certificate, its fingerprint
//!                                       └─ answering() ─► TLS, where nodes are answered
//!
//!  NodeKey (made on the node, never sent) + certificates ──► NodeIdentity ── caller() ──► TLS, to the leader
//! ```
//! A node has neither the leader's secret nor another node's key: it can speak for itself alone.

use std::fmt;
use std::time::Duration;

use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SignatureAlgorithm};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::net::TcpStream;
use tokio_rustls::server;

use crate::tls::{Answering, Caller, Certified, refused_setting};
use crate::{Authority, IdentityError, MEMBER, Term};

const CONTEXT: &str = "RobustRL 2026 authority over a job's daemons version 1";

/// How long the certificate of a node is good, and that which the leader shows to nodes.
pub const LIFE_OF_NODE: Duration = Duration::from_secs(30 * 24 * 3600);

const NAME: &str = "RobustRL 2026 name of an authority over a job's daemons version 1";
/// Under which names of authorities stand; nobody looks it up.
const DOMAIN: &str = "authority.robust.internal";

/// Certifies the nodes of a job. The leader has it, and nobody else.
#[derive(Debug)]
pub struct NodeAuthority {
    authority: Authority,
    name: String,
}

/// Tells a certificate from all others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

/// What a node got for its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCertificate {
    /// Its certificate, then the authority's, in PEM.
    pub pem: String,
    /// Of its certificate.
    pub fingerprint: Fingerprint,
    /// When it was made, in Unix time.
    pub since_ms: u64,
    /// When it is over, in Unix time.
    pub until_ms: u64,
}

impl NodeAuthority {
    /// Of the leader that has this secret. The same secret gives the same authority.
    pub fn of(secret: &str) -> Result<Self, IdentityError> {
        let key = blake3::derive_key(CONTEXT, secret.trim().as_bytes());
        let authority = Authority::of(&key, "daemons")?;
        let certificate = CertificateDer::from_pem_slice(authority.certificate().as_bytes());
        let name = name_of(&certificate.map_err(refused_setting)?);
        Ok(Self { authority, name })
    }

    /// By which name nodes call the leader that have a certificate by this authority: a leader that has two of them
    /// shows each node the certificate that it can verify.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the authority that made these certificates of a node, in PEM.
    pub fn name_in(certificates: &str) -> Result<String, IdentityError> {
        let authority = CertificateDer::pem_slice_iter(certificates.as_bytes()).nth(1);
        let authority = authority.ok_or_else(|| refused_setting("no authority's certificate"))?;
        Ok(name_of(&authority.map_err(refused_setting)?))
    }

    /// Certifies, at `now_ms` (Unix time), that who has the private half of this Ed25519 key (32 bytes) is the node of
    /// this name.
    pub fn certify(
        &self,
        public_key: &[u8],
        node: &str,
        now_ms: u64,
    ) -> Result<NodeCertificate, IdentityError> {
        let key = PublicKey::new(public_key)?;
        let (whose, term) = (format!("node/{node}"), Term::of(now_ms, LIFE_OF_NODE));
        let pem = self.authority.certify(&key, (&whose, MEMBER), term)?;
        Ok(NodeCertificate {
            fingerprint: Fingerprint::of_pem(&pem)?,
            pem,
            since_ms: now_ms,
            until_ms: term.until_ms(),
        })
    }

    /// How the leader answers those that it certified, with a certificate of [`LIFE_OF_NODE`] from `now_ms` on.
    pub fn answering(&self, now_ms: u64) -> Result<Answering, IdentityError> {
        let term = Term::of(now_ms, LIFE_OF_NODE);
        Certified::by(&self.authority, ("control", MEMBER), term)?.callee()
    }
}

fn name_of(authority: &CertificateDer<'_>) -> String {
    let name = blake3::derive_key(NAME, authority);
    let name = blake3::Hash::from(name).to_hex();
    format!("{}.{DOMAIN}", &name[..32])
}

/// An Ed25519 key's public half, as a request has it.
struct PublicKey([u8; 32]);

impl PublicKey {
    fn new(bytes: &[u8]) -> Result<Self, IdentityError> {
        let bytes = <[u8; 32]>::try_from(bytes);
        let wrong = |_| refused_setting("an Ed25519 key has 32 bytes");
        bytes.map(Self).map_err(wrong)
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl Fingerprint {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(*blake3::hash(certificate).as_bytes())
    }

    /// Of the first certificate of a text in PEM.
    pub fn of_pem(text: &str) -> Result<Self, IdentityError> {
        let first = CertificateDer::from_pem_slice(text.as_bytes()).map_err(refused_setting)?;
        Ok(Self::of(&first))
    }

    /// Of whoever is at the other end of a connection that was answered.
    pub fn of_caller(stream: &server::TlsStream<TcpStream>) -> Option<Self> {
        let certificates = stream.get_ref().1.peer_certificates()?;
        certificates.first().map(Self::of)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The key of a node, which it makes for itself.
pub struct NodeKey(KeyPair);

impl NodeKey {
    /// A new one.
    pub fn new() -> Result<Self, IdentityError> {
        Ok(Self(KeyPair::generate_for(&PKCS_ED25519)?))
    }

    /// One that was stored.
    pub fn from_pem(text: &str) -> Result<Self, IdentityError> {
        Ok(Self(KeyPair::from_pem(text)?))
    }

    /// Both halves, in PEM.
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// The public half, 32 bytes.
    pub fn public(&self) -> &[u8] {
        self.0.der_bytes()
    }

    /// How the node calls its leader, with what it was certified with.
    pub fn caller(&self, certificates: &str) -> Result<Caller, IdentityError> {
        let pem = [certificates, &self.pem()].concat();
        let called = NodeAuthority::name_in(certificates)?;
        // What the leader proves is that it is of the job; one of an earlier build has no other name.
        Certified::from_pem(&pem)?.caller(&called, MEMBER)
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeKey(..)")
    }
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
pub(crate) mod tests;
