//! Snapshot shards on their way: here before a rank is told to restore them, from this node's memory, another node's or the
//! leader's; and to a leader of an earlier build before a rank's answer is passed on.
use super::Upstream;
use super::exchange::Exchange;
use super::files::client;
use super::held::Held;
use crate::nodes::{parts_of, taken};
use robust_ckpt::files::digest;
use robust_ckpt::slot::{Image, Taken};
use robust_proto::v1;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use xxhash_rust::xxh3::Xxh3;

const PREFIX: &str = "fetched-";
/// How long a shard may take, and the bytes a second that it has to come with beyond that.
const LEAST_TIME: Duration = Duration::from_secs(60);
const SLOWEST: u64 = 10_000_000;

/// Digest and size name a shard's content.
type Content = (u64, u64);

/// The shards on this machine.
#[derive(Clone, Debug)]
pub(super) struct Shards {
    folder: PathBuf,
    held: Held,
    exchange: Exchange,
    /// Where a rank wrote what the leader was sent. The rank may have overwritten it since.
    written: Arc<Mutex<HashMap<Content, PathBuf>>>,
    fetches: Arc<AtomicU64>,
}

pub(super) fn failed(path: &Path) -> impl FnOnce(io::Error) -> Status {
    let path = path.display().to_string();
    move |e| Status::resource_exhausted(format!("{path}: {e}"))
}

impl Shards {
    /// In the node's shared memory.
    pub fn new(folder: PathBuf, exchange: Exchange) -> Self {
        Self {
            held: Held::new(folder.clone()),
            folder,
            exchange,
            written: Arc::default(),
            fetches: Arc::default(),
        }
    }

    /// Copies a rank's shard to the leader; the answer names the copy.
    pub async fn send(
        &self,
        upstream: &Upstream,
        incarnation: u64,
        rank: u32,
        shard: v1::SnapshotReply,
    ) -> Result<v1::SnapshotReply, Status> {
        let header = v1::ShardHeader {
            incarnation,
            rank,
            step: shard.step,
            bytes: shard.bytes,
        };
        let path = PathBuf::from(&shard.path);
        let parts = parts_of(path.clone(), taken_of(&shard), Some(header));
        // Cut short at an error: the leader keeps nothing whose digest did not come.
        let parts = ReceiverStream::new(parts).map_while(Result::ok);
        let request = upstream.request(parts);
        let kept = client(upstream).keep_shard(request).await?.into_inner();
        let mut written = self.written.lock().await;
        // Two slots a rank; what is older was overwritten.
        written.retain(|_, at| *at != path);
        written.insert((kept.xxh3, shard.bytes), path);
        Ok(v1::SnapshotReply {
            path: kept.path,
            xxh3: Some(kept.xxh3),
            ..shard
        })
    }

    /// Brings shards here, of all ranks or of one `only`; the answer names them where they are now. One caller at a time:
    /// the ranks of a node restore the same shards.
    pub async fn bring(
        &self,
        upstream: &Upstream,
        shards: Vec<v1::SnapshotReply>,
        only: Option<u32>,
    ) -> Result<Vec<v1::SnapshotReply>, Status> {
        let written = self.written.lock().await;
        self.remove_all_but(&shards);
        let mut here = Vec::new();
        for (rank, shard) in (0..).zip(shards) {
            if only.is_some_and(|only| only != rank) {
                here.push(v1::SnapshotReply {
                    path: String::new(),
                    ..shard
                });
                continue;
            }
            let own = shard
                .xxh3
                .and_then(|xxh3| written.get(&(xxh3, shard.bytes)));
            let own = own.filter(|path| Image::open(path, taken_of(&shard)).is_ok());
            let shard = match own {
                Some(path) => at(path, shard),
                None => match self.in_memory(rank, &shard) {
                    Some(path) => at(&path, shard),
                    None if shard.path.is_empty() => self.find(upstream, rank, shard).await?,
                    None => at(&self.fetch(upstream, &shard).await?, shard),
                },
            };
            here.push(shard);
        }
        Ok(here)
    }

    /// The slot of a rank that ran here, or a copy that this node holds.
    fn in_memory(&self, rank: u32, shard: &v1::SnapshotReply) -> Option<PathBuf> {
        let (held, path) = self.held.find(&held_of(rank, shard))?;
        let is_another =
            matches!((held.xxh3, shard.xxh3), (Some(here), Some(known)) if here != known);
        let is_whole = Image::open(&path, taken_of(shard)).is_ok();
        (is_whole && !is_another).then_some(path)
    }

    /// A shard that the leader does not have, from a node that has it.
    async fn find(
        &self,
        upstream: &Upstream,
        rank: u32,
        shard: v1::SnapshotReply,
    ) -> Result<v1::SnapshotReply, Status> {
        let wanted = held_of(rank, &shard);
        let mut leader = client(upstream);
        let found = leader.find_shard(upstream.request(wanted));
        let v1::ShardPlaces {
            places,
            xxh3,
            blake3,
        } = found.await?.into_inner();
        let shard = v1::SnapshotReply {
            xxh3: shard.xxh3.or(xxh3),
            blake3,
            ..shard
        };
        let path = self.fetched(&shard);
        if let Some(xxh3) = shard.xxh3
            && is(&path, (xxh3, shard.bytes)).await
        {
            return Ok(at(&path, shard));
        }
        let others = places.iter().filter(|p| p.node != self.exchange.name());
        let mut why = Vec::new();
        for place in others {
            let read = async {
                let parts = self.exchange.read(place, &wanted).await?;
                receive(parts, &shard, &path).await
            };
            match read.await {
                Ok(xxh3) => {
                    let xxh3 = Some(xxh3);
                    return Ok(at(&path, v1::SnapshotReply { xxh3, ..shard }));
                }
                Err(status) => why.push(format!("{}: {}", place.node, status.message())),
            }
        }
        let why = match why.is_empty() {
            true => "no node has it".to_owned(),
            false => why.join("; "),
        };
        let text = format!("the shard of rank {rank} at step {}: {why}", shard.step);
        // The leader has other sources: asking for this one again is no use.
        Err(Status::not_found(text))
    }

    async fn fetch(
        &self,
        upstream: &Upstream,
        shard: &v1::SnapshotReply,
    ) -> Result<PathBuf, Status> {
        let path = self.fetched(shard);
        if let Some(xxh3) = shard.xxh3
            && is(&path, (xxh3, shard.bytes)).await
        {
            return Ok(path);
        }
        copy(upstream, shard, &path).await?;
        Ok(path)
    }

    /// Where a shard is put. One whose digest nobody knows yet is fetched by every rank anew: nothing
    /// says that a file which lies there is that very one.
    fn fetched(&self, shard: &v1::SnapshotReply) -> PathBuf {
        let number = self.fetches.fetch_add(1, Ordering::Relaxed);
        let stem = stem(shard);
        match shard.xxh3 {
            Some(_) => self.folder.join(stem),
            None => self.folder.join(format!("{stem}{number}.shard")),
        }
    }

    /// What was fetched for an earlier restore is not needed again.
    fn remove_all_but(&self, needed: &[v1::SnapshotReply]) {
        let keep: Vec<String> = needed.iter().map(stem).collect();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let needed = keep.iter().any(|stem| name.starts_with(stem));
            if name.starts_with(PREFIX) && !needed {
                // Memory only: it is fetched again when it is asked for.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Copies a shard of the leader's to a file here, which appears whole; its digest.
pub(super) async fn copy(
    upstream: &Upstream,
    shard: &v1::SnapshotReply,
    path: &Path,
) -> Result<u64, Status> {
    let request = upstream.request(v1::ReadShardRequest {
        path: shard.path.clone(),
        step: shard.step,
        generation: shard.generation,
        bytes: shard.bytes,
    });
    let parts = client(upstream).read_shard(request).await?.into_inner();
    receive(parts, shard, path).await
}

/// Writes what comes to a file, which appears whole, and is that shard as far as its digests are known; its digest.
pub(super) async fn receive(
    mut parts: Streaming<v1::ShardPart>,
    shard: &v1::SnapshotReply,
    path: &Path,
) -> Result<u64, Status> {
    let temporary = path.with_extension("part");
    let most = LEAST_TIME + Duration::from_secs(shard.bytes / SLOWEST);
    let receiving = timeout(most, write_parts(&mut parts, shard, &temporary));
    let slow = |_| Status::unavailable(format!("it did not come within {} s", most.as_secs()));
    let received = receiving.await.map_err(slow).and_then(|written| written);
    let digest = received.inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    fs::rename(&temporary, path).map_err(failed(path))?;
    Ok(digest)
}

async fn write_parts(
    parts: &mut Streaming<v1::ShardPart>,
    shard: &v1::SnapshotReply,
    temporary: &Path,
) -> Result<u64, Status> {
    let mut file = File::create(temporary).map_err(failed(temporary))?;
    let (mut hash, mut bytes, mut sent) = (Xxh3::new(), 0, None);
    let mut named = shard.blake3.as_ref().map(|_| blake3::Hasher::new());
    while let Some(part) = Exchange::next(parts).await? {
        bytes += part.data.len() as u64;
        if bytes > shard.bytes {
            break;
        }
        hash.update(&part.data);
        if let Some(named) = &mut named {
            named.update(&part.data);
        }
        sent = part.xxh3;
        file.write_all(&part.data).map_err(failed(temporary))?;
    }
    // The giver's own digest where none was known before: the network is checked all the same.
    let content = sent.map(|sent| (shard.xxh3.unwrap_or(sent), shard.bytes));
    let digest = hash.digest();
    let name = named.map(|named| named.finalize().as_bytes().to_vec());
    if content != Some((digest, bytes)) || name != shard.blake3 {
        let text = format!(
            "the shard of step {} is not what was taken, or changed on its way here",
            shard.step
        );
        return Err(Status::data_loss(text));
    }
    Ok(digest)
}

/// That shard, at this place.
fn at(path: &Path, shard: v1::SnapshotReply) -> v1::SnapshotReply {
    let path = path.display().to_string();
    v1::SnapshotReply { path, ..shard }
}

fn held_of(rank: u32, shard: &v1::SnapshotReply) -> v1::HeldShard {
    v1::HeldShard {
        step: shard.step,
        generation: shard.generation,
        rank,
        bytes: shard.bytes,
        xxh3: shard.xxh3,
    }
}

/// How the names of a shard's fetched files begin.
fn stem(shard: &v1::SnapshotReply) -> String {
    match shard.xxh3 {
        Some(xxh3) => format!("{PREFIX}{xxh3:016x}-{}.shard", shard.bytes),
        None => format!("{PREFIX}step-{}-{}-", shard.step, shard.generation),
    }
}

fn taken_of(shard: &v1::SnapshotReply) -> Taken {
    taken(shard.step, shard.generation, shard.bytes)
}

/// Whether a file is that shard, and nothing else.
async fn is(path: &Path, content: Content) -> bool {
    let path = path.to_owned();
    let hashed = tokio::task::spawn_blocking(move || {
        let (bytes, xxh3) = digest(&path, &mut |_| ())?;
        Ok::<_, io::Error>((xxh3, bytes))
    });
    matches!(hashed.await, Ok(Ok(found)) if found == content)
}
