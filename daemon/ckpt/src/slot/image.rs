//! The readers' side: an image in a sealed slot or in a file of its own.
use super::map::Map;
use super::{PAGE, RestoreMemory, Seal, Taken, WORDS, Words};
use crate::CkptError;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use xxhash_rust::xxh3::Xxh3;

/// Bytes read at a time when they are hashed: they are still in the cache then.
const PIECE: usize = 1 << 20;

/// An image to read: in a slot, or a plain file (of a checkpoint, a copy kept for another node, a
/// snapshot of an earlier build).
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    file: File,
    /// Where it begins in the file.
    first: u64,
    bytes: u64,
    seal: Option<Seal>,
}

impl Image {
    /// Opens the image at `path`, which must be what was asked for: a slot that is being written or
    /// that holds another step is an error, as is a file that is too short. A plain file does not say
    /// what step it is of: its digest does.
    pub fn open(path: &Path, wanted: Taken) -> Result<Self, CkptError> {
        let file = File::open(path).map_err(CkptError::io("open", path))?;
        Self::in_file(path, file, wanted)
    }

    /// The same of a file that is open, whatever has its name by now.
    pub fn in_file(path: &Path, file: File, wanted: Taken) -> Result<Self, CkptError> {
        let length = file.metadata().map_err(CkptError::io("look at", path))?;
        let torn = |detail: String| CkptError::Torn {
            path: path.to_owned(),
            detail,
        };
        let seal = match look(&file).map_err(CkptError::io("read", path))? {
            Words::Plain => None,
            Words::Unsealed(why) => return Err(torn(why.to_owned())),
            Words::Sealed(seal) if seal.taken != wanted => {
                return Err(torn(format!("it is {}, not {wanted}", seal.taken)));
            }
            Words::Sealed(seal) => Some(seal),
        };
        let first = if seal.is_some() { PAGE as u64 } else { 0 };
        // A slot of an earlier build may be longer than its image.
        let there = length.len().saturating_sub(first);
        if there < wanted.bytes {
            return Err(torn(format!("{there} bytes instead of {}", wanted.bytes)));
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            first,
            bytes: wanted.bytes,
            seal,
        })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the slot says; none of a plain file.
    pub fn seal(&self) -> Option<&Seal> {
        self.seal.as_ref()
    }

    /// Reads from `at` on: all of `to`, or what the image has there; how much.
    pub fn read_at(&self, to: &mut [u8], at: u64) -> Result<usize, CkptError> {
        let left = usize::try_from(self.bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let wanted = left.min(to.len());
        self.file
            .read_exact_at(&mut to[..wanted], self.first + at)
            .map_err(CkptError::io("read", &self.path))?;
        Ok(wanted)
    }

    /// XXH3-64 of all of it, of one snapshot.
    pub fn digest(&self) -> Result<u64, CkptError> {
        let (mut hash, mut at, mut piece) = (Xxh3::new(), 0, vec![0; PIECE]);
        while at < self.bytes {
            let read = self.read_at(&mut piece, at)?;
            hash.update(&piece[..read]);
            at += read as u64;
        }
        self.check_unchanged()?;
        Ok(hash.digest())
    }

    /// Everything that was read so far is of one snapshot.
    pub fn check_unchanged(&self) -> Result<(), CkptError> {
        let Some(seal) = &self.seal else {
            return Ok(());
        };
        fence(Ordering::SeqCst);
        let now = look(&self.file).map_err(CkptError::io("read", &self.path))?;
        match now {
            Words::Sealed(now) if now == *seal => Ok(()),
            _ => Err(CkptError::Torn {
                path: self.path.clone(),
                detail: "it was overwritten".to_owned(),
            }),
        }
    }

    /// Fills the memory, part after part, with the image from `at` on: to its very end. With a digest of
    /// the whole image (XXH3-64), the bytes are checked against it; without, the seal alone speaks for
    /// them.
    pub fn restore(
        &self,
        at: u64,
        parts: &mut [&mut dyn RestoreMemory],
        xxh3: Option<u64>,
    ) -> Result<(), CkptError> {
        let wanted: u64 = parts.iter().map(|part| part.bytes() as u64).sum();
        if at + wanted != self.bytes {
            let reason = format!("{} bytes in it, {} expected", self.bytes, at + wanted);
            return Err(CkptError::bad(&self.path, reason));
        }
        let mut hash = match xxh3 {
            None => None,
            Some(_) => Some(self.hash_start(at)?),
        };
        // Shared memory is copied without the kernel, which is slower at it by half. Not so for files:
        // their pages would come one fault at a time.
        let map = match self.seal {
            None => None,
            Some(_) => {
                let map = Map::to_read(&self.file, self.first + self.bytes);
                Some(map.map_err(CkptError::io("map", &self.path))?)
            }
        };
        std::thread::scope(|scope| {
            if let Some(map) = &map {
                scope.spawn(|| map.touch_ahead());
            }
            let mut from = at;
            for part in parts.iter_mut() {
                from = self.restore_part(map.as_ref(), from, *part, hash.as_mut())?;
            }
            Ok::<_, CkptError>(())
        })?;
        if let (Some(hash), Some(expected)) = (hash, xxh3) {
            let found = hash.digest();
            if found != expected {
                let reason =
                    format!("it is corrupt: xxh3 is {found:016x}, recorded was {expected:016x}");
                return Err(CkptError::bad(&self.path, reason));
            }
        }
        self.check_unchanged()
    }

    fn hash_start(&self, end: u64) -> Result<Xxh3, CkptError> {
        let mut start = vec![0; usize::try_from(end).unwrap_or(usize::MAX)];
        self.read_at(&mut start, 0)?;
        let mut hash = Xxh3::new();
        hash.update(&start);
        Ok(hash)
    }

    fn restore_part(
        &self,
        map: Option<&Map>,
        mut from: u64,
        part: &mut dyn RestoreMemory,
        mut hash: Option<&mut Xxh3>,
    ) -> Result<u64, CkptError> {
        let most = if hash.is_some() { PIECE } else { usize::MAX };
        let mut at = 0;
        while at < part.bytes() {
            let to = part.part(at, most);
            let place = usize::try_from(self.first + from).unwrap_or(usize::MAX);
            let read = match map {
                Some(map) if map.copy_to(place, to) => to.len(),
                _ => self.read_at(to, from)?,
            };
            if let Some(hash) = &mut hash {
                hash.update(to);
            }
            part.filled()
                .map_err(|why| CkptError::io("restore", &self.path)(io::Error::other(why)))?;
            at += read;
            from += read as u64;
        }
        Ok(from)
    }
}

/// What the slot at `path` holds now; none where it is no slot or holds no snapshot.
pub fn held(path: &Path) -> Option<Seal> {
    match look(&File::open(path).ok()?).ok()? {
        Words::Sealed(seal) => Some(seal),
        Words::Plain | Words::Unsealed(_) => None,
    }
}

/// Reads the seal as it is now.
fn look(file: &File) -> io::Result<Words> {
    let mut bytes = [0; WORDS * 8];
    match file.read_exact_at(&mut bytes, 0) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(Words::Plain),
        other => other?,
    }
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_le_bytes);
    }
    Ok(Seal::read(words))
}
