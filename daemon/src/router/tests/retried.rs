//! What is asked of another engine, and what is not.
use super::fixture::*;
use axum::body::Body;
use axum::http::header;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const FINE: &str = r#"{"text": "fine"}"#;

#[tokio::test]
async fn an_engine_that_fails_before_its_first_byte_is_left_for_another() {
    let cut = engine(|_, _| async {
        let pieces = futures::stream::iter([Err::<&str, _>(std::io::Error::other("cut"))]);
        reply(200, "text/event-stream", Body::from_stream(pieces))
    });
    for failing in [
        nobody().await,
        breaks_off().await,
        cut.await,
        says(503, "later").await,
        says(500, "broken").await,
        says(429, "busy").await,
        says(408, "slow").await,
        String::new(),
    ] {
        let site = Site::new(vec![failing.clone(), says(200, FINE).await]).await;
        let (status, _, body) = site.generate().await;
        assert_eq!((status.as_u16(), body.as_str()), (200, FINE), "{failing}");
        assert_eq!(site.given(), [0, 1]);
        until("the tickets are back", || site.open() == 0).await;
    }
}

#[tokio::test]
async fn what_the_client_did_wrong_it_is_told_as_the_engine_says_it() {
    for status in [400, 404, 409, 413, 422] {
        let says = says(status, r#"{"error": {"message": "no"}}"#).await;
        let site = Site::new(vec![says, nobody().await]).await;
        let (got, _, body) = site.generate().await;
        assert_eq!(
            (got.as_u16(), body.as_str()),
            (status, r#"{"error": {"message": "no"}}"#)
        );
        assert_eq!(site.given(), [0]);
    }
}

#[tokio::test]
async fn three_engines_are_asked_and_the_last_ones_refusal_is_the_answer() {
    let mut engines = Vec::new();
    for _ in 0..4 {
        engines.push(says(503, r#"{"error": {"message": "paused"}}"#).await);
    }
    let site = Site::new(engines).await;
    let (status, headers, body) = site.generate().await;
    assert_eq!(status.as_u16(), 503);
    assert_eq!(body, r#"{"error": {"message": "paused"}}"#);
    assert!(headers.contains_key(header::RETRY_AFTER));
    let given = site.given();
    assert_eq!(given.len(), 3);
    assert!(given.windows(2).all(|two| two[0] != two[1]), "{given:?}");
    until("the tickets are back", || site.open() == 0).await;
}

#[tokio::test]
async fn engines_that_are_not_reached_are_named_in_the_refusal() {
    let site = Site::new(vec![nobody().await, nobody().await]).await;
    let (status, headers, body) = site.generate().await;
    assert_eq!(status.as_u16(), 503, "{body}");
    assert!(headers.contains_key(header::RETRY_AFTER));
    assert!(body.contains("3 engines failed the request"), "{body}");
}

#[tokio::test]
async fn the_only_engine_is_asked_again() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let engine = engine(move |_, _| {
        let status = match count.fetch_add(1, Ordering::Relaxed) {
            0 => 503,
            _ => 200,
        };
        async move { reply(status, "application/json", Body::from(FINE)) }
    });
    let site = Site::new(vec![engine.await]).await;
    let (status, _, body) = site.generate().await;
    assert_eq!((status.as_u16(), body.as_str()), (200, FINE));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    until("the tickets are back", || site.open() == 0).await;
}

#[tokio::test]
async fn a_request_with_which_two_engines_broke_off_is_given_to_no_third() {
    let engines = vec![
        breaks_off().await,
        breaks_off().await,
        says(200, FINE).await,
    ];
    let site = Site::new(engines).await;
    // The third is the busiest.
    site.asked
        .lock()
        .unwrap()
        .open
        .extend([(1, Some(2)), (2, Some(2))]);
    let (status, headers, body) = site.generate().await;
    assert_eq!(status.as_u16(), 502, "{body}");
    assert!(!headers.contains_key(header::RETRY_AFTER));
    assert_eq!(site.given(), [0, 1]);
}
