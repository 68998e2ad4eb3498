//! The task that posts, one document after the other.
use super::backlog::Queue;
use super::document::Learnt;
use super::receiver::{Receiver, in_words};
use crate::metrics::{Hooked, Metrics};
use crate::store::{Store, Told};
use aws_lc_rs::hmac;
use bytes::Bytes;
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use std::fmt::Write as _;
use std::sync::Arc;

/// The header with the signature of a body.
const SIGNATURE: &str = "robust-signature";

/// What became of one post.
enum Posted {
    /// The receiver has it.
    Taken,
    /// It may take it another time.
    Failed(String),
    /// It will never take this one.
    Refused(String),
}

/// The task's own.
pub(super) struct Sender {
    receiver: Receiver,
    store: Store,
    told: Told,
    metrics: Arc<Metrics>,
    /// Since the last that was taken there was one that failed, which is said once.
    failing: bool,
    /// Since then one was dropped, which is said once, too.
    dropping: bool,
}

impl Sender {
    /// Of a receiver that knows this.
    pub fn new(receiver: Receiver, (store, told): (Store, Told), metrics: Arc<Metrics>) -> Self {
        Self {
            receiver,
            store,
            told,
            metrics,
            failing: false,
            dropping: false,
        }
    }

    /// Posts what comes, until it is ended. Between posts that fail it waits, longer each time; one that is taken is followed
    /// by the next at once.
    pub async fn run(mut self, queue: Arc<Queue>) {
        let patience = self.receiver.patience;
        let mut wait = patience.first_wait;
        loop {
            let waiting = queue.next().await;
            // Numbers and text: there is nothing that JSON has not.
            let body = Bytes::from(serde_json::to_vec(&waiting.document).unwrap_or_default());
            match self.post(&body).await {
                Posted::Taken => {
                    self.taken();
                    self.keep(&waiting.learnt, &queue);
                    queue.done();
                    wait = patience.first_wait;
                }
                Posted::Refused(why) => {
                    self.dropped(&why);
                    self.keep(&waiting.learnt, &queue);
                    queue.done();
                }
                Posted::Failed(why) => {
                    let learnt = waiting.learnt.clone();
                    match queue.failed(waiting, patience.in_all) {
                        true => {
                            self.dropped(&why);
                            self.keep(&learnt, &queue);
                        }
                        false => self.failed(&why),
                    }
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {
                            wait = (wait * 2).min(patience.longest_wait);
                        }
                        // The last words have less time than the longest wait.
                        () = queue.hurried() => wait = patience.first_wait,
                    }
                }
            }
        }
    }

    /// Keeps what the receiver knows with this. One that it never takes is not told by a later life either: it would be
    /// dropped again.
    fn keep(&mut self, learnt: &Learnt, queue: &Queue) {
        learnt.note_in(&mut self.told);
        let mut told = self.told.clone();
        // A later life tells all that began after those of which the receiver knows, and some twice.
        if let Some(unheard) = queue.first_unheard() {
            told.begun = told.begun.min(unheard.saturating_sub(1));
        }
        self.store.put_told(told);
    }

    async fn post(&self, body: &Bytes) -> Posted {
        let Receiver {
            client, url, key, ..
        } = &self.receiver;
        let mut request = client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body.clone());
        if let Some(key) = key {
            request = request.header(SIGNATURE, signature(key, body));
        }
        match request.send().await {
            Ok(response) => judged(response.status()),
            Err(error) if error.is_timeout() => {
                let s = self.receiver.patience.answer.as_secs_f64();
                Posted::Failed(format!("it does not answer within {s} s"))
            }
            Err(error) => Posted::Failed(in_words(&error.without_url())),
        }
    }

    fn taken(&mut self) {
        self.metrics.hooked(Hooked::Sent, 1);
        self.dropping = false;
        if std::mem::take(&mut self.failing) {
            let host = self.receiver.host();
            tracing::info!("the webhook's receiver at {host} takes documents again");
        }
    }

    fn failed(&mut self, why: &str) {
        self.metrics.hooked(Hooked::Retried, 1);
        if !std::mem::replace(&mut self.failing, true) {
            let host = self.receiver.host();
            tracing::warn!(
                "the webhook's receiver at {host} does not take a document, which is tried again: {why}"
            );
        }
    }

    fn dropped(&mut self, why: &str) {
        self.metrics.hooked(Hooked::Dropped, 1);
        self.failing = true;
        if !std::mem::replace(&mut self.dropping, true) {
            let host = self.receiver.host();
            tracing::warn!(
                "a document is dropped that the webhook's receiver at {host} does not take: {why}"
            );
        }
    }
}

/// What an answer says.
fn judged(status: StatusCode) -> Posted {
    let said = format!("it answers {status}");
    match status {
        _ if status.is_success() => Posted::Taken,
        // They are about the document, which is the same the next time.
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNSUPPORTED_MEDIA_TYPE
        | StatusCode::UNPROCESSABLE_ENTITY => Posted::Refused(said),
        _ if status.is_redirection() => {
            Posted::Failed(format!("{said}, and no redirect is followed"))
        }
        _ => Posted::Failed(said),
    }
}

/// The header's value for a body.
fn signature(key: &hmac::Key, body: &[u8]) -> String {
    let tag = hmac::sign(key, body);
    let mut value = "sha256=".to_owned();
    for byte in tag.as_ref() {
        // Writing to a text cannot fail.
        let _ = write!(value, "{byte:02x}");
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, case 2.
    #[test]
    fn the_signature_is_that_of_the_standard() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"Jefe");
        assert_eq!(
            signature(&key, b"what do ya want for nothing?"),
            "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn only_answers_about_the_document_are_final() {
        let is_failed = |code: u16| match StatusCode::from_u16(code).map(judged) {
            Ok(Posted::Taken) => None,
            Ok(Posted::Failed(_)) => Some(true),
            Ok(Posted::Refused(_)) | Err(_) => Some(false),
        };
        for code in [200, 202, 204] {
            assert_eq!(is_failed(code), None, "{code}");
        }
        for code in [301, 307, 401, 404, 408, 429, 500, 503] {
            assert_eq!(is_failed(code), Some(true), "{code}");
        }
        for code in [400, 413, 415, 422] {
            assert_eq!(is_failed(code), Some(false), "{code}");
        }
    }
}
