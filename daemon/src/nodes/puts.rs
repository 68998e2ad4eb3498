//! Shards that nodes were told to put into the object store, and have not answered.
use super::places::key_of;
use robust_proto::v1;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Who was told, and who waits for the answer.
#[derive(Debug)]
struct Waiting {
    node: String,
    answer: oneshot::Sender<v1::ShardPut>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    waiting: HashMap<u64, Waiting>,
}

/// See the module's doc. Clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct Puts(Arc<Mutex<Inner>>);

impl Puts {
    /// A node is about to be told to put this shard.
    pub fn expect(&self, node: &str, shard: v1::HeldShard) -> ExpectedPut {
        let mut inner = self.lock();
        // Larger than all of a life before: what is answered late is an answer to nobody.
        inner.last = (inner.last + 1).max(super::unix_ms() << 16);
        let (answer, answered) = oneshot::channel();
        let (ticket, node) = (inner.last, node.to_owned());
        inner.waiting.insert(ticket, Waiting { node, answer });
        ExpectedPut {
            puts: self.clone(),
            ticket,
            shard,
            answered,
        }
    }

    /// A node says what became of it. Nobody hears what comes late, twice, or from another node than was told.
    pub fn answered(&self, node: &str, put: v1::ShardPut) {
        let mut inner = self.lock();
        let waiting = inner.waiting.get(&put.ticket);
        if waiting.is_none_or(|waiting| waiting.node != node) {
            return tracing::debug!("{node} answers an order to put a shard that it does not have");
        }
        if let Some(waiting) = inner.waiting.remove(&put.ticket) {
            // Who waited may have left.
            let _ = waiting.answer.send(put);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // An entry is whole, whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An order to put a shard. Dropped, its answer is not waited for any more.
#[derive(Debug)]
pub struct ExpectedPut {
    puts: Puts,
    ticket: u64,
    shard: v1::HeldShard,
    answered: oneshot::Receiver<v1::ShardPut>,
}

impl ExpectedPut {
    /// The order's number.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// What was put: XXH3 and BLAKE3; or a sentence that says why it was not.
    pub async fn put(&mut self) -> Result<(u64, [u8; 32]), String> {
        let answer = (&mut self.answered).await;
        let v1::ShardPut {
            shard,
            blake3,
            error,
            ..
        } = answer.map_err(|_| "this daemon is ending".to_owned())?;
        if !error.is_empty() {
            return Err(error);
        }
        let is_it = |said: &v1::HeldShard| {
            (key_of(said), said.bytes) == (key_of(&self.shard), self.shard.bytes)
        };
        let xxh3 = shard.filter(is_it).and_then(|said| said.xxh3);
        let blake3 = <[u8; 32]>::try_from(blake3.as_slice()).ok();
        match (xxh3.zip(blake3), self.shard.xxh3) {
            (Some((xxh3, _)), Some(known)) if known != xxh3 => Err(format!(
                "it put what has the digest {xxh3:016x} instead of {known:016x}"
            )),
            (Some(digests), _) => Ok(digests),
            (None, _) => Err("it says that it put another shard".to_owned()),
        }
    }
}

impl Drop for ExpectedPut {
    fn drop(&mut self) {
        self.puts.lock().waiting.remove(&self.ticket);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::FutureExt;

    fn shard(xxh3: Option<u64>) -> v1::HeldShard {
        v1::HeldShard {
            step: 4,
            generation: 2,
            rank: 1,
            bytes: 10,
            xxh3,
        }
    }

    fn answer(ticket: u64, shard: v1::HeldShard) -> v1::ShardPut {
        v1::ShardPut {
            ticket,
            shard: Some(shard),
            blake3: vec![3; 32],
            error: String::new(),
        }
    }

    #[test]
    fn an_answer_counts_once_from_the_node_that_was_told_and_for_that_very_shard() {
        let puts = Puts::default();
        let mut expected = puts.expect("b", shard(None));
        let right = answer(expected.ticket(), shard(Some(7)));
        puts.answered("c", right.clone());
        assert_eq!(expected.put().now_or_never(), None, "c was told nothing");
        puts.answered("b", answer(expected.ticket() - 1, shard(Some(7))));
        assert_eq!(expected.put().now_or_never(), None, "an earlier life's");
        puts.answered("b", right.clone());
        puts.answered("b", right);
        assert_eq!(expected.put().now_or_never(), Some(Ok((7, [3; 32]))));
    }

    #[test]
    fn what_is_not_what_was_ordered_is_not_put() {
        let puts = Puts::default();
        let of = |shard: v1::HeldShard, said: v1::HeldShard| {
            let mut expected = puts.expect("b", shard);
            puts.answered("b", answer(expected.ticket(), said));
            expected.put().now_or_never().unwrap()
        };
        assert!(of(shard(Some(7)), shard(Some(7))).is_ok());
        let other = of(shard(Some(7)), shard(Some(8))).unwrap_err();
        assert!(other.contains("0000000000000008 instead of"), "{other}");
        let older = v1::HeldShard {
            generation: 1,
            ..shard(Some(7))
        };
        assert!(
            of(shard(None), older)
                .unwrap_err()
                .contains("another shard")
        );
        assert!(of(shard(None), shard(None)).is_err(), "without a digest");
        let mut refused = puts.expect("b", shard(None));
        let error = "no room".to_owned();
        let ticket = refused.ticket();
        puts.answered(
            "b",
            v1::ShardPut {
                ticket,
                error,
                ..Default::default()
            },
        );
        let said = refused.put().now_or_never();
        assert_eq!(said, Some(Err("no room".to_owned())));
        drop(refused);
        assert!(puts.lock().waiting.is_empty());
    }
}
