//! A shard of a checkpoint, from this machine's memory into the object store.
//!
//! A rank's slot is overwritten two steps later, and an upload may take longer. So what is in a slot is copied first, within
//! memory, to a file that has no name: it is gone with the upload, however that ends. Where memory has no room for that it
//! is read from the slot itself, and counts only if that did not change meanwhile. Copies that are held of other nodes'
//! shards are files that nobody writes to.
use robust_ckpt::CkptError;
use robust_ckpt::slot::{Image, Taken};
use robust_remote::{PutShard, Remote};
use rustix::fs::FallocateFlags;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Bytes that are copied at a time.
const PIECE: usize = 4 << 20;

/// A shard in this machine's memory.
#[derive(Clone, Debug)]
pub struct InMemory {
    /// The slot of a rank that runs here, or a copy of another one's.
    pub path: PathBuf,
    /// What must lie there.
    pub taken: Taken,
    /// Its digest, where it is known.
    pub xxh3: Option<u64>,
}

/// Puts a shard at a key below the store's URL; the error is a sentence.
pub async fn put_shard(
    remote: &Remote,
    key: &str,
    shard: InMemory,
    limit: Duration,
) -> Result<PutShard, String> {
    let InMemory { path, taken, xxh3 } = shard;
    let pinning = spawn_blocking(move || pinned(&path, taken)).await;
    let image = pinning
        .map_err(|e| e.to_string())?
        .map_err(|e| e.to_string())?;
    let put = remote.put_shard(key, (image, xxh3), limit).await;
    put.map_err(|e| e.to_string())
}

/// The image, which nobody overwrites, as far as there is room for that.
fn pinned(path: &Path, taken: Taken) -> Result<Image, CkptError> {
    let image = Image::open(path, taken)?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    if image.seal().is_none() {
        return Ok(image);
    }
    match copied(&image, folder) {
        Ok(copy) => {
            image.check_unchanged()?;
            Image::in_file(path, copy, taken)
        }
        Err(error) => {
            tracing::debug!("{} is put without a copy: {error}", path.display());
            Ok(image)
        }
    }
}

/// Takes the room that a copy needs, where there is room for it twice: the copies that nodes hold for each other go first.
fn take_room(copy: &File, folder: &Path, bytes: u64) -> io::Result<()> {
    /// All ranks of a node are ordered at once, and each is to see what the others took.
    static TAKING: Mutex<()> = Mutex::new(());
    let _alone = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let found = rustix::fs::statvfs(folder)?;
    if found.f_bavail.saturating_mul(found.f_frsize) / 2 < bytes {
        return Err(io::ErrorKind::StorageFull.into());
    }
    rustix::fs::fallocate(copy, FallocateFlags::empty(), 0, bytes)?;
    Ok(())
}

fn copied(image: &Image, folder: &Path) -> io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // A name that a node removes should this program die before the next line does.
    let path = folder.join(format!("incoming-put-{}-{number}", std::process::id()));
    let copy = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(&path)?;
    take_room(&copy, folder, image.bytes())?;
    let (mut piece, mut at) = (vec![0; PIECE], 0);
    while at < image.bytes() {
        let read = image.read_at(&mut piece, at).map_err(io::Error::other)?;
        copy.write_all_at(&piece[..read], at)?;
        at += read as u64;
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_ckpt::slot::{Slot, SnapshotMemory};
    use robust_shared::ids::{Generation, Step};

    fn write(slot: &mut Slot, step: u64, image: &[u8]) -> Taken {
        let part: &dyn SnapshotMemory = &image;
        let of = (Step(step), Generation(1));
        slot.write(of, step, &[part]).unwrap()
    }

    #[test]
    fn a_slot_that_is_overwritten_meanwhile_is_put_as_it_was_and_leaves_no_file() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("trainer-0.slot0");
        let mut slot = Slot::open(&path, 9).unwrap();
        let taken = write(&mut slot, 2, b"two steps");
        let image = pinned(&path, taken).unwrap();
        write(&mut slot, 4, b"and later");
        let mut found = [0; 9];
        assert_eq!(image.read_at(&mut found, 0).unwrap(), 9);
        assert_eq!(&found, b"two steps");
        image.check_unchanged().unwrap();
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
        let gone = pinned(&path, taken).unwrap_err().to_string();
        assert!(gone.contains("step 4"), "{gone}");
    }

    #[tokio::test]
    async fn what_does_not_have_its_digest_is_not_put() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("trainer-0.slot0");
        let mut slot = Slot::open(&path, 9).unwrap();
        let taken = write(&mut slot, 2, b"two steps");
        let far = temp.path().join("far");
        let remote = Remote::open(&format!("file://{}", far.display())).unwrap();
        let shard = |xxh3| InMemory {
            path: path.clone(),
            taken,
            xxh3,
        };
        let limit = Duration::from_secs(10);
        let key = "r/step-2.g1/rank-0.safetensors";
        let refused = put_shard(&remote, key, shard(Some(7)), limit).await;
        assert!(refused.unwrap_err().contains("0000000000000007"));
        assert!(!far.join(key).exists());
        let put = put_shard(&remote, key, shard(None), limit).await.unwrap();
        assert_eq!(put.xxh3, xxhash_rust::xxh3::xxh3_64(b"two steps"));
        assert_eq!(put.blake3, *blake3::hash(b"two steps").as_bytes());
        assert_eq!(fs::read(far.join(key)).unwrap(), b"two steps");
        let outside = put_shard(&remote, "../r/x", shard(None), limit).await;
        assert!(outside.is_err(), "{outside:?}");
    }
}
