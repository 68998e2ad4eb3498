//! Scrapes beside those who hold connections.
use super::super::serve;
use super::*;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn served() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let metrics = Metrics::new("n0");
    let text: Text = Arc::new(move || metrics.encode());
    tokio::spawn(serve(listener, robust_http::Wire::Plain, None, text));
    at
}

async fn said(stream: &mut TcpStream) -> String {
    let mut said = String::new();
    // A reset ends it as well.
    let _ = stream.read_to_string(&mut said).await;
    said
}

#[tokio::test]
async fn a_scrape_is_answered_beside_those_who_hold_connections() {
    let at = served().await;
    let mut strangers = Vec::new();
    for _ in 0..2 * robust_http::MOST_UNPROVEN {
        let mut stranger = TcpStream::connect(at).await.unwrap();
        stranger.write_all(b"GET /metrics").await.unwrap();
        strangers.push(stranger);
    }
    let mut scraper = TcpStream::connect(at).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    scraper.write_all(request.as_bytes()).await.unwrap();
    let answer = said(&mut scraper).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\nrobust_"), "{answer}");
    assert_eq!(said(&mut strangers[0]).await, "", "it made room");
}

#[tokio::test(start_paused = true)]
async fn a_connection_lives_for_a_few_seconds_whatever_is_asked_on_it() {
    let at = served().await;
    let begun = tokio::time::Instant::now();
    let mut slow = TcpStream::connect(at).await.unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\n\r\n");
    slow.write_all(request.as_bytes()).await.unwrap();
    assert!(said(&mut slow).await.starts_with("HTTP/1.1 200"));
    assert!(begun.elapsed() <= 2 * robust_http::PATIENCE);
}
