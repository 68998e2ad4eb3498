//! TLS of the HTTP between a job's engines and those of the job who ask them from another machine.
//!
//! ```text
//!  an engine's certificate and key ──► EngineServer ◄── TLS 1.3 ──► EngineClient ◄── the authority's certificate
//! ```
//! The engine shows that it is of the job, whatever address it was found at; who asks shows the engine's key, within TLS.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::member::Believed;
use crate::{IdentityError, MEMBER, Member};

const PROTOCOL: &[u8] = b"http/1.1";
/// What a connection begins with on which TLS is spoken: a record of its handshake (RFC 8446, section 5.1).
pub const FIRST_BYTE: u8 = 22;

/// The engine's side.
#[derive(Clone)]
pub struct EngineServer(TlsAcceptor);

/// The side of whoever asks engines. Clones share whom it believes.
#[derive(Clone)]
pub struct EngineClient {
    config: Arc<ClientConfig>,
    believed: Believed,
}

impl EngineServer {
    /// Of the engine that is this member of the job: what it shows is replaced with that.
    pub fn of(member: &Member) -> Result<Self, IdentityError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(member.clone()));
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self(Arc::new(config).into()))
    }

    /// Answers whoever calls.
    pub async fn answer(&self, stream: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

impl EngineClient {
    /// Of the certificates of the authorities that certify the engines, in PEM.
    pub fn of(pem: &str) -> Result<Self, IdentityError> {
        Self::believing(Believed::of(pem)?)
    }

    /// Of a member of the job: it believes whom that believes.
    pub fn of_member(member: &Member) -> Result<Self, IdentityError> {
        Self::believing(member.believed())
    }

    /// Believes those from now on whom these authorities certified.
    pub fn believe(&self, pem: &str) -> Result<(), IdentityError> {
        self.believed.renew(pem)
    }

    /// How often it was told whom to believe.
    pub(crate) fn renewals(&self) -> u64 {
        self.believed.renewals()
    }

    fn believing(believed: Believed) -> Result<Self, IdentityError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(believed.clone()))
            .with_no_client_auth();
        // Which HTTP is spoken is for the client to say that is made with this.
        let config = Arc::new(config);
        Ok(Self { config, believed })
    }

    /// What HTTP clients are made with.
    pub fn config(&self) -> ClientConfig {
        ClientConfig::clone(&self.config)
    }

    /// Calls an engine. Returns once it is proven that it is of the job.
    pub async fn call(&self, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        let name = ServerName::try_from(MEMBER).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.config))
            .connect(name, stream)
            .await
    }
}

impl std::fmt::Debug for EngineServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineServer(..)")
    }
}

impl std::fmt::Debug for EngineClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineClient(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Authority, Term, Unsealed, unsealed};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// What somebody who trusts `trusted` hears of an engine that has this certificate.
    async fn heard(trusted: &Authority, engine: &str) -> io::Result<Vec<u8>> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = EngineServer::of(&Member::from_pem(engine).unwrap()).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut sealed = server.answer(stream).await?;
            sealed.write_all(b"tokens").await?;
            sealed.shutdown().await
        });
        let client = EngineClient::of(trusted.certificate()).unwrap();
        let mut sealed = client.call(TcpStream::connect(addr).await?).await?;
        let mut heard = Vec::new();
        sealed.read_to_end(&mut heard).await?;
        Ok(heard)
    }

    #[tokio::test]
    async fn an_engine_of_the_job_is_believed_at_any_address_and_one_of_another_job_at_none() {
        let ours = Authority::of(b"ours", "demo").unwrap();
        let theirs = Authority::of(b"theirs", "demo").unwrap();
        let engine = ours.issue("role/17", Term::unbounded()).unwrap();
        assert_eq!(heard(&ours, &engine).await.unwrap(), b"tokens");
        let stranger = theirs.issue("role/17", Term::unbounded()).unwrap();
        let refused = heard(&ours, &stranger).await.unwrap_err();
        assert_eq!(unsealed(&refused), Some(Unsealed::OtherToken), "{refused}");
    }

    #[tokio::test]
    async fn a_client_is_made_of_a_roles_own_certificate_too() {
        let ours = Authority::of(b"ours", "demo").unwrap();
        let agent = ours.issue("role/3", Term::unbounded()).unwrap();
        let agent = Member::from_pem(&agent).unwrap();
        assert!(EngineClient::of_member(&agent).is_ok());
        assert!(EngineClient::of("").is_err());
        assert!(Member::from_pem(ours.certificate()).is_err());
    }
}
