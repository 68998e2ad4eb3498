//! An engine's reply on its way to the client, each piece as it comes.
//!
//! The engine is read as fast as it writes, however slow the client is: an engine that is held up
//! gives no tokens, and that is what a hanging one is known by. What the client has yet to take is
//! kept, up to a bound.
use super::failure::error;
use super::tickets::Route;
use super::upstream::{Reply, chain, next};
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::Response;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What a client may be behind: cumulative streams repeat the whole turn in every chunk.
const MAX_BEHIND_BYTES: usize = 64 << 20;

type Piece = io::Result<Bytes>;

/// A reply that begins, and what is held for it.
pub(super) struct Answer {
    /// The engine's.
    pub reply: Reply,
    /// Given back when the engine has said everything, or the client is gone.
    pub route: Route,
    /// The room that the request takes.
    pub room: OwnedSemaphorePermit,
}

impl Answer {
    /// The client's reply; the rest of it is read beside.
    pub fn relay(self) -> Response {
        let Answer { reply, route, room } = self;
        let Reply { head, first, rest } = reply;
        let kind = head.headers.get(header::CONTENT_TYPE);
        let is_events = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let (pieces, taken) = unbounded_channel();
        let behind = Arc::new(AtomicUsize::new(0));
        let pump = Pump {
            pieces,
            behind: Arc::clone(&behind),
            is_events,
        };
        tokio::spawn(async move {
            pump.run(first, rest).await;
            drop(route);
            drop(room);
        });
        Response::from_parts(head, client_body(taken, behind))
    }
}

fn client_body(taken: UnboundedReceiver<Piece>, behind: Arc<AtomicUsize>) -> Body {
    let pieces = futures::stream::unfold(taken, move |mut taken| {
        let behind = Arc::clone(&behind);
        async move {
            let piece = taken.recv().await?;
            let bytes = piece.as_ref().map_or(0, Bytes::len);
            behind.fetch_sub(bytes, Ordering::Relaxed);
            Some((piece, taken))
        }
    });
    Body::from_stream(pieces)
}

struct Pump {
    pieces: UnboundedSender<Piece>,
    behind: Arc<AtomicUsize>,
    is_events: bool,
}

impl Pump {
    /// Until the engine has said everything or the client is gone.
    async fn run(&self, first: Bytes, mut rest: Body) {
        let mut piece = Some(Ok(first));
        while let Some(got) = piece {
            match got {
                Ok(bytes) if self.pass(&bytes) => {}
                Ok(_) => return self.break_off("the client reads too slowly"),
                Err(error) => {
                    let reason = chain(&error);
                    return self.break_off(&format!("the engine broke off: {reason}"));
                }
            }
            piece = tokio::select! {
                // Dropping the rest closes the connection, which ends the engine's work on it.
                () = self.pieces.closed() => return,
                next = next(&mut rest) => next,
            };
        }
    }

    /// False when too much would wait for the client.
    fn pass(&self, bytes: &Bytes) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let before = self.behind.fetch_add(bytes.len(), Ordering::Relaxed);
        let fits = before + bytes.len() <= MAX_BEHIND_BYTES;
        if fits {
            // A client that is gone is noticed by the reader.
            let _ = self.pieces.send(Ok(bytes.clone()));
        }
        fits
    }

    /// A reply that is half sent is not begun again elsewhere: its stream ends with an error.
    fn break_off(&self, reason: &str) {
        tracing::debug!(reason, "a client's reply is cut");
        let last = match self.is_events {
            true => Ok(last_event(reason)),
            false => Err(io::Error::other(reason.to_owned())),
        };
        let bytes = last.as_ref().map_or(0, Bytes::len);
        self.behind.fetch_add(bytes, Ordering::Relaxed);
        let _ = self.pieces.send(last);
    }
}

/// The error as both makes put it into a stream, behind what may be half an event.
fn last_event(reason: &str) -> Bytes {
    let error = error(StatusCode::SERVICE_UNAVAILABLE, reason);
    Bytes::from(format!("\n\ndata: {error}\n\ndata: [DONE]\n\n"))
}
