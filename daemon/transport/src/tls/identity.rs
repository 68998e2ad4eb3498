//! Who this process is to the others of its job, and whom it believes to be of it.

use std::sync::Arc;

use rustls::client::{Resumption, UnbufferedClientConnection, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::session::Session;
use crate::error::IdentityError;

/// What both sides speak inside; a change of the frames changes it.
const PROTOCOL: &[u8] = b"robust-rtp/7";

/// A certificate of the job's authority, its key, and what of others' certificates is believed: those of
/// the same authority, and of whom is called the same name in it: the authority certifies members only.
#[derive(Clone)]
pub struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: ServerName<'static>,
}

impl Identity {
    /// From PEM: this process's certificate, its key, and the authority's certificate. `name` is the DNS
    /// name that the certificate of every member of the job has.
    pub fn from_pem(pem: &str, name: &str) -> Result<Identity, IdentityError> {
        let bad = |what: &'static str| IdentityError::Missing(what);
        let mut certificates = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            certificates.push(certificate.map_err(|_| bad("readable certificates"))?);
        }
        let [own, authority] = <[CertificateDer<'static>; 2]>::try_from(certificates)
            .map_err(|_| bad("two certificates, its own and the authority's"))?;
        let key =
            PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| bad("a private key"))?;
        let name = ServerName::try_from(name.to_owned()).map_err(|_| bad("a name"))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let (roots, provider) = (Arc::new(roots), Arc::new(provider()));
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|_| bad("an authority that can be checked"))?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|_| bad("an authority that can be checked"))?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![own.clone()], key.clone_key())?;
        // Nobody comes back to an old session: a link that ended proves itself anew.
        server.send_tls13_tickets = 0;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        // For the kernel, where it seals and opens.
        server.enable_secret_extraction = true;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_webpki_verifier(servers)
            .with_client_auth_cert(vec![own], key)?;
        client.resumption = Resumption::disabled();
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.enable_secret_extraction = true;
        Ok(Identity {
            client: Arc::new(client),
            server: Arc::new(server),
            name,
        })
    }

    /// The caller's side of a new connection.
    pub(super) fn call(&self) -> Result<Session, rustls::Error> {
        let config = Arc::clone(&self.client);
        let session = UnbufferedClientConnection::new(config, self.name.clone())?;
        Ok(Session::Client(session))
    }

    /// The callee's.
    pub(super) fn answer(&self) -> Result<Session, rustls::Error> {
        let session = UnbufferedServerConnection::new(Arc::clone(&self.server))?;
        Ok(Session::Server(session))
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// AES-128-GCM first: with AES in hardware the fastest, and no weaker here than the keys' exchange.
fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..default_provider()
    }
}
