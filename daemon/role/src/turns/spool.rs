//! Tokens of all conversations of an agent, in as few calls as there are moments.
//!
//! ```text
//!   conversation 1 ──┐
//!   conversation 2 ──┼──► waiting, for a moment ──► one AppendSpansBatch ──► a reply for each
//!        ...         │                                     │ not stored yet: those parts again
//!   conversation n ──┘                                     └──────────────────────────────────
//! ```
//! All conversations want their tokens kept at the same ticks ([`super::Kept`]), so a call a tick carries all of them: for 256
//! devices that generate, one each would be some 98,000 calls a second (CLUSTER.md 1.2). A batch that hangs holds up none
//! that comes after it.
use super::host::{Host, Refusal, refusal};
use prost::Message as _;
use robust_proto::MOST_PARTS;
use robust_proto::v1::{AppendSpansRequest, PartReply, SpansBatch};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::Code;

/// How long the first one waits for others: they woke at the same tick.
const MOMENT: Duration = Duration::from_millis(3);
/// Bytes of a call, but for a single part that is larger; a call may have 4 MiB.
const MOST_BYTES: usize = 1 << 20;

/// What waits for the next call.
#[derive(Clone, Default)]
pub(super) struct Spool(Arc<Mutex<Vec<Waiting>>>);

struct Waiting {
    part: AppendSpansRequest,
    reply: oneshot::Sender<Result<(), Refusal>>,
}

impl Spool {
    /// Returns when the part is stored durably.
    pub async fn append(&self, host: &Host, part: AppendSpansRequest) -> Result<(), Refusal> {
        let (reply, replied) = oneshot::channel();
        let is_first = {
            let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(Waiting { part, reply });
            waiting.len() == 1
        };
        if is_first {
            let (spool, host) = (self.clone(), host.clone());
            tokio::spawn(async move {
                tokio::time::sleep(MOMENT).await;
                for batch in spool.batches() {
                    tokio::spawn(send(host.clone(), batch));
                }
            });
        }
        let ending = || Refusal::Other("this process is ending".to_owned());
        replied.await.unwrap_or_else(|_| Err(ending()))
    }

    /// All that waits, in calls.
    fn batches(&self) -> Vec<Vec<Waiting>> {
        let waiting = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut batches: Vec<Vec<Waiting>> = Vec::new();
        let mut bytes = 0;
        for one in waiting {
            let of_one = one.part.encoded_len();
            match batches.last_mut() {
                Some(last) if bytes + of_one <= MOST_BYTES && last.len() < MOST_PARTS => {
                    bytes += of_one;
                    last.push(one);
                }
                _ => {
                    bytes = of_one;
                    batches.push(vec![one]);
                }
            }
        }
        batches
    }
}

/// Until each part is stored, or never will be, or nobody waits for it any more: what an ended conversation said last must
/// not come after the trajectory was handed on.
async fn send(host: Host, mut batch: Vec<Waiting>) {
    loop {
        host.linked().await;
        batch.retain(Waiting::is_wanted);
        if batch.is_empty() {
            return;
        }
        let request = SpansBatch {
            incarnation: host.incarnation,
            parts: batch.iter().map(|one| one.part.clone()).collect(),
        };
        match host.append_batch(request).await {
            Ok(reply) if reply.replies.len() == batch.len() => {
                let told = batch.into_iter().zip(reply.replies);
                batch = told.filter_map(|(one, reply)| one.told(&reply)).collect();
            }
            Ok(_) => return fail(batch, "the daemon's reply is not of these tokens"),
            // A daemon of the build before takes them one by one.
            Err(status) if status.code() == Code::Unimplemented => {
                return one_by_one(&host, batch);
            }
            Err(status) if refusal(status.code(), status.message()).is_some() => {
                return fail(batch, status.message());
            }
            Err(status) => tracing::debug!(%status, "asking the daemon again"),
        }
        if !batch.is_empty() {
            host.pause().await;
        }
    }
}

impl Waiting {
    /// Whether the conversation still waits for it.
    fn is_wanted(&self) -> bool {
        !self.reply.is_closed()
    }

    /// Tells what became of it; itself, if it is to be asked again.
    fn told(self, reply: &PartReply) -> Option<Self> {
        let told = match Code::from(reply.code) {
            Code::Ok => Ok(()),
            code => match refusal(code, &reply.message) {
                Some(refusal) => Err(refusal),
                None => return Some(self),
            },
        };
        // Whoever waited for it may have given up the conversation.
        let _ = self.reply.send(told);
        None
    }
}

fn one_by_one(host: &Host, batch: Vec<Waiting>) {
    for mut one in batch {
        let host = host.clone();
        tokio::spawn(async move {
            tokio::select! {
                told = host.append_alone(one.part) => drop(one.reply.send(told)),
                () = one.reply.closed() => {}
            }
        });
    }
}

fn fail(batch: Vec<Waiting>, why: &str) {
    for one in batch {
        let _ = one.reply.send(Err(Refusal::Other(why.to_owned())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_to_be_asked_again_is_kept_and_one_that_nobody_waits_for_is_not() {
        let waiting = || {
            let (reply, replied) = oneshot::channel();
            let part = AppendSpansRequest::default();
            (Waiting { part, reply }, replied)
        };
        let said = |code: Code| PartReply {
            code: code.into(),
            message: String::new(),
        };
        let (one, mut replied) = waiting();
        let one = one.told(&said(Code::Unavailable));
        assert!(one.as_ref().is_some_and(Waiting::is_wanted));
        assert!(
            one.and_then(|one| one.told(&said(Code::FailedPrecondition)))
                .is_none()
        );
        assert!(matches!(replied.try_recv(), Ok(Err(Refusal::Void))));
        let (one, replied) = waiting();
        drop(replied);
        assert!(!one.is_wanted());
    }

    #[test]
    fn a_call_carries_what_fits_and_a_part_too_large_for_that_goes_alone() {
        let spool = Spool::default();
        let mut waiting = Vec::new();
        for ids in [10, 200_000, 600_000, 10, 20] {
            let part = AppendSpansRequest {
                prompt_ids: vec![300; ids],
                ..AppendSpansRequest::default()
            };
            let (reply, replied) = oneshot::channel();
            waiting.push(replied);
            let mut spooled = spool.0.lock().unwrap_or_else(PoisonError::into_inner);
            spooled.push(Waiting { part, reply });
        }
        let counts: Vec<usize> = spool.batches().iter().map(Vec::len).collect();
        assert_eq!(counts, [2, 1, 2]);
        assert!(spool.batches().is_empty());
    }
}
