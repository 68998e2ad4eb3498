//! How the leader is reached.
use super::link::Broken;
use crate::nodes::{HANDSHAKE, KEEPALIVE, KEEPALIVE_TIMEOUT};
use hyper_util::rt::TokioIo;
use robust_identity::Caller;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

const CONNECT: Duration = Duration::from_secs(3);

/// How the leader is reached, and as whom.
pub(super) struct Way {
    leader: String,
    caller: Arc<dyn Fn() -> io::Result<Caller> + Send + Sync>,
    /// From which of this machine's addresses.
    here: Arc<Mutex<IpAddr>>,
}

impl Way {
    /// To the leader at this address. `caller` is asked with every connection: a certificate is replaced while a link
    /// lives, and what breaks is connected again with the new one.
    pub fn new(
        leader: &str,
        caller: impl Fn() -> io::Result<Caller> + Send + Sync + 'static,
    ) -> Self {
        Self {
            leader: leader.to_owned(),
            caller: Arc::new(caller),
            here: Arc::new(Mutex::new(IpAddr::V4(Ipv4Addr::LOCALHOST))),
        }
    }

    /// A connection on which both have proven themselves.
    pub async fn connect(&self) -> Result<Channel, Broken> {
        let endpoint = self.endpoint()?;
        Ok(endpoint.connect_with_connector(self.connector()).await?)
    }

    /// The same, made with the first call.
    pub fn connect_lazy(&self) -> Result<Channel, Broken> {
        let endpoint = self.endpoint()?;
        Ok(endpoint.connect_with_connector_lazy(self.connector()))
    }

    /// From which of this machine's addresses the leader was reached.
    pub fn here(&self) -> IpAddr {
        let here = *self.here.lock().unwrap_or_else(PoisonError::into_inner);
        here.to_canonical()
    }

    fn endpoint(&self) -> Result<Endpoint, Broken> {
        let uri = format!("http://{}", self.leader);
        let endpoint = Endpoint::from_shared(uri).map_err(|e| Broken::Refused(e.to_string()))?;
        Ok(endpoint
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true))
    }

    fn connector(
        &self,
    ) -> impl tower::Service<
        Uri,
        Response = TokioIo<TlsStream<TcpStream>>,
        Error = io::Error,
        Future = impl Future<Output = io::Result<TokioIo<TlsStream<TcpStream>>>> + Send + use<>,
    > + Send
    + use<> {
        let (to, caller, seen) = (
            self.leader.clone(),
            Arc::clone(&self.caller),
            Arc::clone(&self.here),
        );
        tower::service_fn(move |_: Uri| {
            let (to, caller, seen) = (to.clone(), Arc::clone(&caller), Arc::clone(&seen));
            async move {
                let stream = TcpStream::connect(to).await?;
                stream.set_nodelay(true)?;
                *seen.lock().unwrap_or_else(PoisonError::into_inner) = stream.local_addr()?.ip();
                let slow = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer TLS");
                let caller = caller()?;
                let calling = async {
                    let mut sealed = caller.call(stream).await?;
                    // The handshake is over here before the leader has looked at this node's certificate. What it has
                    // against it, or its settings of HTTP/2, is the first that it says.
                    sealed.fill_buf().await?;
                    Ok(TokioIo::new(sealed))
                };
                timeout(HANDSHAKE, calling).await.map_err(slow)?
            }
        })
    }
}
