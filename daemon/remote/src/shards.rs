//! A checkpoint whose shards several machines put, each from its memory, and that one of them makes whole.
//!
//! ```text
//!  each machine   image in memory ── put_shard ──► rank-N.safetensors ─┐ all ranks
//!  one of them    looks whether all are there ◄────────────────────────┘
//!                 complete ──► manifest.signature ──► manifest.json: it exists now
//! ```
//! Whoever makes it whole says under which key each shard belongs; of what others say they put it believes the digests,
//! and looks at the objects.
use crate::transfer::{self, Known, Put, Source};
use crate::{Place, Remote, RemoteError};
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use robust_ckpt::slot::Image;
use robust_ckpt::{Checkpoint, manifest};
use std::io::{self, Read};
use std::time::Duration;

/// Digests of a shard that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutShard {
    /// XXH3-64, which the manifest has.
    pub xxh3: u64,
    /// BLAKE3, which is signed.
    pub blake3: [u8; 32],
}

impl Remote {
    /// Where a rank's shard of a checkpoint belongs, below the URL.
    pub fn shard_key(&self, place: &Place, rank: u32) -> String {
        let key = place.key(&Key::default());
        key.join(manifest::shard_file(rank)).to_string()
    }

    /// Puts a shard out of memory at a key below the URL, within `limit`. The object appears only if its bytes have the
    /// digest that is known, if one is, and are all of one snapshot.
    pub async fn put_shard(
        &self,
        key: &str,
        (image, xxh3): (Image, Option<u64>),
        limit: Duration,
    ) -> Result<PutShard, RemoteError> {
        let below = Key::parse(key).map_err(|e| RemoteError::bad(key, e.to_string()))?;
        let key = below.parts().fold(self.root.clone(), Key::join);
        let known = Known {
            path: image.path().to_owned(),
            bytes: image.bytes(),
            xxh3,
        };
        let bytes = Box::new(Reading { image, at: 0 });
        let source = Source { bytes, known };
        let sent = &mut |_| ();
        let put = transfer::put_within(limit, &self.store, &key, source, true, sent).await?;
        let Put { xxh3, blake3 } = put;
        // It is taken where it is asked for.
        let blake3 = blake3.ok_or_else(|| RemoteError::bad(&key, "it was not named"))?;
        Ok(PutShard { xxh3, blake3 })
    }

    /// Whether the checkpoint that is meant is at a place already. Any other is removed: a copy of the job that went another
    /// way may have put it there, and no manifest may name shards that are put anew.
    pub async fn make_way(
        &self,
        place: &Place,
        is_meant: impl FnOnce(&Checkpoint) -> bool,
    ) -> Result<bool, RemoteError> {
        let Some(kept) = self.look_at(place.clone()).await? else {
            return Ok(false);
        };
        if kept.manifest.as_ref().is_ok_and(is_meant) {
            return Ok(true);
        }
        self.remove(place).await?;
        Ok(false)
    }

    /// Makes a checkpoint of shards that were put, with the BLAKE3 of each: if all are there, with their lengths.
    pub async fn complete(
        &self,
        run: &str,
        checkpoint: &Checkpoint,
        blake3: &[[u8; 32]],
    ) -> Result<(), RemoteError> {
        let place = Place {
            run: run.to_owned(),
            generation: checkpoint.generation,
            step: checkpoint.step,
        };
        let folder = place.key(&self.root);
        for shard in &checkpoint.shards {
            let key = folder.clone().join(manifest::shard_file(shard.rank));
            let found = self.store.head(&key).await;
            let bytes = match found {
                Ok(found) => found.size,
                Err(object_store::Error::NotFound { .. }) => {
                    let reason =
                        "it was put, and is not there: do all machines see the same store?";
                    return Err(RemoteError::bad(&key, reason));
                }
                Err(error) => return Err(RemoteError::store("look at", &key)(error)),
            };
            if bytes != shard.bytes {
                let reason = format!("{bytes} bytes are there instead of {}", shard.bytes);
                return Err(RemoteError::bad(&key, reason));
            }
        }
        let text = manifest::encode(checkpoint);
        let text = text.map_err(|e| RemoteError::bad(&place, e.to_string()))?;
        self.seal(run, &folder, text, blake3).await
    }
}

/// An image from its beginning to its end, where it has to be what it was at the beginning.
struct Reading {
    image: Image,
    at: u64,
}

impl Read for Reading {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.image.read_at(to, self.at).map_err(io::Error::other)?;
        if read == 0 {
            self.image.check_unchanged().map_err(io::Error::other)?;
        }
        self.at += read as u64;
        Ok(read)
    }
}
