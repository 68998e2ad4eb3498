//! Bytes between local files and objects, hashed on the way.
use crate::RemoteError;
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use robust_ckpt::Shard;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use tokio::task::{JoinSet, spawn_blocking};
use xxhash_rust::xxh3::Xxh3;

/// Hears of every piece, in bytes.
pub(crate) type Progress<'a> = &'a mut (dyn FnMut(u64) + Send);

/// A part of a multipart upload; stores want at least 5 MiB.
pub(crate) const PART_BYTES: u64 = 8 << 20;
/// Stores take 10,000 parts; larger objects have larger parts.
const PARTS: u64 = 9_000;
/// Parts on their way at a time. Together with the one being read they are all the memory it takes.
const IN_FLIGHT: usize = 3;

/// Size of the parts of an object of so many bytes, all but the last.
pub(crate) fn part_bytes(bytes: u64) -> u64 {
    let needed = bytes.div_ceil(PARTS).next_multiple_of(1 << 20);
    needed.max(PART_BYTES)
}

/// A local file that is read to be sent; open, so that it may be removed meanwhile.
pub(crate) struct Source {
    pub file: File,
    pub shard: Shard,
}

/// What an object has to be.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub shard: &'a Shard,
    /// Where it was signed.
    pub blake3: Option<&'a [u8; 32]>,
}

/// Digests so far.
#[derive(Default)]
struct Hashes {
    xxh3: Xxh3,
    /// Taken where checkpoints are signed.
    blake3: Option<blake3::Hasher>,
}

impl Hashes {
    fn new(named: bool) -> Box<Self> {
        Box::new(Self {
            xxh3: Xxh3::new(),
            blake3: named.then(blake3::Hasher::new),
        })
    }

    fn update(&mut self, bytes: &[u8]) {
        self.xxh3.update(bytes);
        if let Some(blake3) = &mut self.blake3 {
            blake3.update(bytes);
        }
    }

    fn blake3(&self) -> Option<[u8; 32]> {
        Some(*self.blake3.as_ref()?.finalize().as_bytes())
    }
}

/// A piece of it, and the digests so far.
type Piece = (Source, Box<Hashes>, Bytes);

async fn read(mut source: Source, mut hash: Box<Hashes>, want: u64) -> Result<Piece, RemoteError> {
    let path = source.shard.path.clone();
    let reading = spawn_blocking(move || {
        let mut bytes = Vec::with_capacity(usize::try_from(want).unwrap_or_default());
        let piece = Read::by_ref(&mut source.file).take(want);
        { piece }.read_to_end(&mut bytes)?;
        hash.update(&bytes);
        Ok((source, hash, Bytes::from(bytes)))
    });
    let ended = |e: tokio::task::JoinError| Err(std::io::Error::other(e));
    let read = reading.await.unwrap_or_else(ended);
    read.map_err(RemoteError::local("read", &path))
}

/// Puts a shard's file; the object appears only if its bytes are those that the manifest says. If it is to
/// be `named`, answers with its BLAKE3.
pub(crate) async fn put(
    store: &Arc<dyn ObjectStore>,
    key: &Key,
    source: Source,
    named: bool,
    sent: Progress<'_>,
) -> Result<Option<[u8; 32]>, RemoteError> {
    let shard = source.shard.clone();
    let part = part_bytes(shard.bytes);
    let (source, hash, first) = read(source, Hashes::new(named), part).await?;
    if (first.len() as u64) < part {
        compare(&shard, first.len() as u64, hash.xxh3.digest())?;
        let length = first.len() as u64;
        let put = store.put(key, PutPayload::from(first)).await;
        put.map_err(RemoteError::store("put", key))?;
        sent(length);
        return Ok(hash.blake3());
    }
    let begun = store.put_multipart(key).await;
    let mut upload = begun.map_err(RemoteError::store("begin", key))?;
    let parts = send_parts(&mut *upload, key, (source, hash, first), sent).await;
    let sent = parts.and_then(|(bytes, hash)| {
        compare(&shard, bytes, hash.xxh3.digest())?;
        Ok(hash.blake3())
    });
    let (completed, blake3) = match sent {
        Ok(blake3) => (upload.complete().await.map(drop), blake3),
        Err(error) => {
            // Else its parts would be stored, and paid for, until a lifecycle rule removes them.
            // The error at hand is the one to tell.
            let _ = upload.abort().await;
            return Err(error);
        }
    };
    if completed.is_err() {
        let _ = upload.abort().await;
    }
    completed.map_err(RemoteError::store("complete", key))?;
    Ok(blake3)
}

/// Sends the file to its end; says how many bytes there were and their digests.
async fn send_parts(
    upload: &mut dyn MultipartUpload,
    key: &Key,
    first: Piece,
    sent: Progress<'_>,
) -> Result<(u64, Box<Hashes>), RemoteError> {
    let part = first.2.len() as u64;
    let mut piece = first;
    let mut total = 0;
    let mut flying = JoinSet::new();
    loop {
        let (source, hash, bytes) = piece;
        let length = bytes.len() as u64;
        if length > 0 {
            total += length;
            let sending = upload.put_part(PutPayload::from(bytes));
            flying.spawn(async move { sending.await.map(|()| length) });
        }
        let last = length < part;
        while flying.len() >= IN_FLIGHT || last && !flying.is_empty() {
            // An abandoned part ends with the set.
            let Some(Ok(done)) = flying.join_next().await else {
                return Err(RemoteError::bad(key, "the sending of a part was abandoned"));
            };
            sent(done.map_err(RemoteError::store("put a part of", key))?);
        }
        if last {
            return Ok((total, hash));
        }
        piece = read(source, hash, part).await?;
    }
}

fn compare(shard: &Shard, bytes: u64, digest: u64) -> Result<(), RemoteError> {
    match (bytes, digest) == (shard.bytes, shard.xxh3) {
        true => Ok(()),
        false => Err(RemoteError::bad(
            shard.path.display(),
            format!(
                "{bytes} bytes with digest {digest:016x} instead of {} with {:016x}",
                shard.bytes, shard.xxh3
            ),
        )),
    }
}

/// Reads an object that a manifest names and compares it; with `to`, into that file, durably.
pub(crate) async fn get(
    store: &Arc<dyn ObjectStore>,
    key: &Key,
    wanted: Wanted<'_>,
    to: Option<&Path>,
    read: Progress<'_>,
) -> Result<(), RemoteError> {
    let getting = RemoteError::store("read", key);
    let got = store.get(key).await.map_err(&getting)?;
    let mut file = match to {
        Some(path) => Some(File::create_new(path).map_err(RemoteError::local("make", path))?),
        None => None,
    };
    let Wanted { shard, blake3 } = wanted;
    let hashes = Hashes::new(blake3.is_some());
    let (mut stream, mut hash, mut total) = (got.into_stream(), hashes, 0);
    while let Some(bytes) = stream.try_next().await.map_err(&getting)? {
        let length = bytes.len() as u64;
        total += length;
        if total > shard.bytes {
            break;
        }
        let took = take(file, hash, bytes).await;
        let path = to.unwrap_or(Path::new("-"));
        (file, hash) = took.map_err(RemoteError::local("write", path))?;
        read(length);
    }
    let bad = |which: &str| {
        let rank = shard.rank;
        let reason = format!("the shard of rank {rank} does not match its {which}");
        RemoteError::bad(key, reason)
    };
    if (total, hash.xxh3.digest()) != (shard.bytes, shard.xxh3) {
        return Err(bad("digest"));
    }
    if hash.blake3().as_ref() != blake3 {
        return Err(bad("signed BLAKE3 digest"));
    }
    if let (Some(file), Some(path)) = (file, to) {
        let synced = spawn_blocking(move || file.sync_all());
        let synced = synced
            .await
            .unwrap_or_else(|e| Err(std::io::Error::other(e)));
        synced.map_err(RemoteError::local("sync", path))?;
    }
    Ok(())
}

async fn take(
    mut file: Option<File>,
    mut hash: Box<Hashes>,
    bytes: Bytes,
) -> std::io::Result<(Option<File>, Box<Hashes>)> {
    let taking = spawn_blocking(move || {
        hash.update(&bytes);
        if let Some(file) = &mut file {
            file.write_all(&bytes)?;
        }
        Ok((file, hash))
    });
    let ended = |e: tokio::task::JoinError| Err(std::io::Error::other(e));
    taking.await.unwrap_or_else(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_object_has_more_parts_than_stores_take() {
        assert_eq!(part_bytes(1), PART_BYTES);
        assert_eq!(part_bytes(1 << 30), PART_BYTES);
        for bytes in [1 << 40, 5 << 40, (5 << 40) + 12_345] {
            let part = part_bytes(bytes);
            assert!(bytes.div_ceil(part) <= PARTS, "{bytes}");
            assert_eq!(part % (1 << 20), 0);
        }
    }
}
