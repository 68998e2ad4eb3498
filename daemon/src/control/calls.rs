//! Calls to trainer ranks that survive a broken link.
//!
//! ```text
//!  call ──► waiting ──sent──► (link breaks, opens again: sent again) ──► reply ──► done
//!              └────────────── the caller is dropped: forgotten ──────────────────►
//! ```
//! A rank answers a key it answered before from memory, so that sending twice does the work once.
use crate::links::Links;
use robust_proto::v1::{self, call, call_reply, host_message};
use robust_shared::ids::{Generation, Incarnation};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Why a call gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The rank reported an error.
    #[error("{key} failed on {rank}: {reason}")]
    Failed {
        /// Which call.
        key: String,
        /// Whom.
        rank: Incarnation,
        /// Its words.
        reason: String,
        /// It met numbers that are none.
        numeric: bool,
    },
    /// The rank answered something else than was asked.
    #[error("{key}: {rank} answered with another call's result")]
    WrongReply {
        /// Which call.
        key: String,
        /// Whom.
        rank: Incarnation,
    },
    /// The calls are being ended.
    #[error("{key} was abandoned")]
    Abandoned {
        /// Which call.
        key: String,
    },
}

#[derive(Debug)]
struct Waiting {
    rank: Incarnation,
    call: v1::Call,
    answer: oneshot::Sender<v1::CallReply>,
}

/// The calls under way.
#[derive(Clone, Debug)]
pub struct GangCalls {
    links: Links,
    waiting: Arc<Mutex<BTreeMap<u64, Waiting>>>,
    next: Arc<AtomicU64>,
}

impl GangCalls {
    /// No calls yet. `first_id` must differ between lives of the daemon: a reply to a call of an
    /// earlier life must fit none of this one.
    pub fn new(links: Links, first_id: u64) -> Self {
        Self {
            links,
            waiting: Arc::default(),
            next: Arc::new(AtomicU64::new(first_id)),
        }
    }

    /// Asks one rank and waits for its answer, over as many links as that takes.
    pub async fn call(
        &self,
        generation: Generation,
        rank: Incarnation,
        key: String,
        body: call::Body,
    ) -> Result<call_reply::Result, CallError> {
        let call_id = self.next.fetch_add(1, Ordering::Relaxed);
        let call = v1::Call {
            call_id,
            key: key.clone(),
            generation: generation.0,
            body: Some(body),
        };
        let (answer, answered) = oneshot::channel();
        let _forget = Forget {
            calls: self,
            call_id,
        };
        self.lock().insert(
            call_id,
            Waiting {
                rank,
                call: call.clone(),
                answer,
            },
        );
        // Without an open link it goes out when the rank links again.
        self.links.send(rank, host_message::Body::Call(call));
        match answered.await {
            Err(_) => Err(CallError::Abandoned { key }),
            Ok(reply) if !reply.error.is_empty() => Err(CallError::Failed {
                key,
                rank,
                reason: reply.error,
                numeric: reply.numeric,
            }),
            Ok(v1::CallReply {
                result: Some(result),
                ..
            }) => Ok(result),
            Ok(_) => Err(CallError::WrongReply { key, rank }),
        }
    }

    /// Hands an answer to its caller; one that nobody waits for is dropped.
    pub fn answer(&self, rank: Incarnation, reply: v1::CallReply) {
        let mut waiting = self.lock();
        if waiting.get(&reply.call_id).is_some_and(|w| w.rank == rank)
            && let Some(call) = waiting.remove(&reply.call_id)
        {
            // The caller may have been dropped between; then nobody wants the answer.
            let _ = call.answer.send(reply);
        }
    }

    /// Sends a rank's unanswered calls again, in order, over its new link.
    pub fn resend(&self, rank: Incarnation) {
        for waiting in self.lock().values().filter(|w| w.rank == rank) {
            self.links
                .send(rank, host_message::Body::Call(waiting.call.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Waiting>> {
        // No code can panic while it holds the lock, so a poisoned table is as good as any.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Forget<'a> {
    calls: &'a GangCalls,
    call_id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.calls.lock().remove(&self.call_id);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::links::LinkId;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    const RANK: Incarnation = Incarnation(3);

    fn link(links: &Links, id: u64) -> UnboundedReceiver<v1::HostMessage> {
        let (down, received) = unbounded_channel();
        let hello = v1::Hello {
            incarnation: RANK.0,
            ..Default::default()
        };
        links.open(hello, LinkId(id), down);
        received
    }

    async fn next_call(from: &mut UnboundedReceiver<v1::HostMessage>) -> v1::Call {
        match from.recv().await.unwrap().body.unwrap() {
            host_message::Body::Call(call) => call,
            other => unreachable!("{other:?}"),
        }
    }

    fn snapshot() -> call::Body {
        call::Body::Snapshot(v1::Snapshot { step: 1 })
    }

    #[tokio::test]
    async fn an_unanswered_call_is_sent_again_over_the_next_link() {
        let links = Links::default();
        let calls = GangCalls::new(links.clone(), 100);
        let mut first = link(&links, 1);
        let calling = tokio::spawn({
            let calls = calls.clone();
            async move {
                calls
                    .call(Generation(1), RANK, "snapshot/1/1".into(), snapshot())
                    .await
            }
        });
        let sent = next_call(&mut first).await;
        let mut second = link(&links, 2);
        calls.resend(RANK);
        assert_eq!(next_call(&mut second).await, sent);
        let result = call_reply::Result::Snapshot(v1::SnapshotReply::default());
        let reply = v1::CallReply {
            call_id: sent.call_id,
            error: String::new(),
            result: Some(result.clone()),
            numeric: false,
        };
        calls.answer(Incarnation(4), reply.clone());
        assert!(
            !calling.is_finished(),
            "another rank's reply counts for nothing"
        );
        calls.answer(RANK, reply);
        assert_eq!(calling.await.unwrap().unwrap(), result);
    }

    #[tokio::test]
    async fn a_dropped_call_is_not_sent_again() {
        let links = Links::default();
        let calls = GangCalls::new(links.clone(), 1);
        let mut first = link(&links, 1);
        let calling = tokio::spawn({
            let calls = calls.clone();
            async move {
                calls
                    .call(Generation(1), RANK, "k".into(), snapshot())
                    .await
            }
        });
        next_call(&mut first).await;
        calling.abort();
        calling.await.unwrap_err();
        let mut second = link(&links, 2);
        calls.resend(RANK);
        assert!(second.try_recv().is_err());
    }
}
