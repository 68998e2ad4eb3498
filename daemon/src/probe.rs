//! Probes: of a rollout, one GET that makes it generate a token; of a service, a GET of its route, or
//! just a connection.
use robust_identity::EngineKey;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Whether the rollout at `addr` (`ip:port`), which takes this key, answered `/health_generate` with 200 in time.
pub async fn health_generate(addr: &str, key: &EngineKey, timeout: Duration) -> bool {
    let shown = format!("Authorization: {}\r\n", key.bearer());
    is_well(addr, "/health_generate", &shown, timeout).await
}

/// Whether `addr` (`ip:port`) answered a GET of this route with 200 in time.
pub async fn answers(addr: &str, path: &str, timeout: Duration) -> bool {
    is_well(addr, path, "", timeout).await
}

async fn is_well(addr: &str, path: &str, headers: &str, timeout: Duration) -> bool {
    let answered = tokio::time::timeout(timeout, status_of(addr, path, headers)).await;
    matches!(answered, Ok(Ok(200)))
}

/// Whether `addr` (`ip:port`) accepted a connection in time.
pub async fn accepts(addr: &str, timeout: Duration) -> bool {
    let connected = tokio::time::timeout(timeout, TcpStream::connect(addr)).await;
    matches!(connected, Ok(Ok(_)))
}

async fn status_of(addr: &str, path: &str, headers: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect(addr).await?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n{headers}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    // The status line is all that counts: "HTTP/1.1 200".
    while head.len() < 12 {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    let status = head
        .get(9..12)
        .and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
    Ok(status.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
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
        health_generate(addr, &EngineKey::known("k"), timeout).await
    }

    #[tokio::test]
    async fn only_a_200_in_time_is_healthy() {
        let second = Duration::from_secs(1);
        assert!(is_healthy(&answering("HTTP/1.1 200 OK\r\n\r\n").await, second).await);
        assert!(!is_healthy(&answering("HTTP/1.1 503 Busy\r\n\r\n").await, second).await);
        assert!(!is_healthy(&answering("").await, Duration::from_millis(50)).await);
    }

    #[tokio::test]
    async fn a_rollout_that_is_gone_is_not_healthy() {
        assert!(!is_healthy("127.0.0.1:1", Duration::from_secs(1)).await);
        assert!(!is_healthy("nonsense", Duration::from_secs(1)).await);
    }
}
