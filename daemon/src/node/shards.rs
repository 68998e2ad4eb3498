//! Snapshot shards on their way: to the leader before a rank's answer is passed on, and here before
//! a rank is told to restore them.
use super::Upstream;
use super::files::client;
use robust_ckpt::files::digest;
use robust_proto::v1;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use xxhash_rust::xxh3::Xxh3;

const PREFIX: &str = "fetched-";
/// Parts read ahead of the network.
const AHEAD: usize = 4;

/// Digest and size name a shard's content.
type Content = (u64, u64);

/// The shards on this machine.
#[derive(Clone, Debug)]
pub(super) struct Shards {
    folder: PathBuf,
    /// Where a rank wrote what the leader was sent. The rank may have overwritten it since.
    written: Arc<Mutex<HashMap<Content, PathBuf>>>,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Status {
    let path = path.display().to_string();
    move |e| Status::resource_exhausted(format!("{path}: {e}"))
}

impl Shards {
    /// In the node's shared memory.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            written: Arc::default(),
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
            xxh3: shard.xxh3,
        };
        let path = PathBuf::from(&shard.path);
        let parts = ReceiverStream::new(read(header, path.clone()));
        let request = upstream.request(parts);
        let kept = client(upstream).keep_shard(request).await?.into_inner();
        let mut written = self.written.lock().await;
        // Two slots a rank; what is older was overwritten.
        written.retain(|_, at| *at != path);
        written.insert((shard.xxh3, shard.bytes), path);
        Ok(v1::SnapshotReply {
            path: kept.path,
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
            let content = (shard.xxh3, shard.bytes);
            let own = written.get(&content).cloned();
            let path = match own {
                Some(path) if is(&path, content).await => path,
                _ => self.fetch(upstream, &shard).await?,
            };
            let path = path.display().to_string();
            here.push(v1::SnapshotReply { path, ..shard });
        }
        Ok(here)
    }

    fn path(&self, shard: &v1::SnapshotReply) -> PathBuf {
        let name = format!("{PREFIX}{:016x}-{}.shard", shard.xxh3, shard.bytes);
        self.folder.join(name)
    }

    async fn fetch(
        &self,
        upstream: &Upstream,
        shard: &v1::SnapshotReply,
    ) -> Result<PathBuf, Status> {
        let content = (shard.xxh3, shard.bytes);
        let path = self.path(shard);
        if is(&path, content).await {
            return Ok(path);
        }
        let request = upstream.request(v1::ReadShardRequest {
            path: shard.path.clone(),
        });
        let mut parts = client(upstream).read_shard(request).await?.into_inner();
        let temporary = path.with_extension("part");
        let mut file = File::create(&temporary).map_err(failed(&temporary))?;
        let (mut hash, mut bytes) = (Xxh3::new(), 0);
        while let Some(part) = parts.message().await? {
            // A slot may be longer than its image.
            let wanted = usize::try_from(shard.bytes - bytes).unwrap_or(usize::MAX);
            let data = &part.data[..part.data.len().min(wanted)];
            bytes += data.len() as u64;
            hash.update(data);
            file.write_all(data).map_err(failed(&temporary))?;
        }
        if (hash.digest(), bytes) != content {
            let text = format!("{} changed on its way here", shard.path);
            return Err(Status::data_loss(text));
        }
        fs::rename(&temporary, &path).map_err(failed(&path))?;
        Ok(path)
    }

    /// What was fetched for an earlier restore is not needed again.
    fn remove_all_but(&self, needed: &[v1::SnapshotReply]) {
        let keep: Vec<PathBuf> = needed.iter().map(|s| self.path(s)).collect();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let fetched = entry.file_name().to_string_lossy().starts_with(PREFIX);
            if fetched && !keep.contains(&entry.path()) {
                // Memory only: it is fetched again when it is asked for.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
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

/// The shard's parts; it ends early when the file does, and the leader sees that it is torn.
fn read(header: v1::ShardHeader, path: PathBuf) -> mpsc::Receiver<v1::ShardPart> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let bytes = header.bytes;
        let mut header = Some(header);
        let Ok(file) = File::open(&path) else {
            return;
        };
        let mut file = file.take(bytes);
        loop {
            let mut data = Vec::with_capacity(crate::nodes::PART_BYTES);
            let read = file
                .by_ref()
                .take(crate::nodes::PART_BYTES as u64)
                .read_to_end(&mut data);
            let empty = data.is_empty();
            let part = v1::ShardPart {
                header: header.take(),
                data,
            };
            if read.is_err() || empty && part.header.is_none() {
                return;
            }
            if sender.blocking_send(part).is_err() {
                return;
            }
        }
    });
    receiver
}
