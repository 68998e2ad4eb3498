//! A machine that has, or fetches, the files of a job.
use super::error::{FilesError, Lacks};
use super::look::{Located, Look, Paths, copies, look};
use super::manifest::{Manifest, Needed};
use super::size;
use crate::digests::Digests;
use crate::state::{StateDir, make_private_dir, remove_if_there};
use robust_grouplog::{FileError, FileStore};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// What a fetch leaves free on the disk, on which the controller's store is, too.
const KEPT_FREE: u64 = 1 << 30;
/// How far a long fetch is, is said so often.
const SAID: Duration = Duration::from_secs(10);

/// A machine, and where it looks for the files of its job.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Its state directory, with the record and the copies.
    pub state: StateDir,
    /// Where its job file has them.
    pub paths: Paths,
    /// Where they are fetched from; none: the job has no log.
    pub store: Option<FileStore>,
}

impl Holder {
    /// What it has.
    pub async fn look(&self, manifest: &Manifest) -> Result<Look, FilesError> {
        let (holder, manifest) = (self.clone(), manifest.clone());
        let digests = Digests::new(self.state.digests());
        let looking = tokio::task::spawn_blocking(move || {
            look(&manifest, &holder.paths, &holder.state, &digests)
        });
        looking.await.unwrap_or_else(|error| {
            Err(FilesError::Local {
                path: self.state.root().to_owned(),
                source: io::Error::other(error),
            })
        })
    }

    /// Where all of them are; what it lacks is fetched.
    pub async fn locate(&self, manifest: &Manifest) -> Result<Located, FilesError> {
        let first = self.look(manifest).await?;
        if let Some(differs) = first.differs.first() {
            return Err(FilesError::Differs(Box::new(differs.clone())));
        }
        for file in first.lacking() {
            self.fetch(manifest, &file, &mut |_| ()).await?;
        }
        let then = self.look(manifest).await?;
        let located = then.located(manifest, &self.paths, &self.state);
        located.ok_or_else(|| FilesError::Local {
            path: self.state.files(),
            source: io::Error::other("what was fetched there was changed meanwhile: try again"),
        })
    }

    /// Fetches one that it lacks; `came` hears of every piece, in bytes.
    pub(super) async fn fetch(
        &self,
        manifest: &Manifest,
        file: &Needed,
        came: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), FilesError> {
        let Some(store) = &self.store else {
            return Err(self.lacks(file, FileError::NoStore));
        };
        let folder = self.state.files().join(file.kind.folder());
        make_private_dir(&self.state.files())?;
        make_private_dir(&folder)?;
        remove_others(&folder, manifest.of(file.kind))?;
        room_for(&folder, file.bytes)?;
        let at = folder.join(&file.name);
        debug_assert_eq!(copies(&self.state).file(file).as_ref(), Some(&at));
        let (begun, mut said, mut total) = (Instant::now(), Instant::now(), 0);
        let mut note = |bytes| {
            total += bytes;
            came(bytes);
            if said.elapsed() > SAID {
                said = Instant::now();
                let (here, of) = (size(total), size(file.bytes));
                tracing::info!("fetching {} of the job's files: {here} of {of}", file.name);
            }
        };
        let got = store.get(&file.content(), &at, &mut note).await;
        got.map_err(|source| self.lacks(file, source))?;
        Digests::new(self.state.digests()).know(&at, file.blake3);
        tracing::info!(
            "fetched {} ({}) of the job's files from {} in {:.1} s",
            file.name,
            size(file.bytes),
            store.url(),
            begun.elapsed().as_secs_f64()
        );
        Ok(())
    }

    fn lacks(&self, file: &Needed, source: FileError) -> FilesError {
        FilesError::Lacks(Box::new(Lacks {
            name: file.name.clone(),
            key: file.kind.key(),
            named: self.paths.file(file).filter(|_| !self.paths.made),
            source,
        }))
    }
}

/// Whether the disk takes so many bytes, and the controller's own store goes on having some.
fn room_for(folder: &Path, bytes: u64) -> Result<(), FilesError> {
    let disk = rustix::fs::statvfs(folder).map_err(|error| FilesError::Local {
        path: folder.to_owned(),
        source: error.into(),
    })?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    match bytes.saturating_add(KEPT_FREE) <= free {
        true => Ok(()),
        false => Err(FilesError::NoRoom {
            path: folder.to_owned(),
            bytes,
            free,
        }),
    }
}

/// Removes copies of other files: one with all weights would be read before this job's shards.
fn remove_others<'a>(
    folder: &Path,
    files: impl Iterator<Item = &'a Needed>,
) -> Result<(), FilesError> {
    let names: BTreeSet<&str> = files.map(|file| file.name.as_str()).collect();
    let at = |source| FilesError::Local {
        path: folder.to_owned(),
        source,
    };
    for entry in std::fs::read_dir(folder).map_err(at)? {
        let entry = entry.map_err(at)?;
        if !names.contains(&*entry.file_name().to_string_lossy()) {
            remove_if_there(&entry.path())?;
        }
    }
    Ok(())
}
