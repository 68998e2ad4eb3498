//! Copies of shards that other nodes made, in this node's memory: the leader orders them, and takes
//! them back when its own memory is gone.
//!
//! ```text
//!  Hold ─► read from a node, or from the leader ─► held-STEP-GENERATION-RANK-BYTES-DIGEST.shard ─► Held
//!  Give ─► that file, or the slot of a rank that runs here ─► KeepShard
//! ```
//! The name says what the file must be, so that a restarted daemon knows what it has without reading
//! it; whoever gets it compares. Slots of ranks count as well: they are what they say they are.
use super::Upstream;
use super::exchange::Exchange;
use super::files::client;
use super::shards::{copy, failed, receive};
use crate::nodes::{parts_of, taken};
use robust_ckpt::slot;
use robust_proto::v1;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

const PREFIX: &str = "held-";

/// See the module's doc. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Held {
    folder: PathBuf,
    /// One transfer at a time: they share the wire with snapshots on their way to the leader.
    wire: Arc<Mutex<()>>,
}

impl Held {
    /// In the node's shared memory.
    pub fn new(folder: PathBuf) -> Self {
        let wire = Arc::default();
        Self { folder, wire }
    }

    /// Everything that is here and whole.
    pub fn list(&self) -> Vec<v1::HeldShard> {
        self.files().into_iter().map(|(shard, _)| shard).collect()
    }

    /// The job of these copies is over.
    pub fn forget(&self) {
        for (_, path) in self.files().iter().filter(|(s, _)| s.xxh3.is_some()) {
            remove(path);
        }
    }

    /// Slots that ranks of another life of the job left: their numbers begin anew, and nobody runs here.
    pub fn forget_slots(&self) {
        for (_, path) in self.files().iter().filter(|(s, _)| s.xxh3.is_none()) {
            remove(path);
        }
    }

    /// Copies a shard from a node or the leader, and lets go of those that are of no use any more.
    pub async fn hold(
        &self,
        upstream: &Upstream,
        exchange: &Exchange,
        order: &v1::HoldShard,
    ) -> Result<v1::HeldShard, v1::ShardNotHeld> {
        let shard = order.shard.clone().unwrap_or_default();
        let wanted = v1::HeldShard {
            step: shard.step,
            generation: shard.generation,
            rank: order.rank,
            bytes: shard.bytes,
            xxh3: shard.xxh3,
        };
        let _alone = self.wire.lock().await;
        self.tidy(order);
        let from = order.from.as_ref().map(|place| (exchange, place));
        let xxh3 = self.copy((upstream, from), &shard, &wanted).await;
        let xxh3 = xxh3.map_err(|status| v1::ShardNotHeld {
            shard: Some(wanted),
            reason: status.message().to_owned(),
        })?;
        let xxh3 = Some(xxh3);
        Ok(v1::HeldShard { xxh3, ..wanted })
    }

    async fn copy(
        &self,
        (upstream, from): (&Upstream, Option<(&Exchange, &v1::ShardPlace)>),
        shard: &v1::SnapshotReply,
        wanted: &v1::HeldShard,
    ) -> Result<u64, Status> {
        // Ordered again: the answer was lost, not the copy.
        if let Some((held, path)) = self.find(wanted)
            && let Some(there) = held.xxh3
        {
            if wanted.xxh3.is_none_or(|wanted| wanted == there) {
                return Ok(there);
            }
            // Of another life, or of one that took it for something else.
            remove(&path);
        }
        crate::state::make_snapshots(&self.folder)
            .map_err(|e| Status::resource_exhausted(e.to_string()))?;
        let v1::HeldShard {
            step,
            generation,
            rank,
            bytes,
            ..
        } = wanted;
        // No name that is listed, until its digest is known.
        let incoming = self
            .folder
            .join(format!("incoming-{step}-{generation}-{rank}"));
        let copying = async {
            match from {
                None => copy(upstream, shard, &incoming).await,
                Some((exchange, place)) => {
                    let parts = exchange.read(place, wanted).await?;
                    receive(parts, shard, &incoming).await
                }
            }
        };
        let copied = copying.await;
        let xxh3 = copied.inspect_err(|_| remove(&incoming.with_extension("part")))?;
        let name = format!("{PREFIX}{step}-{generation}-{rank}-{bytes}-{xxh3:016x}.shard");
        let path = self.folder.join(name);
        fs::rename(&incoming, &path).map_err(failed(&path))?;
        Ok(xxh3)
    }

    /// Sends a shard to the leader. The error is what to tell it; nothing where it does not want it any more.
    pub async fn give(
        &self,
        upstream: &Upstream,
        wanted: v1::HeldShard,
    ) -> Result<(), Option<v1::ShardNotHeld>> {
        let _alone = self.wire.lock().await;
        let sent = self.send(upstream, &wanted).await;
        sent.map_err(|status| {
            let copied = self.find(&wanted).filter(|(s, _)| s.xxh3.is_some());
            // A link that broke says nothing of it, nor does a leader without room, or one that wants it no more;
            // and there may be no other copy.
            let wrong = status.code() == Code::DataLoss;
            if let Some((_, path)) = copied.filter(|_| wrong) {
                // It is not what its name says: nobody is to count on it.
                remove(&path);
            }
            // The leader wants it no more: nothing is said of what is here as before.
            let wanted_no_more = status.code() == Code::FailedPrecondition;
            (!wanted_no_more).then(|| v1::ShardNotHeld {
                shard: Some(wanted),
                reason: status.message().to_owned(),
            })
        })
    }

    async fn send(&self, upstream: &Upstream, wanted: &v1::HeldShard) -> Result<(), Status> {
        let gone = || Status::not_found("it is not here any more");
        let (held, path) = self.find(wanted).ok_or_else(gone)?;
        let header = v1::ShardHeader {
            incarnation: 0,
            rank: held.rank,
            step: held.step,
            bytes: held.bytes,
        };
        let taken = taken(held.step, held.generation, held.bytes);
        // Cut short at an error: the leader keeps nothing whose digest did not come.
        let parts = ReceiverStream::new(parts_of(path, taken, Some(header)));
        let request = upstream.request(parts.map_while(Result::ok));
        let kept = client(upstream).keep_shard(request).await?.into_inner();
        match held.xxh3 {
            Some(xxh3) if xxh3 != kept.xxh3 => Err(Status::data_loss("it was damaged in memory")),
            _ => Ok(()),
        }
    }

    /// The shard that is meant: of its step, gang and rank; a copy before a slot.
    pub fn find(&self, wanted: &v1::HeldShard) -> Option<(v1::HeldShard, PathBuf)> {
        let is = |s: &v1::HeldShard| {
            (s.step, s.generation, s.rank, s.bytes)
                == (wanted.step, wanted.generation, wanted.rank, wanted.bytes)
        };
        let found = self.files().into_iter().filter(|(s, _)| is(s));
        found.max_by_key(|(s, _)| s.xxh3.is_some())
    }

    /// Removes copies of steps that nobody goes back to, but for those that a checkpoint is made of, and those of the ordered shard's step and
    /// later ones by other gangs: they are history that did not happen.
    fn tidy(&self, order: &v1::HoldShard) {
        let shard = order.shard.clone().unwrap_or_default();
        for (held, path) in self.files() {
            let undone = held.step >= shard.step && held.generation < shard.generation;
            let old = held.step < order.oldest && !order.kept_steps.contains(&held.step);
            if held.xxh3.is_some() && (old || undone) {
                remove(&path);
            }
        }
        // Left by a daemon that died meanwhile: one copy is made at a time.
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("incoming-") {
                remove(&entry.path());
            }
        }
    }

    fn files(&self) -> Vec<(v1::HeldShard, PathBuf)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let known = |path: PathBuf| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            let shard = copied(&name).or_else(|| written(&name, &path))?;
            Some((shard, path))
        };
        entries.filter_map(|entry| known(entry.path())).collect()
    }
}

/// A copy, by its name.
fn copied(name: &str) -> Option<v1::HeldShard> {
    let mut words = name
        .strip_prefix(PREFIX)?
        .strip_suffix(".shard")?
        .split('-');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (step, generation, rank, bytes) = (number()?, number()?, number()?, number()?);
    Some(v1::HeldShard {
        step,
        generation,
        rank: u32::try_from(rank).ok()?,
        bytes,
        xxh3: Some(u64::from_str_radix(words.next()?, 16).ok()?),
    })
}

/// A slot, by what it says.
fn written(name: &str, path: &Path) -> Option<v1::HeldShard> {
    let (rank, _) = name.strip_prefix("trainer-")?.split_once(".slot")?;
    let taken = slot::held(path)?.taken;
    Some(v1::HeldShard {
        step: taken.step.0,
        generation: taken.generation.0,
        rank: rank.parse().ok()?,
        bytes: taken.bytes,
        xxh3: None,
    })
}

fn remove(path: &Path) {
    // Whoever removed it before did the same.
    let _ = fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_ckpt::slot::{Slot, SnapshotMemory};
    use robust_shared::ids::{Generation, Step};

    fn shard(step: u64, generation: u64, xxh3: Option<u64>) -> v1::HeldShard {
        v1::HeldShard {
            step,
            generation,
            rank: 1,
            bytes: 5,
            xxh3,
        }
    }

    fn put(held: &Held, shard: &v1::HeldShard) -> PathBuf {
        let v1::HeldShard {
            step,
            generation,
            rank,
            bytes,
            xxh3,
        } = shard;
        let xxh3 = xxh3.unwrap();
        let name = format!("{PREFIX}{step}-{generation}-{rank}-{bytes}-{xxh3:016x}.shard");
        let path = held.folder.join(name);
        fs::write(&path, b"image").unwrap();
        path
    }

    #[test]
    fn what_is_here_is_known_by_names_and_seals_and_half_a_copy_is_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let held = Held::new(temp.path().to_owned());
        assert_eq!(held.list(), []);
        let copy = shard(7, 2, Some(0xab));
        put(&held, &copy);
        for name in [
            "incoming-7-2-1.part",
            "held-7-2-1-5.shard",
            "held-x",
            "kept-7-1-9.shard",
        ] {
            fs::write(temp.path().join(name), b"x").unwrap();
        }
        let image: &dyn SnapshotMemory = &b"image".as_slice();
        let mut slot = Slot::open(&temp.path().join("trainer-1.slot0"), 5).unwrap();
        slot.write((Step(8), Generation(2)), 8, &[image]).unwrap();
        Slot::open(&temp.path().join("trainer-1.slot1"), 5).unwrap();
        let mut all = held.list();
        all.sort_by_key(|s| s.step);
        assert_eq!(all, [copy, shard(8, 2, None)]);
        held.forget();
        assert_eq!(
            held.list(),
            [shard(8, 2, None)],
            "a rank's slot is not ours to remove"
        );
    }

    #[test]
    fn copies_that_nobody_goes_back_to_are_removed() {
        let temp = tempfile::tempdir().unwrap();
        let held = Held::new(temp.path().to_owned());
        let all = [
            shard(4, 1, Some(1)),
            shard(5, 1, Some(1)),
            shard(6, 1, Some(1)),
            shard(7, 1, Some(1)),
            shard(9, 1, Some(1)),
        ];
        let [written, old, kept, undone, beyond] = all.each_ref().map(|s| put(&held, s));
        let order = v1::HoldShard {
            rank: 1,
            shard: Some(v1::SnapshotReply {
                step: 7,
                generation: 2,
                ..Default::default()
            }),
            oldest: 6,
            from: None,
            kept_steps: vec![4],
        };
        held.tidy(&order);
        assert!(!old.exists() && !undone.exists() && !beyond.exists());
        assert!(kept.exists() && written.exists());
    }
}
