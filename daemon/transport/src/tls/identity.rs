//! Who this process is to the others of its job, and whom it believes to be of it.

use std::sync::Arc;

use robust_identity::{Believed, IdentityError, MEMBER, Member};
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};

use super::session::Session;

/// What both sides speak inside; a change of the frames changes it.
const PROTOCOL: &[u8] = b"robust-rtp/7";

/// A member of the job, and what of others' certificates is believed: those of its authorities, which certify members
/// only.
#[derive(Clone)]
pub struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: ServerName<'static>,
    believed: Believed,
}

impl Identity {
    /// Of this member: a new connection shows what that has then.
    pub fn of(member: &Member) -> Result<Identity, IdentityError> {
        let (own, believed) = (Arc::new(member.clone()), Arc::new(member.believed()));
        let provider = Arc::new(provider());
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::clone(&believed) as _)
            .with_cert_resolver(Arc::clone(&own) as _);
        // Nobody comes back to an old session: a link that ended proves itself anew.
        server.send_tls13_tickets = 0;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        // For the kernel, where it seals and opens.
        server.enable_secret_extraction = true;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(believed)
            .with_client_cert_resolver(own);
        client.resumption = Resumption::disabled();
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.enable_secret_extraction = true;
        let name = ServerName::try_from(MEMBER);
        let name = name.map_err(|error| rustls::Error::General(error.to_string()))?;
        Ok(Identity {
            client: Arc::new(client),
            server: Arc::new(server),
            name,
            believed: member.believed(),
        })
    }

    /// Of a member that stays what it is: its certificate, its key, and the authority's certificate, in PEM.
    pub fn from_pem(pem: &str) -> Result<Identity, IdentityError> {
        Self::of(&Member::from_pem(pem)?)
    }

    /// How often it was told whom to believe.
    pub(super) fn renewals(&self) -> u64 {
        self.believed.renewals()
    }

    /// Whether who showed these certificates once would be believed now.
    pub(super) fn believes(&self, shown: &[CertificateDer<'_>]) -> bool {
        self.believed.includes(shown)
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
