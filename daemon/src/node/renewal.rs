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
use crate::nodes::{HANDSHAKE, unix_ms};
use robust_proto::v1;
use robust_proto::v1::node_host_client::NodeHostClient;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How often the clock is looked at: it may be set while a node sleeps.
const LOOK: Duration = Duration::from_secs(600);
/// Before a leader that did not answer is asked again.
const AGAIN: Duration = Duration::from_secs(60);

/// Keeps the certificate good until the node ends.
pub(super) async fn run(config: Arc<NodeConfig>, credentials: Arc<Credentials>) {
    loop {
        let wait = match credentials.is_renewed_at(unix_ms()) {
            true => match renew(&config, &credentials).await {
                Ok(()) => LOOK,
                Err(broken) => {
                    tracing::debug!("no new certificate: {}", broken.reason());
                    AGAIN
                }
            },
            false => LOOK,
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // A certificate of the first time, or a leader that is there again.
            () = credentials.looked_at() => {}
        }
    }
}

async fn renew(config: &NodeConfig, credentials: &Arc<Credentials>) -> Result<(), Broken> {
    let way = Way::new(&config.leader, Arc::clone(credentials).certified_caller());
    let key = credentials.uncertified()?;
    let request = v1::EnrollRequest {
        name: config.name.clone(),
        public_key: key.public().to_vec(),
    };
    let slow = |_| Broken::Lost("the leader does not answer".into());
    let mut client = NodeHostClient::new(way.connect().await?);
    let enrolled = timeout(HANDSHAKE, client.enroll(request)).await;
    credentials.certified(&key, &enrolled.map_err(slow)??.into_inner())?;
    tracing::info!("the certificate of {} is new", config.name);
    // By a connection of its own: what was called before was called by the old one.
    let mut client = NodeHostClient::new(way.connect().await?);
    let called = timeout(HANDSHAKE, client.clock(v1::ClockRequest {})).await;
    called.map_err(slow)??;
    Ok(())
}
