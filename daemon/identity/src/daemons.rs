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

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{AlertDescription, ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::{Authority, IdentityError, MEMBER};

const CONTEXT: &str = "RobustRL 2026 authority over a job's daemons version 1";
/// HTTP/2, which carries the calls.
const PROTOCOL: &[u8] = b"h2";

/// Certifies the daemons of a job.
#[derive(Debug)]
pub struct Daemons {
    authority: Authority,
}

/// The called side of connections.
#[derive(Clone)]
pub struct Callee(TlsAcceptor);

/// The calling side of connections.
#[derive(Clone)]
pub struct Caller {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// A process's own certificate and key, and the authority that it verifies others by.
struct Certified {
    own: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
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
        let Certified { own, key, roots } = self.certify(whose)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let callers = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(refused_setting)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(callers)
            .with_single_cert(vec![own], key)?;
        // Nobody comes back to an old session: a link that ended proves itself anew.
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Callee(Arc::new(config).into()))
    }

    /// For a process that calls one, named as `node/b`.
    pub fn caller(&self, whose: &str) -> Result<Caller, IdentityError> {
        let Certified { own, key, roots } = self.certify(whose)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let callees = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(refused_setting)?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_webpki_verifier(callees)
            .with_client_auth_cert(vec![own], key)?;
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        let name = ServerName::try_from(MEMBER).map_err(refused_setting)?;
        Ok(Caller {
            connector: Arc::new(config).into(),
            name,
        })
    }

    fn certify(&self, whose: &str) -> Result<Certified, IdentityError> {
        let pem = self.authority.issue(whose)?;
        let certificates = CertificateDer::pem_slice_iter(pem.as_bytes());
        let certificates: Vec<_> = certificates
            .collect::<Result<_, _>>()
            .map_err(refused_setting)?;
        let [own, authority] = <[CertificateDer<'static>; 2]>::try_from(certificates)
            .map_err(|_| refused_setting("not two certificates"))?;
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(refused_setting)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let roots = Arc::new(roots);
        Ok(Certified { own, key, roots })
    }
}

fn refused_setting(error: impl std::fmt::Display) -> IdentityError {
    rustls::Error::General(error.to_string()).into()
}

impl Callee {
    /// Answers a caller. Returns once it is proven that the caller is of this job.
    pub async fn answer(&self, stream: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

impl Caller {
    /// Calls. Returns once it is proven that who answers is of this job.
    pub async fn call(&self, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Caller(..)")
    }
}

impl std::fmt::Debug for Callee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Callee(..)")
    }
}

/// Why there is no sealed connection, where it is not the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsealed {
    /// The other side's certificate is by another authority: it has another token, or none.
    OtherToken,
    /// The other side does not speak TLS 1.3.
    NoTls,
}

/// Looks for the reason among an error and its causes.
pub fn unsealed(error: &(dyn Error + 'static)) -> Option<Unsealed> {
    let mut next = Some(error);
    while let Some(error) = next {
        // The error within an error of I/O is not among its causes.
        let within = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let within = within.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(reason) = within.or_else(|| error.downcast_ref()).and_then(reason) {
            return Some(reason);
        }
        next = error.source();
    }
    None
}

fn reason(error: &rustls::Error) -> Option<Unsealed> {
    use AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
            Some(Unsealed::OtherToken)
        }
        rustls::Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::DecryptError,
        ) => Some(Unsealed::OtherToken),
        rustls::Error::InvalidMessage(_)
        | rustls::Error::PeerIncompatible(_)
        | rustls::Error::AlertReceived(Alert::ProtocolVersion) => Some(Unsealed::NoTls),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
