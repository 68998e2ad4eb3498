//! A receiver of the webhook: hands on what is posted, and answers as it is told.
#![allow(dead_code, clippy::unwrap_used)]
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How long a test waits for a document that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was posted: head and body.
pub type Posted = (HeaderMap, Bytes);

/// What it answers from now on.
#[derive(Clone, Default)]
pub struct Answers(Arc<Mutex<Kept>>);

struct Kept {
    next: VecDeque<StatusCode>,
    then: StatusCode,
    location: String,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            next: VecDeque::new(),
            then: StatusCode::NO_CONTENT,
            location: String::new(),
        }
    }
}

impl Answers {
    /// This to everything.
    pub fn always(&self, code: StatusCode) {
        self.0.lock().unwrap().then = code;
    }

    /// With this as the place to go to.
    pub fn leads_to(&self, url: &str) {
        url.clone_into(&mut self.0.lock().unwrap().location);
    }

    fn take(&self) -> (StatusCode, String) {
        let mut kept = self.0.lock().unwrap();
        let code = kept.next.pop_front().unwrap_or(kept.then);
        (code, kept.location.clone())
    }
}

/// One on a port of its own, whose first answers these are.
pub async fn receiver(first: &[StatusCode]) -> (String, UnboundedReceiver<Posted>, Answers) {
    let (router, posted, answers) = taking(first);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, router).await });
    (url, posted, answers)
}

/// What it does with a connection, however that comes.
pub fn taking(first: &[StatusCode]) -> (Router, UnboundedReceiver<Posted>, Answers) {
    type Handler = (UnboundedSender<Posted>, Answers);
    async fn take(
        State((to, answers)): State<Handler>,
        head: HeaderMap,
        body: Bytes,
    ) -> (StatusCode, [(axum::http::HeaderName, String); 1]) {
        // The test may be over.
        let _ = to.send((head, body));
        let (code, location) = answers.take();
        (code, [(LOCATION, location)])
    }
    let answers = Answers::default();
    answers.0.lock().unwrap().next.extend(first);
    let (to, posted) = unbounded_channel();
    let router = Router::new()
        .fallback(take)
        .with_state((to, answers.clone()));
    (router, posted, answers)
}

/// The next document, when it comes.
pub async fn next(posted: &mut UnboundedReceiver<Posted>) -> Posted {
    tokio::time::timeout(PATIENCE, posted.recv())
        .await
        .unwrap()
        .unwrap()
}
