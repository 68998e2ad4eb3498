//! TLS of the HTTP between a job's engines and those of the job who ask them from another machine.
//!
//! ```text
//!  an engine's certificate and key ──► EngineServer ◄── TLS 1.3 ──► EngineClient ◄── the authority's certificate
//! ```
//! The engine shows that it is of the job, whatever address it was found at; who asks shows the engine's key, within TLS.

use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::tls::{Certified, refused_setting};
use crate::verify::Named;
use crate::{IdentityError, MEMBER};

const PROTOCOL: &[u8] = b"http/1.1";
/// What a connection begins with on which TLS is spoken: a record of its handshake (RFC 8446, section 5.1).
pub const FIRST_BYTE: u8 = 22;

/// The engine's side.
#[derive(Clone)]
pub struct EngineServer(TlsAcceptor);

/// The side of whoever asks engines.
#[derive(Clone)]
pub struct EngineClient(Arc<ClientConfig>);

impl EngineServer {
    /// Of an engine's certificate, its authority's and its key, in PEM.
    pub fn of(pem: &str) -> Result<Self, IdentityError> {
        let Certified { own, key, .. } = Certified::from_pem(pem)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![own], key)?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self(Arc::new(config).into()))
    }

    /// Answers whoever calls.
    pub async fn answer(&self, stream: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

impl EngineClient {
    /// Of the certificate of the authority that certifies the engines: the last one of a text in PEM.
    pub fn of(pem: &str) -> Result<Self, IdentityError> {
        let authority = CertificateDer::pem_slice_iter(pem.as_bytes()).last();
        let none = || refused_setting("no certificate of an authority");
        let authority = authority.ok_or_else(none)?.map_err(refused_setting)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let roots = Arc::new(roots);
        let of_the_job = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(refused_setting)?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Named {
                verifier: of_the_job,
                name: ServerName::try_from(MEMBER).map_err(refused_setting)?,
            }))
            .with_no_client_auth();
        // Which HTTP is spoken is for the client to say that is made with this.
        Ok(Self(Arc::new(config)))
    }

    /// What HTTP clients are made with.
    pub fn config(&self) -> ClientConfig {
        ClientConfig::clone(&self.0)
    }

    /// Calls an engine. Returns once it is proven that it is of the job.
    pub async fn call(&self, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        let name = ServerName::try_from(MEMBER).map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(&self.0))
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
        let server = EngineServer::of(engine).unwrap();
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
        let agent = EngineClient::of(&ours.issue("role/3", Term::unbounded()).unwrap());
        assert!(agent.is_ok());
        assert!(EngineClient::of("").is_err());
        assert!(EngineServer::of(ours.certificate()).is_err());
    }
}
