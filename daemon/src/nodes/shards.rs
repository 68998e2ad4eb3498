//! Shards of ranks on other nodes that come to the leader: to be a copy of them on another machine, where the leader is
//! a node; to be written to a checkpoint; and from nodes of earlier builds, which give them to nobody else.
//!
//! A kept shard has a file of its own, named after rank, step and incarnation, so that a rank of an
//! older gang which still writes somewhere can damage nothing that is committed (I-1).
use super::outgoing::ShardDigests;
use super::places::{Bringing, Places};
use super::wanted::{OnItsWay, RankThere, Unwanted, Wanted};
use robust_proto::v1;
use robust_shared::ids::Step;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use xxhash_rust::xxh3::Xxh3;

const PREFIX: &str = "kept-";

/// Why a shard is not kept, or not given.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// It cannot be written or read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What came is not what was announced.
    #[error("the shard of rank {rank} at step {step} is not what was announced: {detail}")]
    Torn {
        /// Whose.
        rank: u32,
        /// Of which step.
        step: u64,
        /// What differs.
        detail: String,
    },
    /// Nobody waits for it.
    #[error(
        "the shard of rank {rank} at step {step} is not kept: node {node} is not who should send it now"
    )]
    Unexpected {
        /// Whose.
        rank: u32,
        /// Of which step.
        step: u64,
        /// Who sends it.
        node: String,
    },
    /// It comes again and again at the same time.
    #[error("the shard of rank {rank} at step {step} is on its way already")]
    OnItsWay {
        /// Whose.
        rank: u32,
        /// Of which step.
        step: u64,
    },
    /// There is no room for it.
    #[error("{path}: the shard has {bytes} bytes, and {room} are free")]
    NoRoom {
        /// Where.
        path: PathBuf,
        /// What it has.
        bytes: u64,
        /// What there is.
        room: u64,
    },
    /// It is none of the job's shards.
    #[error("{path} is no shard of this job")]
    Outside {
        /// What was asked for.
        path: PathBuf,
    },
}

/// A shard that was read: its file, step and generation.
type ReadKey = (PathBuf, u64, u64);

/// A shard that a node brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brought {
    /// Where it is now.
    pub path: PathBuf,
    /// What it is, by what came.
    pub digests: ShardDigests,
}

/// Where shards are. Clones are one and the same.
#[derive(Clone, Debug)]
pub struct Shards {
    snapshots: PathBuf,
    checkpoints: PathBuf,
    /// What nodes brought back, by step and rank.
    brought: watch::Sender<HashMap<(u64, u32), Brought>>,
    /// Bytes that came, of whatever shard.
    came: Arc<AtomicU64>,
    /// What may come.
    wanted: Wanted,
    /// Who has what is not here.
    places: Places,
    /// Who brings what.
    bringing: Bringing,
    /// How often each step is pinned.
    pinned: Arc<Mutex<HashMap<u64, usize>>>,
    /// ShardDigests of what was read from here, whole.
    read: Arc<Mutex<HashMap<ReadKey, ShardDigests>>>,
}

impl Shards {
    /// In these folders.
    pub fn new(snapshots: PathBuf, checkpoints: PathBuf) -> Self {
        Self {
            snapshots,
            checkpoints,
            brought: watch::Sender::default(),
            came: Arc::default(),
            wanted: Wanted::default(),
            places: Places::default(),
            bringing: Bringing::default(),
            pinned: Arc::default(),
            read: Arc::default(),
        }
    }

    /// Ranks on other nodes take snapshots of these steps, and of no other, from now on.
    pub fn expect_of_gang(&self, steps: RangeInclusive<u64>, ranks: Vec<RankThere>) {
        self.wanted.of_gang(steps, ranks);
    }

    /// A shard is about to be brought back by this node; tells when it is here.
    pub fn expect(&self, (step, rank): (u64, u32), from: &str, bytes: u64) -> Expected {
        self.brought
            .send_modify(|all| drop(all.remove(&(step, rank))));
        self.wanted.brought((step, rank), from, bytes);
        Expected {
            key: (step, rank),
            wanted: self.wanted.clone(),
            brought: self.brought.subscribe(),
            came: Arc::clone(&self.came),
        }
    }

    /// The file of a shard that may be read: one that lies in the job's folders.
    pub fn find(&self, path: &str) -> Result<PathBuf, ShardError> {
        let given = PathBuf::from(path);
        let io = |source| ShardError::Io {
            path: PathBuf::from(path),
            source,
        };
        let folders = [&self.snapshots, &self.checkpoints];
        let up = given.components().any(|part| part == Component::ParentDir);
        let named = folders.into_iter().any(|folder| given.starts_with(folder));
        // Looked at before the disk is: nobody learns from the answer what else is there.
        if up || !named {
            return Err(ShardError::Outside { path: given });
        }
        let found = given.canonicalize().map_err(io)?;
        let inside = folders
            .into_iter()
            .filter_map(|folder| folder.canonicalize().ok())
            .any(|folder| found.starts_with(folder));
        match inside && found.is_file() {
            true => Ok(found),
            false => Err(ShardError::Outside { path: given }),
        }
    }

    /// Who has what is not here.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// By whom shards are brought here.
    pub fn bringing(&self) -> &Bringing {
        &self.bringing
    }

    /// Whether that is a shard's file which may be read from here.
    pub fn has(&self, path: &str) -> bool {
        self.find(path).is_ok()
    }

    /// A node read a shard to its end, and this is what it was sent.
    pub fn was_read(&self, of: &v1::ReadShardRequest, digests: ShardDigests) {
        let key = (PathBuf::from(&of.path), of.step, of.generation);
        self.read().insert(key, digests);
    }

    /// The digests of a shard that a node read from here; none that this daemon knows.
    pub fn digest_read(&self, shard: &v1::SnapshotReply) -> Option<ShardDigests> {
        let key = (PathBuf::from(&shard.path), shard.step, shard.generation);
        self.read().get(&key).copied()
    }

    fn read(&self) -> MutexGuard<'_, HashMap<ReadKey, ShardDigests>> {
        // No code can panic while it holds the lock, so a poisoned table is as good as any.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to keep a shard that this node sends, if it should.
    pub fn keep(&self, header: v1::ShardHeader, from: &str) -> Result<Keeping, ShardError> {
        let (rank, step) = (header.rank, header.step);
        let node = from.to_owned();
        let way = self
            .wanted
            .take(&header, from)
            .map_err(|unwanted| match unwanted {
                Unwanted::Unexpected => ShardError::Unexpected { rank, step, node },
                Unwanted::Often => ShardError::OnItsWay { rank, step },
                Unwanted::Size(expected) => {
                    let detail = format!(
                        "{} bytes, and all its snapshots have {expected}",
                        header.bytes
                    );
                    torn(&header, detail)
                }
            })?;
        self.room_for(header.bytes)?;
        let path = self.snapshots.join(name(&header));
        // One of its own: the same shard may be on its way twice, over a link that is broken and is not
        // known to be, and over the next one.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{}-{number}.part", std::process::id()));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(|source| ShardError::Io {
                path: temporary.clone(),
                source,
            })?;
        // What a node's own rank took is whatever it says; what comes back has to be what was sent.
        let named = (header.incarnation == 0).then(blake3::Hasher::new);
        Ok(Keeping {
            named,
            header,
            path,
            temporary,
            file,
            hash: Xxh3::new(),
            bytes: 0,
            shards: self.clone(),
            _way: way,
        })
    }

    /// Refuses what the memory has no room for before a byte of it has come.
    fn room_for(&self, bytes: u64) -> Result<(), ShardError> {
        let path = self.snapshots.clone();
        let room = match rustix::fs::statvfs(&path) {
            Ok(fs) => fs.f_bavail.saturating_mul(fs.f_frsize),
            Err(error) => {
                let source = error.into();
                return Err(ShardError::Io { path, source });
            }
        };
        match bytes <= room {
            true => Ok(()),
            false => Err(ShardError::NoRoom { path, bytes, room }),
        }
    }

    /// The shards of a step stay for as long as this lives: they come here, and are written.
    pub fn pin(&self, step: u64) -> Pinned {
        *self.pins().entry(step).or_default() += 1;
        let shards = self.clone();
        Pinned { shards, step }
    }

    /// The steps that are pinned now.
    pub fn pinned_steps(&self) -> Vec<u64> {
        self.pins().keys().copied().collect()
    }

    fn pins(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        // A count is whole, whoever panicked.
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes kept shards of steps before `oldest`, and those up to `newest` that are not in use:
    /// of gangs that are over. Those after `newest` may be on their way, and those of pinned steps are.
    pub fn tidy(&self, oldest: u64, newest: u64, in_use: &[PathBuf]) {
        self.read().retain(|(_, step, _), _| *step >= oldest);
        self.bringing.forget_before(Step(oldest));
        for entry in fs::read_dir(&self.snapshots)
            .into_iter()
            .flatten()
            .flatten()
        {
            let Some(step) = step_of(&entry.file_name().to_string_lossy()) else {
                continue;
            };
            if self.pins().contains_key(&step) {
                continue;
            }
            let path = entry.path();
            if step < oldest || step <= newest && !in_use.contains(&path) {
                // Whoever removed it before did the same.
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Keeps the shards of a step where they are.
#[derive(Debug)]
pub struct Pinned {
    shards: Shards,
    step: u64,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut pins = self.shards.pins();
        if let Some(count) = pins.get_mut(&self.step) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.step);
            }
        }
    }
}

fn name(header: &v1::ShardHeader) -> String {
    let v1::ShardHeader {
        rank,
        step,
        incarnation,
        ..
    } = header;
    format!("{PREFIX}{step}-{rank}-{incarnation}.shard")
}

fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn torn(header: &v1::ShardHeader, detail: String) -> ShardError {
    ShardError::Torn {
        rank: header.rank,
        step: header.step,
        detail,
    }
}

/// A shard on its way into memory. Dropped before its end, it leaves nothing.
pub struct Keeping {
    header: v1::ShardHeader,
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    hash: Xxh3,
    /// Of one that is brought back.
    named: Option<blake3::Hasher>,
    bytes: u64,
    shards: Shards,
    _way: OnItsWay,
}

/// A shard that a node was told to bring back.
#[derive(Debug)]
pub struct Expected {
    key: (u64, u32),
    wanted: Wanted,
    brought: watch::Receiver<HashMap<(u64, u32), Brought>>,
    came: Arc<AtomicU64>,
}

impl Expected {
    /// Waits until it is here.
    pub async fn here(&mut self) -> Option<Brought> {
        let key = self.key;
        let all = self.brought.wait_for(|all| all.contains_key(&key)).await;
        all.ok()?.get(&key).cloned()
    }

    /// Bytes that came from nodes so far: as long as they do, patience pays.
    pub fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.wanted.forget(self.key);
    }
}

impl Keeping {
    /// The next bytes.
    pub fn add(&mut self, data: &[u8]) -> Result<(), ShardError> {
        self.bytes += data.len() as u64;
        self.shards
            .came
            .fetch_add(data.len() as u64, Ordering::Relaxed);
        if self.bytes > self.header.bytes {
            let detail = format!("more than {} bytes", self.header.bytes);
            return Err(torn(&self.header, detail));
        }
        self.hash.update(data);
        if let Some(named) = &mut self.named {
            named.update(data);
        }
        self.file
            .write_all(data)
            .map_err(|source| self.failed(source))
    }

    /// No more bytes come: the shard is there, whole, if they are those that the sender hashed. One that
    /// did not get to the end, or saw the slot change, knows no digest.
    pub fn finish(self, xxh3: Option<u64>) -> Result<(PathBuf, u64), ShardError> {
        let (bytes, digest) = (self.bytes, self.hash.digest());
        if (bytes, Some(digest)) != (self.header.bytes, xxh3) {
            let sent = xxh3.map_or_else(|| "none".to_owned(), |xxh3| format!("{xxh3:016x}"));
            let wanted = self.header.bytes;
            let detail =
                format!("{bytes} bytes with digest {digest:016x} instead of {wanted} with {sent}");
            return Err(torn(&self.header, detail));
        }
        fs::rename(&self.temporary, &self.path).map_err(|source| self.failed(source))?;
        if let Some(named) = &self.named {
            let key = (self.header.step, self.header.rank);
            let here = Brought {
                path: self.path.clone(),
                digests: ShardDigests {
                    xxh3: digest,
                    blake3: *named.finalize().as_bytes(),
                },
            };
            self.shards
                .brought
                .send_modify(|all| drop(all.insert(key, here)));
        }
        Ok((self.path.clone(), digest))
    }

    fn failed(&self, source: io::Error) -> ShardError {
        ShardError::Io {
            path: self.temporary.clone(),
            source,
        }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        // Gone by then if the shard is kept.
        let _ = fs::remove_file(Path::new(&self.temporary));
    }
}

#[cfg(test)]
#[path = "shards_tests.rs"]
mod tests;
