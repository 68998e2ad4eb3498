//! Connects, and connects again.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use robust_proto::v1::Hello;
use robust_proto::v1::role_host_client::RoleHostClient;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tonic::transport::{Channel, Endpoint, Error, Uri};

use super::session::{Broken, Session};
use super::{DaemonEpoch, FromHost, LinkConfig, LinkEnd, Outgoing, Shared};

/// Pause between attempts to reach the daemon.
const RETRY: Duration = Duration::from_millis(100);
/// A call carries a rank's share of a batch.
pub(super) const MAX_MESSAGE_BYTES: usize = 1 << 28;

pub(super) struct Client {
    config: LinkConfig,
    hello: Box<dyn Fn() -> Hello + Send + Sync>,
    shared: Arc<Shared>,
    outgoing: UnboundedReceiver<Outgoing>,
    /// Sent, but perhaps lost with the link.
    recent: Vec<(Instant, Outgoing)>,
    /// To be sent first on the next link.
    waiting: VecDeque<Outgoing>,
    daemon: Option<i64>,
    epoch: DaemonEpoch,
}

impl Client {
    pub fn new(
        config: LinkConfig,
        hello: Box<dyn Fn() -> Hello + Send + Sync>,
        shared: Arc<Shared>,
        outgoing: UnboundedReceiver<Outgoing>,
    ) -> Self {
        let (recent, waiting, daemon, epoch) = Default::default();
        Self {
            config,
            hello,
            shared,
            outgoing,
            recent,
            waiting,
            daemon,
            epoch,
        }
    }

    /// Keeps a link up until there is a reason to end.
    pub async fn run(mut self, events: &UnboundedSender<FromHost>) -> LinkEnd {
        let mut last_seen = Instant::now();
        loop {
            let broken = self.session(events, &mut last_seen).await;
            match broken {
                Broken::End(end) => return end,
                Broken::Retry(why) => tracing::debug!(%why, "no link"),
            }
            if last_seen.elapsed() > self.config.daemon_grace {
                return LinkEnd::NoDaemon(last_seen.elapsed());
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn session(
        &mut self,
        events: &UnboundedSender<FromHost>,
        last_seen: &mut Instant,
    ) -> Broken {
        let peer = Arc::new(AtomicI64::new(0));
        let channel = match connect(&self.config.socket, Arc::clone(&peer)).await {
            Ok(channel) => channel,
            Err(error) => return Broken::Retry(error.to_string()),
        };
        // Somebody listens: grace is for the time when nobody does.
        *last_seen = Instant::now();
        let daemon = peer.load(Ordering::Relaxed);
        if self
            .daemon
            .replace(daemon)
            .is_some_and(|before| before != daemon)
        {
            self.epoch.0 += 1;
        }
        let session = Session {
            shared: &self.shared,
            config: &self.config,
            outgoing: &mut self.outgoing,
            recent: &mut self.recent,
            waiting: &mut self.waiting,
            epoch: self.epoch,
        };
        let client = RoleHostClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let broken = session.run(client, &self.hello, events).await;
        *last_seen = Instant::now();
        broken
    }
}

fn endpoint() -> Endpoint {
    // The authority is required by HTTP and means nothing on a Unix socket.
    Endpoint::from_static("http://daemon.local").connect_timeout(Duration::from_secs(5))
}

async fn connect(socket: &Path, peer: Arc<AtomicI64>) -> Result<Channel, Error> {
    let path = socket.to_path_buf();
    let connector = tower::service_fn(move |_: Uri| {
        let (path, peer) = (path.clone(), Arc::clone(&peer));
        async move {
            let stream = UnixStream::connect(path).await?;
            let pid = stream.peer_cred().ok().and_then(|cred| cred.pid());
            peer.store(pid.map_or(-1, i64::from), Ordering::Relaxed);
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    endpoint().connect_with_connector(connector).await
}

/// A channel to the daemon for single calls; it connects when it is used, and again when needed.
/// Must be called on a runtime.
pub fn channel(socket: &Path) -> Channel {
    let path = socket.to_path_buf();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    endpoint().connect_with_connector_lazy(connector)
}
