#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::super::rights::Peer;
use super::*;
use robust_proto::v1;
use robust_shared::verbs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

#[test]
fn the_log_shows_what_was_asked_without_what_was_not_given() {
    let request = v1::InjectRequest {
        fault: "kill".to_owned(),
        role: "trainer".to_owned(),
        index: Some(0),
        ..v1::InjectRequest::default()
    };
    assert_eq!(
        content("Inject", &request.encode_to_vec()),
        r#"{"fault":"kill","index":0,"role":"trainer","wait_timeout_ms":0}"#
    );
    let note = v1::NoteRequest {
        incident: 3,
        text: "the switch".to_owned(),
    };
    assert_eq!(
        content("Note", &note.encode_to_vec()),
        r#"{"incident":3,"text":"the switch"}"#
    );
    let restart = v1::RestartRequest {
        role: "rollout".to_owned(),
        index: Some(1),
    };
    assert_eq!(
        content("Restart", &restart.encode_to_vec()),
        r#"{"index":1,"role":"rollout"}"#
    );
    assert_eq!(content("Stop", b""), "");
    assert_eq!(
        (name("RestoreSlot"), name("Stop")),
        ("restore-slot".into(), "stop".into())
    );
}

#[test]
fn of_every_verb_that_takes_something_the_log_says_what_was_given() {
    for verb in verbs::ALL {
        let said = content(verb.call, b"\xff\xff");
        assert_eq!(said, "not readable", "{}", verb.command);
        let takes = !verb.takes.is_empty();
        let said = content(verb.call, b"");
        assert_eq!(said.starts_with('{'), takes, "{}: {said}", verb.command);
    }
}

/// A service that says how often it was called.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicU32>);

impl Service<Request<Body>> for Counted {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(Response::new(Body::empty())) })
    }
}

/// A body that never ends; how much of it was read is counted.
fn without_end(read: Arc<AtomicUsize>) -> Body {
    let piece = move || {
        read.fetch_add(65_536, Ordering::Relaxed);
        Ok::<_, Infallible>(bytes::Bytes::from_static(&[0; 65_536]))
    };
    Body::new(axum::body::Body::from_stream(futures::stream::repeat_with(
        piece,
    )))
}

/// No token was taken back.
fn none(temp: &tempfile::TempDir) -> Revoked {
    Revoked::open(&temp.path().join("persons.revoked")).unwrap()
}

/// What an endless request to inject gets, how much of it was read, how often the service was called,
/// and the lines of the audit log.
async fn endless(rights: Rights) -> (Code, usize, u32, usize) {
    let temp = tempfile::tempdir().unwrap();
    let audit = Audit::open(temp.path()).unwrap();
    let (service, read) = (Counted::default(), Arc::<AtomicUsize>::default());
    let mut gate = Gate::new(service.clone(), audit.clone(), none(&temp));
    let mut request = Request::new(without_end(Arc::clone(&read)));
    *request.uri_mut() = "/robust.v1.Control/Inject".parse().unwrap();
    let local = Peer::Local(None);
    request.extensions_mut().insert(Caller::new(local, rights));
    let answer = gate.call(request).await.unwrap();
    let code = Status::from_header_map(answer.headers()).unwrap().code();
    let calls = service.0.load(Ordering::Relaxed);
    let read = read.load(Ordering::Relaxed);
    (
        code,
        read,
        calls,
        audit
            .read(crate::audit::Position::default())
            .unwrap()
            .0
            .len(),
    )
}

#[tokio::test]
async fn of_a_viewers_request_for_a_change_nothing_is_read() {
    let answer = endless(Rights::Viewer).await;
    assert_eq!(answer, (Code::PermissionDenied, 0, 0, 1));
}

#[tokio::test]
async fn an_operators_request_that_does_not_end_is_given_up_at_its_bound() {
    let (code, read, calls, lines) = endless(Rights::Operator).await;
    assert_eq!((code, calls, lines), (Code::ResourceExhausted, 0, 0));
    assert!(read <= MOST_BYTES + 131_072, "{read}");
}

#[tokio::test(start_paused = true)]
async fn an_operators_request_that_stalls_is_given_up_in_time() {
    let temp = tempfile::tempdir().unwrap();
    let (service, audit) = (Counted::default(), Audit::open(temp.path()).unwrap());
    let mut gate = Gate::new(service.clone(), audit, none(&temp));
    let stalls = futures::stream::pending::<Result<bytes::Bytes, Infallible>>();
    let mut request = Request::new(Body::new(axum::body::Body::from_stream(stalls)));
    *request.uri_mut() = "/robust.v1.Control/Stop".parse().unwrap();
    let operator = Caller::new(Peer::Local(None), Rights::Operator);
    request.extensions_mut().insert(operator);
    let begun = tokio::time::Instant::now();
    let answer = tokio::time::timeout(10 * BODY_WITHIN, gate.call(request)).await;
    let answer = answer.expect("it is given up").unwrap();
    let status = Status::from_header_map(answer.headers()).unwrap();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!(service.0.load(Ordering::Relaxed), 0);
    assert!(begun.elapsed() < 2 * BODY_WITHIN);
}

async fn reads(caller: Option<Caller>) -> (Code, u32) {
    let temp = tempfile::tempdir().unwrap();
    let service = Counted::default();
    let mut gate = Gate::new(
        service.clone(),
        Audit::open(temp.path()).unwrap(),
        none(&temp),
    );
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = "/robust.v1.Control/GetStatus".parse().unwrap();
    if let Some(caller) = caller {
        request.extensions_mut().insert(caller);
    }
    let answer = gate.call(request).await.unwrap();
    let code = Status::from_header_map(answer.headers()).map_or(Code::Ok, |s| s.code());
    (code, service.0.load(Ordering::Relaxed))
}

#[tokio::test]
async fn a_role_and_whoever_nobody_knows_get_nothing_not_even_a_look() {
    let of = |rights| Some(Caller::new(Peer::Local(None), rights));
    assert_eq!(reads(of(Rights::Viewer)).await, (Code::Ok, 1));
    assert_eq!(reads(of(Rights::Role)).await, (Code::PermissionDenied, 0));
    assert_eq!(reads(None).await, (Code::Unauthenticated, 0));
    let answer = endless(Rights::Role).await;
    assert_eq!(answer, (Code::PermissionDenied, 0, 0, 1));
}
