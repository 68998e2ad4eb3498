//! A node's certificate, made anew before it is over.
//!
//! ```text
//!  half of its life is over ──► a new key, on disk ──► certified over a connection by the old one ──► on disk
//!         ▲                                                                                            │
//!         └── the leader does not answer: again in a minute      the leader is called by the new one ◄─┘
//! ```
//! Until the leader is called by the new certificate both count there, so that a death at any of these points costs
//! nothing: the node goes on with the one that it has on disk, and asks again.
use super::NodeConfig;
use super::credentials::Credentials;
use super::link::Broken;
use super::way::Way;
use crate::logging::Seldom;
use crate::nodes::{HANDSHAKE, unix_ms};
use robust_proto::v1;
use robust_proto::v1::node_host_client::NodeHostClient;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tonic::transport::Channel;

/// How often the clock is looked at: it may be set while a node sleeps.
const LOOK: Duration = Duration::from_secs(600);
/// Before a leader that did not answer is asked again.
const AGAIN: Duration = Duration::from_secs(60);

/// Keeps the certificate good until the node ends.
pub(super) async fn run(config: Arc<NodeConfig>, credentials: Arc<Credentials>) {
    let log = Seldom::default();
    let mut renewal = Renewal {
        config: &config,
        credentials: &credentials,
        unused: false,
    };
    loop {
        let wait = match renewal.go_on(unix_ms()).await {
            Ok(()) => LOOK,
            Err(broken) => {
                log.say(|| format!("this node gets no new certificate: {}", broken.reason()));
                AGAIN
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // A certificate of the first time, or a leader that is there again or wants another one.
            () = credentials.looked_at() => {}
        }
    }
}

struct Renewal<'a> {
    config: &'a NodeConfig,
    credentials: &'a Arc<Credentials>,
    /// The certificate is stored, and the leader was not called by it yet.
    unused: bool,
}

impl Renewal<'_> {
    /// What there is to do at `now_ms`.
    async fn go_on(&mut self, now_ms: u64) -> Result<(), Broken> {
        if self.credentials.is_renewed_at(now_ms) {
            self.renew().await?;
            self.unused = true;
        }
        if self.unused {
            self.call().await?;
            self.unused = false;
        }
        Ok(())
    }

    async fn renew(&self) -> Result<(), Broken> {
        let key = self.credentials.uncertified()?;
        let request = v1::EnrollRequest {
            name: self.config.name.clone(),
            public_key: key.public().to_vec(),
        };
        let mut client = self.client().await?;
        let enrolled = timeout(HANDSHAKE, client.enroll(request)).await;
        let reply = enrolled.map_err(slow)??.into_inner();
        self.credentials.certified(&key, &reply)?;
        tracing::info!("the certificate of {} is new", self.config.name);
        Ok(())
    }

    /// Calls by the new one: all that was called before was called by the old one.
    async fn call(&self) -> Result<(), Broken> {
        let mut client = self.client().await?;
        let called = timeout(HANDSHAKE, client.clock(v1::ClockRequest {})).await;
        called.map_err(slow)??;
        Ok(())
    }

    /// Over a connection of its own, by the certificate that there is.
    async fn client(&self) -> Result<NodeHostClient<Channel>, Broken> {
        let way = |leader: &str| {
            let caller = Arc::clone(self.credentials).certified_caller();
            Way::new(leader, caller)
        };
        let (_, channel) = Way::first(&self.config.leaders, way).await?;
        Ok(NodeHostClient::new(channel))
    }
}

fn slow(_: Elapsed) -> Broken {
    Broken::Lost("the leader does not answer".into())
}
