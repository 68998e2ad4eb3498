//! How the leader is reached.
use super::link::Broken;
use crate::nodes::{HANDSHAKE, KEEPALIVE, KEEPALIVE_TIMEOUT};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use hyper_util::rt::TokioIo;
use robust_identity::{Caller, Unsealed, misnamed, unsealed};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

const CONNECT: Duration = Duration::from_secs(3);
/// Before one of several that is not there is tried again.
const AGAIN: Duration = Duration::from_millis(100);

const OTHER_LEADER: &str = "it did not certify this node, has replaced its secret since, or is another leader: give a join \
     token with --token-file (`robustctl token create` where the leader runs makes one)";
const OVER: &str = "this node's certificate has expired, or is not good yet: compare the clocks of both machines, or give a join \
     token with --token-file (`robustctl token create` where the leader runs makes one)";
const OTHER_AUTHORITY: &str = "leader and node do not believe each other's certificates from outside: the authority of \
     either has to be in the other's file of --authority, and the leader has to be started with --certificate, too";
const OVER_OUTSIDE: &str = "this node's certificate has expired, or is not good yet: compare the clocks of both machines, and \
     see that what makes the file of --certificate anew still does; it is read again when it changes";
const CLOCKS: &str = "its certificate has expired, or is not good yet, by the clock of this machine: compare the clocks of both";
const NO_TLS: &str = "it speaks no TLS 1.3: is it the --listen-nodes of a robustd, of this build?";

/// How the leader is reached, and as whom.
pub(super) struct Way {
    leader: String,
    caller: Arc<dyn Fn() -> io::Result<Caller> + Send + Sync>,
    /// Whether by a certificate from outside.
    outside: bool,
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
            outside: false,
            here: Arc::new(Mutex::new(IpAddr::V4(Ipv4Addr::LOCALHOST))),
        }
    }

    /// The same, by a certificate from outside or not: the remedies differ where one is refused.
    pub fn showing(self, outside: bool) -> Self {
        Self { outside, ..self }
    }

    /// A connection on which both have proven themselves.
    pub async fn connect(&self) -> Result<Channel, Broken> {
        let endpoint = self.endpoint()?;
        let connected = endpoint.connect_with_connector(self.connector()).await;
        connected.map_err(|error| self.broken(&error))
    }

    /// The same; of several, one that is not there is tried again for as long as another may keep silent, which is none
    /// that leads: who is frozen takes connections, and hides nobody who leads by then.
    async fn patiently(&self, of: usize) -> Result<Channel, Broken> {
        let began = Instant::now();
        loop {
            match self.connect().await {
                Err(Broken::Lost(_)) if of > 1 && began.elapsed() < HANDSHAKE => {
                    sleep(AGAIN).await;
                }
                ended => return ended,
            }
        }
    }

    /// The same, made with the first call.
    pub fn connect_lazy(&self) -> Result<Channel, Broken> {
        let endpoint = self.endpoint()?;
        Ok(endpoint.connect_with_connector_lazy(self.connector()))
    }

    /// To whichever of these addresses is the first to answer: of several controllers only the one that leads does.
    pub async fn first(
        leaders: &[String],
        way: impl Fn(&str) -> Self,
    ) -> Result<(Self, Channel), Broken> {
        let mut trying: FuturesUnordered<_> = leaders
            .iter()
            .map(|leader| {
                let way = way(leader);
                async move {
                    let connected = way.patiently(leaders.len()).await;
                    connected.map(|channel| (way, channel))
                }
            })
            .collect();
        let mut failed = None;
        while let Some(tried) = trying.next().await {
            match (tried, &failed) {
                (Ok(connected), _) => return Ok(connected),
                // What somebody has against this node says more than that nobody is there.
                (Err(broken), None | Some(Broken::Lost(_))) => failed = Some(broken),
                (Err(_), Some(_)) => {}
            }
        }
        Err(failed.unwrap_or_else(|| Broken::Refused("there is no address to join".to_owned())))
    }

    /// Where it leads to.
    pub fn leader(&self) -> &str {
        &self.leader
    }

    /// From which of this machine's addresses the leader was reached.
    pub fn here(&self) -> IpAddr {
        let here = *self.here.lock().unwrap_or_else(PoisonError::into_inner);
        here.to_canonical()
    }

    fn broken(&self, error: &tonic::transport::Error) -> Broken {
        let Some(why) = unsealed(error) else {
            let cause = std::error::Error::source(error);
            return Broken::Lost(cause.map_or_else(|| error.to_string(), ToString::to_string));
        };
        match (why, self.outside) {
            (Unsealed::OtherToken, true) => {
                Broken::Unknown(misnamed(error).unwrap_or_else(|| OTHER_AUTHORITY.to_owned()))
            }
            (Unsealed::OtherToken, false) => Broken::Unknown(OTHER_LEADER.to_owned()),
            (Unsealed::OursIsOver, true) => Broken::Unknown(OVER_OUTSIDE.to_owned()),
            (Unsealed::OursIsOver, false) => Broken::Unknown(OVER.to_owned()),
            (Unsealed::TheirsIsOver, _) => Broken::Lost(CLOCKS.to_owned()),
            (Unsealed::NoTls, _) => Broken::Refused(NO_TLS.to_owned()),
        }
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
