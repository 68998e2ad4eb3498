//! A checkpoint of the store, brought back to disk.
use crate::list::shard_key;
use crate::place::MANIFEST;
use crate::{Kept, Remote, RemoteError, transfer};
use object_store::ObjectStoreExt;
use robust_ckpt::{Checkpoint, folder_name, manifest, verify};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a fetch writes to until it is whole; no checkpoint is named so.
const PARTIAL: &str = ".fetch-";

impl Remote {
    /// Brings a checkpoint to the folder of checkpoints `ckpt`, where it is one like any other when
    /// this returns: every byte verified and durable, its folder appearing whole. A folder of the
    /// same step that is whole already is left; one that is not is set aside.
    pub async fn fetch(
        &self,
        kept: &Kept,
        ckpt: &Path,
        read: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Checkpoint, RemoteError> {
        let wanted = self.readable(kept)?;
        let to = ckpt.join(folder_name(wanted.step.0));
        if let Some(there) = whole(&to, wanted) {
            return Ok(there);
        }
        let partial = ckpt.join(format!("{PARTIAL}{}", folder_name(wanted.step.0)));
        // As the daemon makes it, which opens no folder that others may write to.
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(ckpt);
        made.map_err(RemoteError::local("make", ckpt))?;
        // Left by one that was killed.
        remove(&partial)?;
        fs::create_dir(&partial).map_err(RemoteError::local("make", &partial))?;
        let filled = self.fill(kept, wanted, &partial, read).await;
        let placed = filled.and_then(|()| place(&partial, &to, ckpt));
        placed.inspect_err(|_| {
            // Gives its space back; the error at hand is the one to tell.
            let _ = fs::remove_dir_all(&partial);
        })?;
        whole(&to, wanted).ok_or_else(|| RemoteError::bad(to.display(), "it was changed meanwhile"))
    }

    async fn fill(
        &self,
        kept: &Kept,
        wanted: &Checkpoint,
        partial: &Path,
        read: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), RemoteError> {
        let folder = kept.place.key(&self.root);
        for (at, shard) in wanted.shards.iter().enumerate() {
            let key = shard_key(&folder, shard);
            let name = shard.path.file_name().unwrap_or_default();
            let to = partial.join(name);
            transfer::get(&self.store, &key, kept.wanted(at, shard), Some(&to), read).await?;
        }
        let key = folder.join(MANIFEST);
        let getting = RemoteError::store("read", &key);
        let text = self.store.get(&key).await.map_err(&getting)?;
        let text = text.bytes().await.map_err(&getting)?;
        // It was looked at before, and may have been replaced since.
        if blake3::hash(&text) != kept.text {
            return Err(RemoteError::bad(&key, "it was changed meanwhile"));
        }
        let path = partial.join(MANIFEST);
        let written = File::create_new(&path).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        written.map_err(RemoteError::local("write", &path))?;
        sync(partial)
    }
}

/// The checkpoint that is there, if it is the wanted one with every byte.
fn whole(dir: &Path, wanted: &Checkpoint) -> Option<Checkpoint> {
    let there = manifest::load(dir).ok()??;
    let digests = |c: &Checkpoint| -> Vec<(u32, u64, u64)> {
        c.shards.iter().map(|s| (s.rank, s.bytes, s.xxh3)).collect()
    };
    let same = there.generation == wanted.generation && digests(&there) == digests(wanted);
    (same && verify(&there, &mut |_| ()).is_ok()).then_some(there)
}

/// Gives the folder its name, durably.
fn place(partial: &Path, to: &Path, ckpt: &Path) -> Result<(), RemoteError> {
    if to.exists() {
        let aside = aside(to);
        fs::rename(to, &aside).map_err(RemoteError::local("set aside", to))?;
    }
    fs::rename(partial, to).map_err(RemoteError::local("rename", partial))?;
    sync(ckpt)
}

/// Where a folder goes that is not what it should be.
fn aside(dir: &Path) -> PathBuf {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let at = since.unwrap_or_default().as_millis();
    dir.with_file_name(format!("{name}.corrupt-{at}"))
}

fn remove(dir: &Path) -> Result<(), RemoteError> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(RemoteError::local("remove", dir)(e)),
        _ => Ok(()),
    }
}

fn sync(dir: &Path) -> Result<(), RemoteError> {
    let synced = File::open(dir).and_then(|d| d.sync_all());
    synced.map_err(RemoteError::local("sync", dir))
}
