//! A leader's answer, and the time it took.
use super::super::facts::{Answer, Found, Peer};
use robust_proto::v1;
use robust_proto::v1::node_host_client::NodeHostClient;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tonic::transport::Endpoint;

/// For the connection, and for each answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The quickest of these counts: its way had the least to add.
const ROUNDS: usize = 8;

/// Asks a daemon for its clock.
pub(super) async fn ask(at: SocketAddr) -> Peer {
    let answer = quickest(at).await;
    Peer { at, answer }
}

async fn quickest(at: SocketAddr) -> Found<Answer> {
    let endpoint = Endpoint::from_shared(format!("http://{at}")).map_err(|e| e.to_string())?;
    let endpoint = endpoint.connect_timeout(PATIENCE).timeout(PATIENCE);
    let channel = endpoint.connect().await.map_err(|e| said(&e))?;
    let mut client = NodeHostClient::new(channel);
    let mut best: Option<Answer> = None;
    for _ in 0..ROUNDS {
        let (asked, asked_at) = (Instant::now(), unix_ms());
        let reply = client.clock(v1::ClockRequest {}).await;
        let took_ms = asked.elapsed().as_secs_f64() * 1e3;
        let reply = reply
            .map_err(|status| status.message().to_owned())?
            .into_inner();
        let answer = Answer {
            version: reply.version,
            ahead_ms: reply.unix_us as f64 / 1e3 - (asked_at + took_ms / 2.0),
            within_ms: took_ms / 2.0,
            seen_as: reply.seen_as.parse().ok(),
        };
        if best.as_ref().is_none_or(|b| answer.within_ms < b.within_ms) {
            best = Some(answer);
        }
    }
    best.ok_or_else(|| "it was not asked".to_owned())
}

fn unix_ms() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64() * 1e3
}

/// The innermost cause: the outer ones only say that there was no connection.
fn said(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
