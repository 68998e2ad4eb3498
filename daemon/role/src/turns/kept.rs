//! Makes the tokens of a turn durable while it is generated.
//!
//! ```text
//!          tokens, and it is time             acknowledged
//!   idle ─────────────────────────► sending ────────────────► idle, what came meanwhile waits
//! ```
//! One request is under way at a time, beside the stream it never holds up; the requests of all conversations go at the
//! same moments, together. What is not kept when the turn ends comes with the turn itself, whose storage makes a late or
//! repeated request say nothing new.

use std::time::Duration;

use futures::future::BoxFuture;
use robust_proto::v1::{AppendSpansRequest, Span};
use tokio::time::Instant;

use super::generate::Generated;
use super::host::{Host, Refusal};

/// The tokens of one turn that the daemon has, and those on their way to it.
pub struct Kept {
    host: Host,
    /// Names the turn; what is sent is filled in.
    turn: AppendSpansRequest,
    /// Tokens that were sent, or stored before.
    sent: usize,
    every: Duration,
    /// When the next ones are to go.
    due: Instant,
    sending: Option<BoxFuture<'static, Result<(), Refusal>>>,
}

impl Kept {
    /// For a turn of which `begun` is stored already. `turn` has the prompt if it is the first.
    pub fn new(host: &Host, turn: AppendSpansRequest, begun: &Generated, every: Duration) -> Self {
        Self {
            host: host.clone(),
            turn,
            sent: begun.count(),
            every,
            due: host.next_tick(every),
            sending: None,
        }
    }

    /// How many tokens of the turn are stored, or on their way: what is said of them stands.
    pub fn said(&self) -> usize {
        self.sent
    }

    /// Waits until what is due is kept; for ever when nothing is. May be dropped and called again.
    pub async fn progress(&mut self, turn: &Generated) -> Result<(), Refusal> {
        if self.sending.is_none() {
            if turn.count() == self.sent {
                return std::future::pending().await;
            }
            tokio::time::sleep_until(self.due).await;
            self.send(turn);
        }
        self.sent().await
    }

    /// Keeps everything now: nobody knows how long it takes until the turn goes on.
    pub async fn settle(&mut self, turn: &Generated) -> Result<(), Refusal> {
        self.sent().await?;
        if turn.count() > self.sent {
            self.send(turn);
        }
        self.sent().await
    }

    async fn sent(&mut self) -> Result<(), Refusal> {
        let Some(sending) = &mut self.sending else {
            return Ok(());
        };
        let kept = sending.await;
        self.sending = None;
        kept
    }

    fn send(&mut self, turn: &Generated) {
        let mut request = self.turn.clone();
        if self.sent > 0 {
            request.prompt_ids.clear();
        }
        // A turn has far fewer tokens.
        request.offset = u32::try_from(self.sent).unwrap_or(u32::MAX);
        request.spans = after(&turn.spans, self.sent);
        (self.sent, self.due) = (turn.count(), self.host.next_tick(self.every));
        let host = self.host.clone();
        self.sending = Some(Box::pin(async move { host.append_spans(request).await }));
    }
}

/// What follows the first so many tokens.
fn after(spans: &[Span], mut skip: usize) -> Vec<Span> {
    let mut rest = Vec::new();
    for span in spans {
        let from = skip.min(span.ids.len());
        skip -= from;
        if from < span.ids.len() {
            rest.push(Span {
                ids: span.ids[from..].to_vec(),
                logprobs: span.logprobs[from..].to_vec(),
                version: span.version,
            });
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(ids: &[u32], version: u64) -> Span {
        Span {
            ids: ids.to_vec(),
            logprobs: ids.iter().map(|id| -(*id as f32)).collect(),
            version,
        }
    }

    #[test]
    fn what_follows_the_kept_tokens_begins_in_the_middle_of_a_span() {
        let spans = [span(&[1, 2, 3], 4), span(&[4, 5], 6)];
        assert_eq!(after(&spans, 0), spans);
        assert_eq!(after(&spans, 2), [span(&[3], 4), span(&[4, 5], 6)]);
        assert_eq!(after(&spans, 3), [span(&[4, 5], 6)]);
        assert_eq!(after(&spans, 5), []);
    }
}
