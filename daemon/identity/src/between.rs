//! Nodes of a job that call each other, beside their leader.
//!
//! ```text
//!  leader ── certificate for robust://JOB/node/b, its key, the authorities ──► node b: Between
//!  node b ── call("c") ─► TLS 1.3, both certified ─► node c: answer, which says that "b" calls
//! ```
//! Roles are certified by the same authorities, and are no nodes: their names say so, and neither side believes them.
use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::tls::refused_setting;
use crate::{DaemonKind, DaemonName, IdentityError, MEMBER, Member};

/// HTTP/2, which carries the calls.
const PROTOCOL: &[u8] = b"h2";

/// Both sides of what nodes say to each other. Clones share what is shown and believed.
#[derive(Clone)]
pub struct Between {
    member: Member,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Between {
    /// Of a node's certificate, its key and the authorities', in PEM.
    ///
    /// # Errors
    /// It is none of these.
    pub fn from_pem(pem: &str) -> Result<Self, IdentityError> {
        let member = Member::from_pem(pem)?;
        let (own, believed) = (Arc::new(member.clone()), Arc::new(member.believed()));
        let provider = Arc::new(default_provider());
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::clone(&believed) as _)
            .with_cert_resolver(Arc::clone(&own) as _);
        // Nobody comes back to an old session: a link that ended proves itself anew.
        server.send_tls13_tickets = 0;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(believed)
            .with_client_cert_resolver(own);
        client.resumption = Resumption::disabled();
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self {
            member,
            acceptor: Arc::new(server).into(),
            connector: Arc::new(client).into(),
            name: ServerName::try_from(MEMBER).map_err(refused_setting)?,
        })
    }

    /// Shows that, and believes those, with every connection that begins from now on.
    ///
    /// # Errors
    /// It cannot be used, and replaces nothing.
    pub fn renew(&self, pem: &str) -> Result<(), IdentityError> {
        self.member.renew(pem)
    }

    /// Answers a node that calls. Returns its name, once that is proven.
    ///
    /// # Errors
    /// The connection broke, or who calls is no node of the job.
    pub async fn answer(
        &self,
        stream: TcpStream,
    ) -> io::Result<(String, server::TlsStream<TcpStream>)> {
        let stream = self.acceptor.accept(stream).await?;
        let name = node_in(stream.get_ref().1.peer_certificates())?;
        Ok((name, stream))
    }

    /// Calls the node of this name. Returns once it is proven that it is that one who answers.
    ///
    /// # Errors
    /// The connection broke, or somebody else answers.
    pub async fn call(
        &self,
        node: &str,
        stream: TcpStream,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let stream = self.connector.connect(self.name.clone(), stream).await?;
        let found = node_in(stream.get_ref().1.peer_certificates())?;
        match found == node {
            true => Ok(stream),
            false => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("node {found} answers where node {node} should"),
            )),
        }
    }
}

/// The name of the node that showed these certificates, its own first.
fn node_in(shown: Option<&[CertificateDer<'_>]>) -> io::Result<String> {
    let none = |found: String| {
        let text = format!("its certificate is that of {found}, which is no node");
        io::Error::new(io::ErrorKind::PermissionDenied, text)
    };
    let own = shown.and_then(<[_]>::first);
    let own = own.ok_or_else(|| none("nobody".to_owned()))?;
    match DaemonName::in_certificate(own) {
        Ok(daemon) if daemon.kind() == DaemonKind::Node => Ok(daemon.name().to_owned()),
        Ok(daemon) => Err(none(daemon.to_string())),
        Err(error) => Err(none(error.to_string())),
    }
}

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Between(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Authority, Term};
    use std::net::{Ipv4Addr, SocketAddr};
    use tokio::net::TcpListener;

    fn of(secret: &[u8], whose: &str) -> Between {
        let authority = Authority::of(secret, "demo").unwrap();
        Between::from_pem(&authority.issue(whose, Term::unbounded()).unwrap()).unwrap()
    }

    /// What both sides say of a call of `caller` for node `wanted`, which `callee` answers.
    async fn called(
        caller: &Between,
        wanted: &str,
        callee: &Between,
    ) -> (io::Result<()>, io::Result<String>) {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(any).await.unwrap();
        let to = listener.local_addr().unwrap();
        let calling = async {
            let stream = TcpStream::connect(to).await?;
            caller.call(wanted, stream).await.map(drop)
        };
        let answering = async {
            let (stream, _) = listener.accept().await?;
            callee.answer(stream).await.map(|(name, _)| name)
        };
        tokio::join!(calling, answering)
    }

    #[tokio::test]
    async fn a_node_knows_who_calls_and_that_the_right_one_answers() {
        let (b, c) = (of(b"secret", "node/b"), of(b"secret", "node/c"));
        let (called_c, by) = called(&b, "c", &c).await;
        assert_eq!((called_c.is_ok(), by.unwrap()), (true, "b".to_owned()));
        let (another, _) = called(&b, "d", &c).await;
        let said = another.unwrap_err().to_string();
        assert_eq!(said, "node c answers where node d should");
    }

    #[tokio::test]
    async fn roles_of_the_job_and_nodes_of_another_one_are_not_believed() {
        let b = of(b"secret", "node/b");
        let (_, by) = called(&of(b"secret", "role/17"), "b", &b).await;
        let said = by.unwrap_err().to_string();
        assert!(said.contains("robust://demo/role/17"), "{said}");
        let (answered, _) = called(&b, "c", &of(b"secret", "role/17")).await;
        assert!(answered.is_err());
        let (_, by) = called(&of(b"another", "node/c"), "b", &b).await;
        assert!(by.is_err());
    }

    #[tokio::test]
    async fn a_node_that_was_certified_anew_is_known_by_the_new_authority() {
        let (b, c) = (of(b"secret", "node/b"), of(b"next", "node/c"));
        assert!(called(&b, "c", &c).await.1.is_err());
        let next = Authority::of(b"next", "demo").unwrap();
        b.renew(&next.issue("node/b", Term::unbounded()).unwrap())
            .unwrap();
        assert_eq!(called(&b, "c", &c).await.1.unwrap(), "b");
    }
}
