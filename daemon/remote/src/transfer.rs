//! Bytes between local files and objects, hashed on the way.
use crate::RemoteError;
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use robust_ckpt::Shard;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, timeout, timeout_at};
use xxhash_rust::xxh3::Xxh3;

/// Hears of every piece, in bytes.
pub(crate) type Progress<'a> = &'a mut (dyn FnMut(u64) + Send);

/// A part of a multipart upload; stores want at least 5 MiB.
pub(crate) const PART_BYTES: u64 = 8 << 20;
/// Stores take 10,000 parts; larger objects have larger parts.
const PARTS: u64 = 9_000;
/// Parts on their way at a time. Together with the one being read they are all the memory it takes.
const IN_FLIGHT: usize = 3;
/// Of an upload whose end nobody else waits for: the store's own limits are all there is.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long a store may take to remove the parts of an upload that came to nothing.
const ABORT: Duration = Duration::from_secs(10);

/// Size of the parts of an object of so many bytes, all but the last.
pub(crate) fn part_bytes(bytes: u64) -> u64 {
    let needed = bytes.div_ceil(PARTS).next_multiple_of(1 << 20);
    needed.max(PART_BYTES)
}

/// A shard that is read to be sent; open, so that its file may be removed meanwhile.
pub(crate) struct Source {
    pub bytes: Box<dyn Read + Send>,
    pub known: Known,
}

/// What is known of a shard before it is read.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// Where it is read from.
    pub path: PathBuf,
    pub bytes: u64,
    /// None: nobody has hashed it.
    pub xxh3: Option<u64>,
}

/// What was put, by what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Put {
    pub xxh3: u64,
    /// Where it was wanted.
    pub blake3: Option<[u8; 32]>,
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
    let path = source.known.path.clone();
    let reading = spawn_blocking(move || {
        let mut bytes = Vec::with_capacity(usize::try_from(want).unwrap_or_default());
        let piece = Read::by_ref(&mut source.bytes).take(want);
        { piece }.read_to_end(&mut bytes)?;
        hash.update(&bytes);
        Ok((source, hash, Bytes::from(bytes)))
    });
    let ended = |e: tokio::task::JoinError| Err(std::io::Error::other(e));
    let read = reading.await.unwrap_or_else(ended);
    read.map_err(RemoteError::local("read", &path))
}

/// Puts a shard; the object appears only if its bytes are those that are known of it. With `named` its BLAKE3 is taken.
pub(crate) async fn put(
    store: &Arc<dyn ObjectStore>,
    key: &Key,
    source: Source,
    named: bool,
    sent: Progress<'_>,
) -> Result<Put, RemoteError> {
    put_within(NO_LIMIT, store, key, source, named, sent).await
}

/// The same, given up after so long.
pub(crate) async fn put_within(
    limit: Duration,
    store: &Arc<dyn ObjectStore>,
    key: &Key,
    source: Source,
    named: bool,
    sent: Progress<'_>,
) -> Result<Put, RemoteError> {
    let until = Instant::now() + limit;
    let late = |_| RemoteError::bad(key, format!("it was not put within {limit:?}"));
    let known = source.known.clone();
    let part = part_bytes(known.bytes);
    let first = read(source, Hashes::new(named), part);
    let (source, hash, first) = timeout_at(until, first).await.map_err(late)??;
    if (first.len() as u64) < part {
        let length = first.len() as u64;
        let digests = compare(&known, length, &hash)?;
        let put = store.put(key, PutPayload::from(first));
        let put = timeout_at(until, put).await.map_err(late)?;
        put.map_err(RemoteError::store("put", key))?;
        sent(length);
        return Ok(digests);
    }
    let begun = timeout_at(until, store.put_multipart(key)).await;
    let begun = begun.map_err(late)?;
    let mut upload = begun.map_err(RemoteError::store("begin", key))?;
    let putting = async {
        let (bytes, hash) = send_parts(&mut *upload, key, (source, hash, first), sent).await?;
        let digests = compare(&known, bytes, &hash)?;
        let completed = upload.complete().await;
        completed.map_err(RemoteError::store("complete", key))?;
        Ok(digests)
    };
    let put = timeout_at(until, putting).await.map_err(late);
    let put = put.and_then(|put| put);
    if put.is_err() {
        // Else its parts would be stored, and paid for, until a lifecycle rule removes them.
        // The error at hand is the one to tell.
        let _ = timeout(ABORT, upload.abort()).await;
    }
    put
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

fn compare(known: &Known, bytes: u64, hash: &Hashes) -> Result<Put, RemoteError> {
    let xxh3 = hash.xxh3.digest();
    let wanted = known.xxh3.unwrap_or(xxh3);
    match (bytes, xxh3) == (known.bytes, wanted) {
        true => Ok(Put {
            xxh3,
            blake3: hash.blake3(),
        }),
        false => Err(RemoteError::bad(
            known.path.display(),
            format!(
                "{bytes} bytes with digest {xxh3:016x} instead of {} with {wanted:016x}",
                known.bytes
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
