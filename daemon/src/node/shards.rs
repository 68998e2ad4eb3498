//! Snapshot shards on their way: to the leader before a rank's answer is passed on, and here before
//! a rank is told to restore them.
use super::Upstream;
use super::files::client;
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
use tokio::sync::Mutex;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use xxhash_rust::xxh3::Xxh3;

const PREFIX: &str = "fetched-";

/// Digest and size name a shard's content.
type Content = (u64, u64);

/// The shards on this machine.
#[derive(Clone, Debug)]
pub(super) struct Shards {
    folder: PathBuf,
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
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
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

    /// Brings shards here; the answer names them where they are now. One caller at a time: the
    /// ranks of a node restore the same shards.
    pub async fn bring(
        &self,
        upstream: &Upstream,
        shards: Vec<v1::SnapshotReply>,
    ) -> Result<Vec<v1::SnapshotReply>, Status> {
        let written = self.written.lock().await;
        self.remove_all_but(&shards);
        let mut here = Vec::new();
        for shard in shards {
            let own = shard
                .xxh3
                .and_then(|xxh3| written.get(&(xxh3, shard.bytes)));
            let own = own.filter(|path| Image::open(path, taken_of(&shard)).is_ok());
            let path = match own {
                Some(path) => path.clone(),
                None => self.fetch(upstream, &shard).await?,
            };
            let path = path.display().to_string();
            here.push(v1::SnapshotReply { path, ..shard });
        }
        Ok(here)
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
    let mut parts = client(upstream).read_shard(request).await?.into_inner();
    let temporary = path.with_extension("part");
    let mut file = File::create(&temporary).map_err(failed(&temporary))?;
    let (mut hash, mut bytes, mut sent) = (Xxh3::new(), 0, None);
    while let Some(part) = parts.message().await? {
        bytes += part.data.len() as u64;
        hash.update(&part.data);
        sent = part.xxh3;
        file.write_all(&part.data).map_err(failed(&temporary))?;
    }
    // The leader's own digest where it had none before: the network is checked all the same.
    let content = sent.map(|sent| (shard.xxh3.unwrap_or(sent), shard.bytes));
    let digest = hash.digest();
    if content != Some((digest, bytes)) {
        let text = format!("{} changed on its way here", shard.path);
        return Err(Status::data_loss(text));
    }
    fs::rename(&temporary, path).map_err(failed(path))?;
    Ok(digest)
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
