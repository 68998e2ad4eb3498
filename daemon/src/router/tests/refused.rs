//! Who is not served, and what is passed on of who is.
use super::super::Limits;
use super::fixture::*;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn without_the_key_only_the_health_is_told() {
    let site = Site::new(vec![says(200, "{}").await]).await;
    let wrong = format!("Bearer {}", "0".repeat(64));
    let basic = format!("Basic {}", site.key);
    for key in [
        None,
        Some(wrong.as_str()),
        Some("Bearer"),
        Some(basic.as_str()),
    ] {
        for path in ["/generate", "/pause_generation", "/nonsense"] {
            let (status, headers, body) = whole(site.send("POST", path, "{}", key).await).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{key:?} {path}");
            assert_eq!(headers[header::WWW_AUTHENTICATE], "Bearer");
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            let text = body["error"].as_str().unwrap();
            assert!(
                text.contains("router.key") && !text.contains(&site.key),
                "{text}"
            );
        }
    }
    assert!(site.given().is_empty());
    let (status, _, body) = whole(site.send("GET", "/health", "", None).await).await;
    assert_eq!(
        (status.as_u16(), body.as_str()),
        (200, r#"{"engines":1,"status":"ok"}"#)
    );
    site.is_now("stopped");
    let (status, ..) = whole(site.send("GET", "/health", "", None).await).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn the_engine_gets_the_request_as_it_is_but_with_its_own_key() {
    let seen: Arc<Mutex<Option<(HeaderMap, Bytes)>>> = Arc::default();
    let note = Arc::clone(&seen);
    let engine = engine(move |headers, body| {
        *note.lock().unwrap() = Some((headers, body));
        async { reply(200, "application/json", Body::from(r#"{"text": "x"}"#)) }
    });
    let site = Site::new(vec![engine.await]).await;
    let (status, headers, body) = site.generate().await;
    assert_eq!((status.as_u16(), body.as_str()), (200, r#"{"text": "x"}"#));
    assert_eq!(headers[header::CONTENT_TYPE], "application/json");
    let (headers, body) = seen.lock().unwrap().take().unwrap();
    assert_eq!(&body[..], br#"{"input_ids": [1]}"#);
    assert_eq!(headers[header::CONTENT_TYPE], "application/json");
    let keys = robust_identity::EngineKeys::of(b"job");
    let shown = headers[header::AUTHORIZATION].to_str().unwrap();
    let is_of = |engine| keys.of_engine(engine).is_shown_by(shown);
    assert!((0..8).any(is_of), "the engine's key, and not the client's");
    until("the ticket is back", || site.open() == 0).await;
}

#[tokio::test]
async fn what_changes_an_engine_and_what_none_has_reaches_nobody() {
    let site = Site::new(vec![says(200, "{}").await]).await;
    for (path, status) in [
        ("/pause_generation", 403),
        ("/update_weights_from_disk", 403),
        ("/flush_cache", 403),
        ("/abort_request", 403),
        ("/inference/v1/generate", 404),
        ("/nonsense", 404),
    ] {
        let (got, _, body) = whole(site.begin("POST", path, "{}").await).await;
        assert_eq!(got.as_u16(), status, "{path}");
        let refused = robust_engine::Refused::of(status, &body);
        assert!(
            refused.client && refused.message.contains(path),
            "{refused}"
        );
    }
    assert!(site.given().is_empty());
}

#[tokio::test]
async fn a_body_without_bounds_is_refused() {
    let site = Site::new(vec![says(200, "{}").await]).await;
    let long = "x".repeat(super::super::MAX_BODY_BYTES + 1);
    let (status, _, body) = whole(site.begin("POST", "/generate", &long).await).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{body}");
    assert!(site.given().is_empty());
}

#[tokio::test]
async fn requests_beyond_those_that_may_be_under_way_are_told_to_come_later() {
    let engine = engine(|_, body: Bytes| async move {
        match &body[..] == b"{}" {
            // It never comes to an end.
            true => {
                let stream = futures::stream::pending::<Result<Bytes, std::io::Error>>();
                let first = futures::stream::iter([Ok(Bytes::from_static(b"data: {}\n\n"))]);
                let pieces = futures::StreamExt::chain(first, stream);
                reply(200, "text/event-stream", Body::from_stream(pieces))
            }
            false => reply(200, "application/json", Body::from("{}")),
        }
    });
    let limits = Limits {
        requests: 1,
        ..Limits::default()
    };
    let site = Site::within(limits, vec![engine.await]).await;
    let under_way = site.begin("POST", "/generate", "{}").await;
    assert_eq!(under_way.status(), StatusCode::OK);
    let (status, headers, body) = site.generate().await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{body}");
    assert_eq!(headers[header::RETRY_AFTER], "1");
    // A client that leaves makes room.
    drop(under_way);
    let room = async { while site.generate().await.0 != StatusCode::OK {} };
    let room = tokio::time::timeout(Duration::from_secs(20), room).await;
    room.expect("there is room again");
    assert_eq!(Limits::default().requests, 1024);
}

#[tokio::test]
async fn a_body_that_does_not_come_to_its_end_is_not_waited_for() {
    let limits = Limits {
        upload: Duration::from_millis(100),
        ..Limits::default()
    };
    let site = Site::within(limits, vec![says(200, "{}").await]).await;
    let head = format!(
        "POST /generate HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: 9\r\n\r\n{{",
        site.key
    );
    let mut slow = TcpStream::connect(&site.address).await.unwrap();
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut said = [0; 12];
    let reading = tokio::time::timeout(Duration::from_secs(20), slow.read_exact(&mut said));
    reading.await.expect("it is answered").unwrap();
    assert_eq!(&said, b"HTTP/1.1 408");
    assert!(site.given().is_empty());
    assert_eq!(Limits::default().upload, Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn who_has_the_key_and_says_nothing_more_or_half_a_head_is_not_waited_for_without_end() {
    let site = Site::new(Vec::new()).await;
    let head = format!(
        "GET /nonsense HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
        site.key
    );
    for more in ["", "GET /nonsense HT"] {
        let begun = tokio::time::Instant::now();
        let mut idle = TcpStream::connect(&site.address).await.unwrap();
        idle.write_all(head.as_bytes()).await.unwrap();
        let mut said = [0; 12];
        idle.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"HTTP/1.1 404");
        idle.write_all(more.as_bytes()).await.unwrap();
        while idle.read(&mut [0; 512]).await.is_ok_and(|read| read > 0) {}
        let lived = begun.elapsed();
        assert!(lived <= 2 * robust_http::IDLE, "{more:?}: {lived:?}");
        assert!(lived > robust_http::PATIENCE, "{more:?}: {lived:?}");
    }
}

#[tokio::test]
async fn while_no_engine_serves_a_request_waits_and_is_told_to_come_again() {
    let site = Site::waiting(Vec::new(), Duration::from_millis(50)).await;
    site.is_now("paused");
    let (status, headers, body) = site.generate().await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(headers[header::RETRY_AFTER], "1");
    assert!(body.contains("the job is paused"), "{body}");
    until("the ticket is back", || site.open() == 0).await;
}

#[tokio::test]
async fn the_jobs_end_answers_those_who_wait_and_those_who_come() {
    let site = Site::new(Vec::new()).await;
    let waits = site.generate();
    let ends = async {
        until("a request waits", || site.open() == 1).await;
        site.is_now("stopped");
    };
    let ((status, headers, body), ()) = tokio::join!(waits, ends);
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(headers.contains_key(header::RETRY_AFTER));
    assert!(body.contains("the job is stopped"), "{body}");
    let (status, ..) = site.generate().await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    until("the tickets are back", || site.open() == 0).await;
}

#[tokio::test]
async fn strangers_who_hold_connections_keep_nobody_out_who_has_the_key() {
    let site = Site::new(vec![says(200, "{}").await]).await;
    let mut strangers = Vec::new();
    for _ in 0..2 * robust_http::MOST_UNPROVEN {
        let mut stranger = TcpStream::connect(&site.address).await.unwrap();
        stranger.write_all(b"POST /generate").await.unwrap();
        strangers.push(stranger);
    }
    let (status, ..) = site.generate().await;
    assert_eq!(status, StatusCode::OK);
    // The first of them made room long ago: what it waits for is the end of its connection.
    while strangers[0]
        .read(&mut [0; 64])
        .await
        .is_ok_and(|read| read > 0)
    {}
}

#[tokio::test(start_paused = true)]
async fn who_shows_no_key_in_time_is_not_waited_for() {
    let site = Site::new(Vec::new()).await;
    for said in ["", "GET /hea", "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"] {
        let begun = tokio::time::Instant::now();
        let mut slow = TcpStream::connect(&site.address).await.unwrap();
        slow.write_all(said.as_bytes()).await.unwrap();
        while slow.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
        assert!(begun.elapsed() <= 2 * robust_http::PATIENCE, "{said:?}");
    }
}
