//! Connections to a member, sealed or not.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::failure::NotReached;
use super::{SettingError, Tls};

/// HTTP/2, which carries the calls.
const PROTOCOL: &[u8] = b"h2";

/// What bytes go over.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

fn unusable(path: &Path, why: impl ToString) -> SettingError {
    SettingError::Pem {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SettingError> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, error))?;
    let found = found.collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| unusable(path, error))?;
    if found.is_empty() {
        return Err(unusable(path, "there is no certificate in PEM"));
    }
    Ok(found)
}

impl Tls {
    /// Reads the files.
    pub(super) fn config(&self) -> Result<ClientConfig, SettingError> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.authority)? {
            let added = roots.add(authority);
            added.map_err(|error| unusable(&self.authority, error))?;
        }
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| unusable(&self.key, error))?;
        let chain = certificates(&self.certificate)?;
        let wrong = |why| SettingError::Certificate {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            why,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(wrong)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(wrong)?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }
}

/// Calls a member.
pub(super) async fn dial(
    host: String,
    port: u16,
    tls: Option<Tls>,
) -> Result<Box<dyn Wire>, NotReached> {
    let not = |error: &dyn std::error::Error| NotReached(error.to_string());
    // A literal of IPv6 has brackets in an address only.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(|error| not(&error))?;
    stream.set_nodelay(true).map_err(|error| not(&error))?;
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let config = tls.config().map_err(|error| not(&error))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| not(&error))?;
    let sealed = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let sealed = sealed.await.map_err(|error| {
        NotReached(format!(
            "{error} (its authority is to be {})",
            tls.authority.display()
        ))
    })?;
    Ok(Box::new(sealed))
}
