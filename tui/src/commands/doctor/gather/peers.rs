//! A leader's answer, and the time it took.
use super::super::facts::{Answer, Found, Peer};
use hyper_util::rt::TokioIo;
use robust_identity::{Caller, Holders, Unsealed, unsealed};
use robust_proto::v1;
use robust_proto::v1::node_host_client::NodeHostClient;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::{Endpoint, Uri};

/// For the connection, and for each answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The quickest of these counts: its way had the least to add.
const ROUNDS: usize = 8;

/// Asks a daemon for its clock, as one that has the token of this file.
pub(super) async fn ask(at: SocketAddr, token_file: &Path) -> Peer {
    let answer = match caller(token_file) {
        Ok(caller) => quickest(at, caller).await,
        Err(reason) => Err(reason),
    };
    Peer { at, answer }
}

fn caller(token_file: &Path) -> Found<Caller> {
    let token = std::fs::read_to_string(token_file);
    let token = token.map_err(|e| format!("--token-file {}: {e}", token_file.display()))?;
    let caller = Holders::of(&token).and_then(|holders| holders.caller());
    caller.map_err(|e| e.to_string())
}

async fn quickest(at: SocketAddr, caller: Caller) -> Found<Answer> {
    let endpoint = Endpoint::from_shared(format!("http://{at}")).map_err(|e| e.to_string())?;
    let endpoint = endpoint.connect_timeout(PATIENCE).timeout(PATIENCE);
    let connector = tower::service_fn(move |_: Uri| {
        let caller = caller.clone();
        async move {
            let stream = timeout(PATIENCE, TcpStream::connect(at)).await??;
            let sealed = timeout(PATIENCE, caller.call(stream)).await??;
            Ok::<_, io::Error>(TokioIo::new(sealed))
        }
    });
    let channel = endpoint.connect_with_connector(connector).await;
    let channel = channel.map_err(|e| match unsealed(&e) {
        Some(Unsealed::OtherToken) => {
            "it does not know the token of --token-file (one that robustctl token create made is good for \
             its time alone)"
                .to_owned()
        }
        Some(Unsealed::NoTls) => "it speaks no TLS 1.3: is it a robustd of this build?".to_owned(),
        Some(Unsealed::OursIsOver | Unsealed::TheirsIsOver) => {
            "one of the two sides takes the other's certificate for expired: compare the clocks of both machines"
                .to_owned()
        }
        None => said(&e),
    })?;
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
