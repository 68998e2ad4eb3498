//! A client that begins more requests on one connection than it may.
use futures::stream::{FuturesUnordered, StreamExt};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tonic::codegen::http::Request;

/// Begins so many requests for a path on one connection before it has heard of any bound, and ends none of them.
/// Returns once `refused` of them were refused for their number, and fails where these are more or fewer.
pub async fn is_refused(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    (begun, path): (usize, &str),
    refused: usize,
) {
    let mut builder = h2::client::Builder::new();
    builder.initial_max_send_streams(begun);
    let (mut requests, mut connection) =
        builder.handshake::<_, bytes::Bytes>(stream).await.unwrap();
    let mut ping = connection.ping_pong().unwrap();
    let (mut answers, mut bodies) = (FuturesUnordered::new(), Vec::new());
    for _ in 0..begun {
        let request = Request::post(format!("http://leader{path}"))
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        let (answer, body) = requests.send_request(request, false).unwrap();
        answers.push(answer);
        bodies.push(body);
    }
    let driving = tokio::spawn(connection);
    for at in 0..refused {
        let answer = timeout(Duration::from_secs(20), answers.next()).await;
        let answer = answer.unwrap_or_else(|_| panic!("{at} of {begun} are refused"));
        let error = answer.unwrap().unwrap_err();
        assert_eq!(error.reason(), Some(h2::Reason::REFUSED_STREAM), "{error}");
    }
    // When the answer to this is there, so is every refusal.
    ping.ping(h2::Ping::opaque()).await.unwrap();
    let more = futures::FutureExt::now_or_never(answers.next());
    assert!(more.is_none(), "{refused} of {begun}, and {more:?}");
    driving.abort();
}
