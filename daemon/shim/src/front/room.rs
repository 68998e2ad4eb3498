//! What clients of an engine of the user's may cost at a time, whatever the engine itself would take.
//!
//! ```text
//!  request ──► a place, until its reply is over ──► its body, read within a time and a budget ──► its route
//!               │ none left: 503                     │ too much of all: 503, too long: 400, too slow: 408
//! ```
//! What the job itself asks in order to judge and to steer an engine needs no place: an engine that is full is paused
//! and probed as any other.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use http_body_util::BodyExt;
use robust_engine::serve::Refusal;
use robust_engine::{Kind, Seen};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Failure, MAX_BODY_BYTES};

/// Requests at a time, those that wait at the gate or in the engine among them.
const MOST_REQUESTS: usize = 2048;
/// Bytes of bodies at a time that were read and that the engine does not have yet.
const MOST_BYTES: usize = 1 << 30;
/// How long a client may take to send a body.
const BODY_WITHIN: Duration = Duration::from_secs(120);
/// When one that was sent away may come again.
const AGAIN: Duration = Duration::from_secs(1);

/// The places and the budget; clones share them.
#[derive(Clone)]
pub(super) struct Room {
    kind: Kind,
    requests: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    body_within: Duration,
}

impl Room {
    /// Of an engine of this make.
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            requests: Arc::new(Semaphore::new(MOST_REQUESTS)),
            bytes: Arc::new(Semaphore::new(MOST_BYTES)),
            body_within: BODY_WITHIN,
        }
    }

    /// Lets a request on that there is room for.
    pub(super) async fn enter(State(room): State<Self>, request: Request, next: Next) -> Response {
        match room.take(request, next).await {
            Ok(response) => response,
            Err(failure) => failure.into_response(),
        }
    }

    async fn take(&self, request: Request, next: Next) -> Result<Response, Failure> {
        let place = match self.needs_a_place(&request) {
            true => Some(self.place()?),
            false => None,
        };
        let (head, body) = request.into_parts();
        let reading = tokio::time::timeout(self.body_within, self.read(body)).await;
        let late = || Refusal::Refused {
            status: 408,
            message: "the request's body did not come in time".to_owned(),
        };
        let (body, held) = reading.map_err(|_| late())??;
        let response = next.run(Request::from_parts(head, Body::from(body))).await;
        // The engine has the body, or will not get it.
        drop(held);
        Ok(response.map(|body| {
            Body::new(body.map_frame(move |frame| {
                // Kept until the last piece of the reply went out, or its client is gone.
                let _until_then = &place;
                frame
            }))
        }))
    }

    fn needs_a_place(&self, request: &Request) -> bool {
        const STEER: [&str; 4] = [
            "/pause_generation",
            "/continue_generation",
            "/abort_request",
            "/abort_requests",
        ];
        let (method, path) = (request.method(), request.uri().path());
        // What the bodies say makes no difference here.
        match Seen::of(self.kind, method.as_str(), path, "", b"{}") {
            Some(Seen::Generate) => true,
            Some(_) => false,
            None => *method != Method::GET && !STEER.contains(&path.trim_end_matches('/')),
        }
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let place = Arc::clone(&self.requests).try_acquire_owned();
        place.map_err(|_| {
            Failure::unavailable("as many requests are under way as may be: ask again", AGAIN)
        })
    }

    /// The whole of a body, and its part of the budget.
    async fn read(&self, mut body: Body) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Failure> {
        let (mut all, mut held) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Refusal::bad(format!("the body: {error}")))?;
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            if all.len() + piece.len() > MAX_BODY_BYTES {
                let text = format!("the body has more than {MAX_BODY_BYTES} bytes");
                return Err(Refusal::bad(text).into());
            }
            let more = self.budget(piece.len())?;
            match &mut held {
                Some(held) => held.merge(more),
                None => held = Some(more),
            }
            all.extend_from_slice(&piece);
        }
        Ok((all.freeze(), held))
    }

    fn budget(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let full = || {
            Failure::unavailable(
                "the requests that are being read are as large together as they may be: ask again",
                AGAIN,
            )
        };
        let bytes = u32::try_from(bytes).map_err(|_| full())?;
        let taken = Arc::clone(&self.bytes).try_acquire_many_owned(bytes);
        taken.map_err(|_| full())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use axum::Router;
    use axum::http::{StatusCode, header};
    use axum::routing::any;
    use futures::stream::{iter, pending, repeat_with};
    use futures::{FutureExt, StreamExt};
    use std::convert::Infallible;
    use tower::ServiceExt;

    fn room(requests: usize, bytes: usize) -> Room {
        Room {
            requests: Arc::new(Semaphore::new(requests)),
            bytes: Arc::new(Semaphore::new(bytes)),
            ..Room::new(Kind::Vllm)
        }
    }

    /// An engine that answers `/generate` without end, and says of everything else how long it was.
    fn before(room: &Room) -> Router {
        let answer = async |request: Request| match request.uri().path() {
            "/generate" => {
                let begun = iter([Ok::<_, Infallible>(Bytes::from_static(b"data: {}\n\n"))]);
                Body::from_stream(begun.chain(pending()))
            }
            _ => {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                Body::from(body.len().to_string())
            }
        };
        Router::new()
            .fallback(any(answer))
            .layer(axum::middleware::from_fn_with_state(
                room.clone(),
                Room::enter,
            ))
    }

    fn asks(method: Method, path: &str, body: Body) -> Request {
        Request::builder()
            .method(method)
            .uri(path)
            .body(body)
            .unwrap()
    }

    async fn said(room: &Room, request: Request) -> Response {
        before(room).oneshot(request).await.unwrap()
    }

    fn is_full(response: &Response) {
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    }

    #[tokio::test]
    async fn requests_beyond_the_places_are_told_to_come_later_and_what_steers_is_not_among_them() {
        let room = room(2, 1000);
        let generate = || asks(Method::POST, "/generate", Body::from("{}"));
        let (first, second) = (said(&room, generate()).await, said(&room, generate()).await);
        is_full(&said(&room, generate()).await);
        is_full(
            &said(
                &room,
                asks(Method::POST, "/v1/embeddings", Body::from("{}")),
            )
            .await,
        );
        for (method, path) in [
            (Method::GET, "/health"),
            (Method::GET, "/health_generate"),
            (Method::POST, "/pause_generation"),
            (Method::POST, "/continue_generation"),
            (Method::POST, "/abort_request"),
            (Method::POST, "/pause"),
        ] {
            let answered = said(&room, asks(method, path, Body::from("{}"))).await;
            assert_eq!(answered.status(), StatusCode::OK, "{path}");
        }
        // A client that leaves makes room.
        drop(first);
        assert_eq!(said(&room, generate()).await.status(), StatusCode::OK);
        drop(second);
        assert_eq!(room.requests.available_permits(), 2);
        assert_eq!(room.bytes.available_permits(), 1000);
    }

    #[tokio::test]
    async fn bodies_that_are_read_have_a_bound_together_and_give_their_part_back() {
        let room = room(10, 100);
        let half_sent = iter([Ok::<_, Infallible>(Bytes::from_static(&[b' '; 80]))]);
        let stalls = Body::from_stream(half_sent.chain(pending()));
        let mut reading = Box::pin(said(&room, asks(Method::POST, "/tokenize", stalls)));
        assert!((&mut reading).now_or_never().is_none());
        let tokenize = |bytes: usize| asks(Method::POST, "/tokenize", vec![b' '; bytes].into());
        is_full(&said(&room, tokenize(21)).await);
        let fits = said(&room, tokenize(20)).await;
        assert_eq!(fits.status(), StatusCode::OK);
        let told = fits.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(told, "20", "the route gets the whole of it");
        drop(reading);
        assert_eq!(said(&room, tokenize(100)).await.status(), StatusCode::OK);
        assert_eq!(room.bytes.available_permits(), 100);
    }

    #[tokio::test]
    async fn a_body_of_more_than_its_bound_is_refused() {
        let room = Room::new(Kind::Vllm);
        let piece = Bytes::from(vec![b' '; 1 << 20]);
        let without_end =
            Body::from_stream(repeat_with(move || Ok::<_, Infallible>(piece.clone())));
        let answered = said(&room, asks(Method::POST, "/generate", without_end)).await;
        assert_eq!(answered.status(), StatusCode::BAD_REQUEST);
        assert_eq!(room.bytes.available_permits(), MOST_BYTES);
        assert_eq!(room.requests.available_permits(), MOST_REQUESTS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_gives_its_place_back() {
        let room = room(1, 1000);
        let stalls = Body::from_stream(pending::<Result<Bytes, Infallible>>());
        let asked = said(&room, asks(Method::POST, "/generate", stalls));
        let answered = tokio::time::timeout(2 * BODY_WITHIN, asked).await;
        let answered = answered.unwrap();
        assert_eq!(answered.status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(room.requests.available_permits(), 1);
    }
}
