//! Probes: of a rollout, one GET that makes it generate a token; of a service, a GET of its route, or
//! just a connection.
use crate::engines::status_of;
use robust_identity::{EngineClient, EngineKey};
use std::time::Duration;
use tokio::net::TcpStream;

/// Whether the rollout at `addr`, as its hello has it, which takes this key, answered `/health_generate` with 200 in time.
pub async fn health_generate(
    addr: &str,
    client: Option<&EngineClient>,
    key: &EngineKey,
    timeout: Duration,
) -> bool {
    let asked = generate(addr, client, key);
    is_well(asked, timeout).await
}

/// The status with which the same rollout answered in time, or why there is none, in words.
pub async fn asked_to_generate(
    addr: &str,
    client: Option<&EngineClient>,
    key: &EngineKey,
    timeout: Duration,
) -> Result<u16, String> {
    let asked = tokio::time::timeout(timeout, generate(addr, client, key)).await;
    let asked = asked.map_err(|_| format!("it did not answer within {timeout:?}"))?;
    asked.map_err(|error| format!("it cannot be reached: {error}"))
}

async fn generate(
    addr: &str,
    client: Option<&EngineClient>,
    key: &EngineKey,
) -> std::io::Result<u16> {
    let head = format!(
        "GET /health_generate HTTP/1.1\r\nAuthorization: {}",
        key.bearer()
    );
    status_of(addr, client, &head, "").await
}

/// Whether `addr` (`ip:port`) answered a GET of this route with 200 in time.
pub async fn answers(addr: &str, path: &str, timeout: Duration) -> bool {
    let head = format!("GET {path} HTTP/1.1");
    is_well(status_of(addr, None, &head, ""), timeout).await
}

async fn is_well(asked: impl Future<Output = std::io::Result<u16>>, timeout: Duration) -> bool {
    matches!(tokio::time::timeout(timeout, asked).await, Ok(Ok(200)))
}

/// Whether `addr` (`ip:port`) accepted a connection in time.
pub async fn accepts(addr: &str, timeout: Duration) -> bool {
    let connected = tokio::time::timeout(timeout, TcpStream::connect(addr)).await;
    matches!(connected, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn answering(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut peer, _) = listener.accept().await.unwrap();
            let mut request = [0; 256];
            let _ = peer.read(&mut request).await.unwrap();
            peer.write_all(answer.as_bytes()).await.unwrap();
            if answer.is_empty() {
                std::future::pending::<()>().await;
            }
        });
        addr
    }

    async fn is_healthy(addr: &str, timeout: Duration) -> bool {
        health_generate(addr, None, &EngineKey::known("k"), timeout).await
    }

    #[tokio::test]
    async fn only_a_200_in_time_is_healthy() {
        let second = Duration::from_secs(1);
        assert!(is_healthy(&answering("HTTP/1.1 200 OK\r\n\r\n").await, second).await);
        assert!(!is_healthy(&answering("HTTP/1.1 503 Busy\r\n\r\n").await, second).await);
        assert!(!is_healthy(&answering("").await, Duration::from_millis(50)).await);
    }

    #[tokio::test]
    async fn what_a_rollout_answers_or_that_it_does_not_is_told() {
        let key = EngineKey::known("k");
        let ask = async |addr: &str, ms| {
            asked_to_generate(addr, None, &key, Duration::from_millis(ms)).await
        };
        let busy = answering("HTTP/1.1 503 Busy\r\n\r\n").await;
        assert_eq!(ask(&busy, 60_000).await, Ok(503));
        let silent = ask(&answering("").await, 50).await.unwrap_err();
        assert_eq!(silent, "it did not answer within 50ms");
        let gone = ask("127.0.0.1:1", 60_000).await.unwrap_err();
        assert!(gone.starts_with("it cannot be reached: "), "{gone}");
    }

    #[tokio::test]
    async fn a_rollout_that_is_gone_is_not_healthy() {
        assert!(!is_healthy("127.0.0.1:1", Duration::from_secs(1)).await);
        assert!(!is_healthy("nonsense", Duration::from_secs(1)).await);
    }
}
