//! Both sides of TLS 1.3, each certified, and why there is no connection where there is none.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{Acceptor, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{LazyConfigAcceptor, TlsConnector, client, server};

use crate::pem::{certificates, key};
use crate::verify::Named;
use crate::{Authority, IdentityError, Term};

/// HTTP/2, which carries the calls.
const PROTOCOL: &[u8] = b"h2";

/// How those are answered whom one authority certified.
#[derive(Clone)]
pub struct Answering(Arc<ServerConfig>);

/// The calling side of connections.
#[derive(Clone)]
pub struct Caller {
    pub(crate) connector: TlsConnector,
    pub(crate) name: ServerName<'static>,
}

/// A process's own certificate and key, and the authority that it verifies others by.
pub(crate) struct Certified {
    /// Its own first, then those between it and the authority.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    pub roots: Arc<RootCertStore>,
}

impl Certified {
    /// A new key for `names.0`, of which callers check the name `names.1`.
    pub fn by(
        authority: &Authority,
        names: (&str, &str),
        term: Term,
    ) -> Result<Self, IdentityError> {
        Self::from_pem(&authority.issue_named(names, term)?)
    }

    /// Of its certificate, the authority's and its key.
    pub fn from_pem(pem: &str) -> Result<Self, IdentityError> {
        let certificates = certificates(pem).map_err(refused_setting)?;
        let [own, authority] = <[CertificateDer<'static>; 2]>::try_from(certificates)
            .map_err(|_| refused_setting("not two certificates"))?;
        let key = key(pem).map_err(refused_setting)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let roots = Arc::new(roots);
        Ok(Self {
            chain: vec![own],
            key,
            roots,
        })
    }

    /// For the side that is called: callers show a certificate by the same authority.
    pub fn callee(self) -> Result<Answering, IdentityError> {
        let Self { chain, key, roots } = self;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let callers = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(refused_setting)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(callers)
            .with_single_cert(chain, key)?;
        // Nobody comes back to an old session: a link that ended proves itself anew.
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Answering(Arc::new(config)))
    }

    /// For the side that calls somebody as `called`, who has to prove that he has the name `named`.
    pub fn caller(self, called: &str, named: &str) -> Result<Caller, IdentityError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(self.roots.clone(), provider)
            .build()
            .map_err(refused_setting)?;
        let name = server_name(named)?;
        self.caller_who_believes(Arc::new(Named { verifier, name }), called)
    }

    /// For the side that calls somebody as `called`, who has to prove himself to this verifier.
    pub fn caller_who_believes(
        self,
        verifier: Arc<dyn ServerCertVerifier>,
        called: &str,
    ) -> Result<Caller, IdentityError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(self.chain, self.key)?;
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        let name = server_name(called)?;
        Ok(Caller {
            connector: Arc::new(config).into(),
            name,
        })
    }
}

fn server_name(name: &str) -> Result<ServerName<'static>, IdentityError> {
    ServerName::try_from(name.to_owned()).map_err(refused_setting)
}

pub(crate) fn refused_setting(error: impl std::fmt::Display) -> IdentityError {
    rustls::Error::General(error.to_string()).into()
}

/// Answers a caller as whom it calls by name, of those that `find` knows. Returns once it is proven that the caller is
/// certified by that one's authority.
pub async fn answer_named<Found>(
    stream: TcpStream,
    find: impl FnOnce(&str) -> Option<(Answering, Found)>,
) -> io::Result<(Found, server::TlsStream<TcpStream>)> {
    let begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let found = find(begun.client_hello().server_name().unwrap_or_default());
    let (Answering(config), found) = found.ok_or(io::ErrorKind::PermissionDenied)?;
    Ok((found, begun.into_stream(config).await?))
}

impl Caller {
    /// Calls. Returns once it is proven that who answers is of this job.
    pub async fn call(&self, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}

impl std::fmt::Debug for Answering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answering(..)")
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Caller(..)")
    }
}

/// Why there is no sealed connection, where it is not the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsealed {
    /// The other side's certificate is by another authority: it has another token, or none.
    OtherToken,
    /// The other side does not speak TLS 1.3.
    NoTls,
    /// The other side says that our certificate is over, or not good yet.
    OursIsOver,
    /// The other side's certificate is over, or not good yet by this machine's clock.
    TheirsIsOver,
}

/// Looks for the reason among an error and its causes.
pub fn unsealed(error: &(dyn Error + 'static)) -> Option<Unsealed> {
    causes(error).find_map(reason)
}

/// What TLS says among an error and its causes.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a rustls::Error> {
    let mut next = Some(error);
    let all = std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    });
    all.filter_map(|error| {
        // The error within an error of I/O is not among its causes.
        let within = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let within = within.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        within.or_else(|| error.downcast_ref())
    })
}

fn reason(error: &rustls::Error) -> Option<Unsealed> {
    use AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => Some(Unsealed::TheirsIsOver),
        rustls::Error::AlertReceived(Alert::CertificateExpired) => Some(Unsealed::OursIsOver),
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
