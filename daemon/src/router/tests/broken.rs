//! Replies under way: streams, engines that die in them, clients that leave or do not read.
use super::fixture::*;
use axum::body::{Body, Bytes};
use robust_engine::Lines;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const EVENTS: &str = "text/event-stream; charset=utf-8";

#[tokio::test]
async fn each_event_goes_on_before_the_next_is_made() {
    let (engine, say) = streams(EVENTS).await;
    let site = Site::new(vec![engine]).await;
    say.send(Ok("data: 1\n\n")).unwrap();
    let mut body = site
        .begin("POST", "/v1/completions", "{}")
        .await
        .into_body();
    assert_eq!(piece(&mut body).await.unwrap().unwrap(), "data: 1\n\n");
    assert_eq!(site.open(), 1, "it counts while it runs");
    say.send(Ok("data: 2\n\n")).unwrap();
    assert_eq!(piece(&mut body).await.unwrap().unwrap(), "data: 2\n\n");
    drop(say);
    assert!(piece(&mut body).await.is_none());
    until("the ticket is back", || site.open() == 0).await;
}

#[tokio::test]
async fn a_stream_whose_engine_dies_ends_with_an_error_and_is_not_begun_again() {
    let (engine, say) = streams(EVENTS).await;
    let site = Site::new(vec![engine, says(200, "{}").await]).await;
    say.send(Ok("data: {\"text\": \"a\"}\n\ndata: {\"te"))
        .unwrap();
    let response = site.begin("POST", "/generate", "{}").await;
    say.send(Err(io::Error::other("killed"))).unwrap();
    let (status, _, body) = whole(response).await;
    assert_eq!(status.as_u16(), 200);
    let events = Lines::default().feed(body.as_bytes()).unwrap();
    assert_eq!(events.len(), 4, "{body}");
    assert_eq!(
        (events[0].as_str(), events[3].as_str()),
        (r#"{"text": "a"}"#, "[DONE]")
    );
    let refused = robust_engine::Refused::of(503, &events[2]);
    assert!(
        refused.message.contains("the engine broke off"),
        "{refused}"
    );
    assert_eq!(site.given(), [0]);
    until("the ticket is back", || site.open() == 0).await;
}

#[tokio::test]
async fn a_half_sent_object_is_seen_to_be_broken() {
    let (engine, say) = streams("application/json").await;
    let site = Site::new(vec![engine]).await;
    say.send(Ok("{\"te")).unwrap();
    let mut body = site.begin("POST", "/generate", "{}").await.into_body();
    say.send(Err(io::Error::other("killed"))).unwrap();
    assert_eq!(piece(&mut body).await.unwrap().unwrap(), "{\"te");
    assert!(piece(&mut body).await.unwrap().is_err());
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_frees_ticket_and_engine() {
    let (engine, say) = streams(EVENTS).await;
    let site = Site::new(vec![engine]).await;
    say.send(Ok("data: 1\n\n")).unwrap();
    let mut body = site.begin("POST", "/generate", "{}").await.into_body();
    assert!(piece(&mut body).await.is_some());
    drop(body);
    until("the ticket is back", || site.open() == 0).await;
    until("the engine's work ends", || say.is_closed()).await;
}

/// Notes that the work on a request ended.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_the_reply_frees_ticket_and_engine() {
    let ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&ended);
    let engine = engine(move |_, _| {
        let ends = Ends(Arc::clone(&ends));
        async move {
            std::future::pending::<()>().await;
            drop(ends);
            reply(200, EVENTS, Body::empty())
        }
    });
    let site = Site::new(vec![engine.await]).await;
    let leaves = tokio::select! {
        _ = site.generate() => false,
        () = until("it is asked", || !site.given().is_empty()) => true,
    };
    assert!(leaves);
    until("the ticket is back", || site.open() == 0).await;
    until("the engine's work ends", || ended.load(Ordering::Relaxed)).await;
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_for_an_engine_frees_its_ticket() {
    let site = Site::new(Vec::new()).await;
    tokio::select! {
        _ = site.generate() => panic!("nobody answers"),
        () = until("it waits", || site.open() == 1) => {}
    }
    until("the ticket is back", || site.open() == 0).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_no_engine_up() {
    const PIECES: usize = 300;
    let engine = engine(|_, _| async {
        let piece = Bytes::from(vec![b'x'; 1 << 16]);
        let pieces =
            futures::stream::iter((0..PIECES).map(move |_| Ok::<_, io::Error>(piece.clone())));
        reply(200, "application/json", Body::from_stream(pieces))
    });
    let site = Site::new(vec![engine.await]).await;
    let response = site.begin("POST", "/generate", "{}").await;
    // More than sockets hold: the engine said everything all the same.
    until("the ticket is back", || site.open() == 0).await;
    let (_, _, body) = whole(response).await;
    assert_eq!(body.len(), PIECES << 16);
}
