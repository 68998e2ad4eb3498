//! Files of a job beside its log, each named by the BLAKE3 of its bytes.
//!
//! ```text
//!  URL/JOB/files/DIGEST     put whole or not at all, by whoever has the file; the same for all lives of the job
//! ```
//! Whoever puts one puts the same bytes, so nobody is in anybody's way. What is read is compared with its name: an object
//! that is not what its name says is removed, and is put again by whoever has the file. Nothing else is ever removed.
use crate::error::LogError;
use crate::keys;
use blake3::{Hash, Hasher};
use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};
use robust_remote::Remote;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// A part of an object that is put in parts; stores want at least 5 MiB, and take 10,000 of them.
const PART_BYTES: u64 = 8 << 20;
const PARTS: u64 = 9_000;
/// Bytes that one request brings: few enough for a slow line, and for the memory that they take.
const RANGE_BYTES: u64 = 16 << 20;
/// Parts on their way at a time.
const IN_FLIGHT: usize = 4;

/// Why a file was not put, or did not come.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The object store.
    #[error(transparent)]
    Log(#[from] LogError),
    /// There is no object store to fetch from.
    #[error("the job has no `store.remote_log`")]
    NoStore,
    /// It is not there (yet).
    #[error("{key} is not in the object store")]
    NotThere {
        /// Which.
        key: String,
    },
    /// This machine's disk.
    #[error("{path}: {source}")]
    Local {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What was to be put is not what was named.
    #[error(
        "{path} was changed: its BLAKE3 is {has}, and the job began with {wanted}; put back what was there"
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// What it is.
        has: String,
        /// What it was.
        wanted: String,
    },
}

impl FileError {
    fn local(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Local { path, source }
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Of all its bytes.
    pub blake3: Hash,
    /// How many those are.
    pub bytes: u64,
}

/// Where the files of a job are kept. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FileStore {
    store: Arc<dyn ObjectStore>,
    root: Key,
    url: String,
}

impl FileStore {
    /// Of this job.
    #[must_use]
    pub fn new(remote: &Remote, job: &str) -> Self {
        Self {
            store: Arc::clone(remote.store()),
            root: keys::files(&remote.root().clone().join(job)),
            url: format!("{}/{job}/files", remote.url()),
        }
    }

    /// Where they are, for people.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    fn key(&self, blake3: &Hash) -> Key {
        self.root.clone().join(blake3.to_hex().as_str())
    }

    /// Whether an object of that name and size is there.
    ///
    /// # Errors
    /// When the store cannot be reached.
    pub async fn has(&self, content: &Content) -> Result<bool, LogError> {
        let key = self.key(&content.blake3);
        match self.store.head(&key).await {
            Ok(found) => Ok(found.size == content.bytes),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(LogError::store("look at", &key)(error)),
        }
    }

    /// Puts a file; the object appears only if its bytes are those that are named.
    ///
    /// # Errors
    /// When the file or the store cannot be reached, or the file is another one.
    pub async fn put(&self, content: &Content, path: &Path) -> Result<(), FileError> {
        let key = self.key(&content.blake3);
        let opened = path.to_owned();
        let opened = blocking(move || File::open(opened)).await;
        let file = opened.map_err(FileError::local(path))?;
        let part = part_bytes(content.bytes);
        let mut piece = read((file, Hasher::new()), part)
            .await
            .map_err(FileError::local(path))?;
        if (piece.1.len() as u64) < part {
            same(path, content, &piece.0.1)?;
            let put = self.store.put(&key, PutPayload::from(piece.1)).await;
            return Ok(put.map(drop).map_err(LogError::store("put", &key))?);
        }
        let begun = self.store.put_multipart(&key).await;
        let begun = begun.map_err(LogError::store("begin", &key))?;
        let chunk = usize::try_from(part).unwrap_or(usize::MAX);
        let mut upload = WriteMultipart::new_with_chunk_size(begun, chunk);
        let sent = loop {
            let (reading, bytes) = piece;
            if bytes.is_empty() {
                break same(path, content, &reading.1);
            }
            if let Err(error) = upload.wait_for_capacity(IN_FLIGHT).await {
                break Err(LogError::store("put a part of", &key)(error).into());
            }
            upload.put(bytes);
            piece = match read(reading, part).await {
                Ok(piece) => piece,
                Err(error) => break Err(FileError::local(path)(error)),
            };
        };
        if let Err(error) = sent {
            // Else its parts would be stored, and paid for. The error at hand is the one to tell.
            let _ = upload.abort().await;
            return Err(error);
        }
        let put = upload.finish().await.map(drop);
        Ok(put.map_err(LogError::store("complete", &key))?)
    }

    /// Brings a file to this path, where it is whole and durable when this returns: until then it has another name, of
    /// which nobody takes it for whole. `came` hears of every piece, in bytes.
    ///
    /// # Errors
    /// When it is not in the store, the store or the disk cannot be reached, or the object is damaged.
    pub async fn get(
        &self,
        content: &Content,
        to: &Path,
        came: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), FileError> {
        let key = self.key(&content.blake3);
        match self.store.head(&key).await {
            Ok(found) if found.size == content.bytes => {}
            Ok(_) => return self.damaged(&key).await,
            Err(Error::NotFound { .. }) => {
                let key = format!("{}/{}", self.url, content.blake3);
                return Err(FileError::NotThere { key });
            }
            Err(error) => return Err(LogError::store("look at", &key)(error).into()),
        }
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let partial = to.with_file_name(format!(".{name}.part"));
        let placed = self.bring(content, &partial, to, came).await;
        if placed.is_err() {
            // It takes room that others need, and the next try begins anew.
            drop(std::fs::remove_file(&partial));
        }
        placed
    }

    /// Ranges of the object, one after the other: a request has a bound in time, which a large file would not keep.
    async fn bring(
        &self,
        content: &Content,
        partial: &Path,
        to: &Path,
        came: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), FileError> {
        let key = self.key(&content.blake3);
        let made = partial.to_owned();
        let made = blocking(move || File::create(made)).await;
        let mut open = (made.map_err(FileError::local(partial))?, Hasher::new());
        let mut total = 0;
        while total < content.bytes {
            let range = total..content.bytes.min(total + RANGE_BYTES);
            let bytes = self.store.get_range(&key, range).await;
            let bytes = bytes.map_err(LogError::store("read", &key))?;
            let length = bytes.len() as u64;
            if length == 0 {
                // It became shorter since it was looked at.
                return self.damaged(&key).await;
            }
            total += length;
            open = write(open, bytes)
                .await
                .map_err(FileError::local(partial))?;
            came(length);
        }
        let (file, hasher) = open;
        if (total, hasher.finalize()) != (content.bytes, content.blake3) {
            return self.damaged(&key).await;
        }
        let (from, whole) = (partial.to_owned(), to.to_owned());
        let placed = blocking(move || {
            file.sync_all()?;
            std::fs::rename(from, &whole)?;
            File::open(whole.parent().unwrap_or(Path::new(".")))?.sync_all()
        });
        placed.await.map_err(FileError::local(to))
    }

    /// What is there is no copy of the file: it is taken away, so that who has the file puts it again.
    async fn damaged(&self, key: &Key) -> Result<(), FileError> {
        let reason = match self.store.delete(key).await {
            Ok(()) | Err(Error::NotFound { .. }) => {
                "its bytes are not those of its name; it was removed, and whoever leads puts it again from its own file"
                    .to_owned()
            }
            Err(error) => format!(
                "its bytes are not those of its name, and it cannot be removed ({error}): remove it, and whoever leads \
                 puts it again"
            ),
        };
        Err(LogError::damaged(key, reason).into())
    }
}

/// A file that is read or written, and the digest so far.
type Open = (File, Hasher);

/// Size of the parts of an object of so many bytes, all but the last.
fn part_bytes(bytes: u64) -> u64 {
    let needed = bytes.div_ceil(PARTS).next_multiple_of(1 << 20);
    needed.max(PART_BYTES)
}

fn same(path: &Path, wanted: &Content, hasher: &Hasher) -> Result<(), FileError> {
    let has = hasher.finalize();
    match has == wanted.blake3 {
        true => Ok(()),
        false => Err(FileError::Changed {
            path: path.to_owned(),
            has: has.to_hex().to_string(),
            wanted: wanted.blake3.to_hex().to_string(),
        }),
    }
}

async fn read((mut file, mut hasher): Open, most: u64) -> io::Result<(Open, Bytes)> {
    blocking(move || {
        let mut bytes = Vec::with_capacity(usize::try_from(most).unwrap_or_default());
        Read::by_ref(&mut file).take(most).read_to_end(&mut bytes)?;
        hasher.update(&bytes);
        Ok(((file, hasher), Bytes::from(bytes)))
    })
    .await
}

async fn write((mut file, mut hasher): Open, bytes: Bytes) -> io::Result<Open> {
    blocking(move || {
        hasher.update(&bytes);
        file.write_all(&bytes)?;
        Ok((file, hasher))
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let ended = spawn_blocking(work).await;
    ended.unwrap_or_else(|e| Err(io::Error::other(e)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Site {
        temp: tempfile::TempDir,
        files: FileStore,
    }

    impl Site {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let url = format!("file://{}/log", temp.path().display());
            let files = FileStore::new(&Remote::open(&url).unwrap(), "job");
            Self { temp, files }
        }

        fn write(&self, name: &str, bytes: &[u8]) -> (PathBuf, Content) {
            let path = self.temp.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let (blake3, bytes) = (blake3::hash(bytes), bytes.len() as u64);
            (path, Content { blake3, bytes })
        }

        fn object(&self, content: &Content) -> PathBuf {
            let name = content.blake3.to_hex().to_string();
            self.temp.path().join("log/job/files").join(name)
        }

        async fn get(&self, content: &Content, name: &str) -> Result<Vec<u8>, FileError> {
            let to = self.temp.path().join(name);
            let mut came = 0;
            let note = &mut |bytes| came += bytes;
            self.files.get(content, &to, note).await?;
            assert_eq!(came, content.bytes);
            assert!(!to.with_file_name(format!(".{name}.part")).exists());
            Ok(std::fs::read(to).unwrap())
        }
    }

    fn bytes_of(length: u64) -> Vec<u8> {
        (0..length).map(|i| (i * 31 % 251) as u8).collect()
    }

    #[tokio::test]
    async fn files_of_every_size_come_back_as_they_were() {
        let site = Site::new();
        for length in [
            0,
            5,
            PART_BYTES - 1,
            PART_BYTES,
            RANGE_BYTES,
            RANGE_BYTES + 7,
        ] {
            let bytes = bytes_of(length);
            let (path, content) = site.write("f", &bytes);
            assert!(!site.files.has(&content).await.unwrap());
            // By two controllers, one after the other.
            site.files.put(&content, &path).await.unwrap();
            site.files.put(&content, &path).await.unwrap();
            assert!(site.files.has(&content).await.unwrap());
            assert_eq!(site.get(&content, "g").await.unwrap(), bytes, "{length}");
        }
    }

    #[tokio::test]
    async fn two_that_put_the_same_at_once_are_not_in_each_others_way() {
        let site = Site::new();
        let bytes = bytes_of(2 * PART_BYTES + 1);
        let (path, content) = site.write("f", &bytes);
        let (one, other) = tokio::join!(
            site.files.put(&content, &path),
            site.files.put(&content, &path)
        );
        one.unwrap();
        other.unwrap();
        assert_eq!(site.get(&content, "g").await.unwrap(), bytes);
    }

    #[tokio::test]
    async fn a_file_that_was_changed_is_not_put_under_the_name_of_what_it_was() {
        let site = Site::new();
        for length in [5, PART_BYTES + 5] {
            let (path, content) = site.write("f", &bytes_of(length));
            let mut other = bytes_of(length);
            other[3] ^= 1;
            std::fs::write(&path, other).unwrap();
            let error = site.files.put(&content, &path).await.unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains(&content.blake3.to_hex().to_string()),
                "{text}"
            );
            assert!(text.contains("was changed"), "{text}");
            assert!(!site.files.has(&content).await.unwrap());
        }
    }

    #[tokio::test]
    async fn an_object_that_is_damaged_is_never_taken_and_makes_room_for_a_whole_one() {
        let site = Site::new();
        let (path, content) = site.write("f", b"what it is");
        site.files.put(&content, &path).await.unwrap();
        for damaged in [&b"what it iS"[..], b"what", b"what it is, and more"] {
            std::fs::write(site.object(&content), damaged).unwrap();
            let error = site.get(&content, "g").await.unwrap_err();
            assert!(error.to_string().contains("damaged"), "{error}");
            assert!(!site.temp.path().join("g").exists());
            assert!(!site.files.has(&content).await.unwrap());
            site.files.put(&content, &path).await.unwrap();
        }
        assert_eq!(site.get(&content, "g").await.unwrap(), b"what it is");
    }

    #[tokio::test]
    async fn what_was_half_fetched_when_a_machine_died_is_fetched_anew() {
        let site = Site::new();
        let (path, content) = site.write("f", b"what it is");
        site.files.put(&content, &path).await.unwrap();
        std::fs::write(site.temp.path().join(".g.part"), b"what it is, no").unwrap();
        assert_eq!(site.get(&content, "g").await.unwrap(), b"what it is");
    }

    #[tokio::test]
    async fn a_file_that_nobody_put_is_said_to_be_missing_and_a_store_that_is_away_to_be_away() {
        let site = Site::new();
        let (_, content) = site.write("f", b"x");
        let error = site.get(&content, "g").await.unwrap_err();
        assert!(matches!(error, FileError::NotThere { .. }), "{error}");
        assert!(error.to_string().contains("/job/files/"), "{error}");
        std::fs::create_dir_all(site.temp.path().join("log/job")).unwrap();
        std::fs::write(site.temp.path().join("log/job/files"), b"").unwrap();
        let error = site.files.put(&content, &site.temp.path().join("f")).await;
        assert!(matches!(error, Err(FileError::Log(e)) if e.may_pass()));
    }

    #[test]
    fn no_object_has_more_parts_than_stores_take() {
        for bytes in [1u64, 1 << 30, 1 << 40, (5 << 40) + 12_345] {
            assert!(bytes.div_ceil(part_bytes(bytes)) <= PARTS, "{bytes}");
        }
    }
}
