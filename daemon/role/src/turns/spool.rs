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
use robust_proto::v1::{AppendSpansRequest, SpansBatch};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tonic::Code;

/// How long the first one waits for others: they woke at the same tick.
const MOMENT: Duration = Duration::from_millis(3);
/// Bytes of a call, but for a single part that is larger; a call may have 4 MiB.
const MOST_BYTES: usize = 1 << 20;
/// Parts of a call.
const MOST_PARTS: usize = 4096;

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

/// Until each part is stored, or never will be.
async fn send(host: Host, mut batch: Vec<Waiting>) {
    while !batch.is_empty() {
        let request = SpansBatch {
            incarnation: host.incarnation,
            parts: batch.iter().map(|one| one.part.clone()).collect(),
        };
        let replies = match host.append_batch(request).await {
            Ok(reply) if reply.replies.len() == batch.len() => reply.replies,
            Ok(_) => {
                let text = || "the daemon's reply is not of these tokens".to_owned();
                return fail(batch, || Refusal::Other(text()));
            }
            // A daemon of the build before takes them one by one.
            Err(Code::Unimplemented) => return one_by_one(host, batch).await,
            Err(code) => {
                let text = code.description();
                return fail(batch, || refusal(code, text).unwrap_or(Refusal::Void));
            }
        };
        let mut again = Vec::new();
        for (one, reply) in batch.into_iter().zip(replies) {
            let code = Code::from(reply.code);
            let told = match code {
                Code::Ok => Ok(()),
                code => match refusal(code, &reply.message) {
                    Some(refusal) => Err(refusal),
                    None => {
                        again.push(one);
                        continue;
                    }
                },
            };
            // Whoever waited for it may have given up the conversation.
            let _ = one.reply.send(told);
        }
        batch = again;
        if !batch.is_empty() {
            host.pause().await;
        }
    }
}

async fn one_by_one(host: Host, batch: Vec<Waiting>) {
    for one in batch {
        let host = host.clone();
        tokio::spawn(async move {
            let _ = one.reply.send(host.append_alone(one.part).await);
        });
    }
}

fn fail(batch: Vec<Waiting>, why: impl Fn() -> Refusal) {
    for one in batch {
        let _ = one.reply.send(Err(why()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
