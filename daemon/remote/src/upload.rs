//! A checkpoint on disk, put into the store.
use crate::place::MANIFEST;
use crate::transfer::{self, Progress, Source};
use crate::{Place, Remote, RemoteError};
use object_store::{ObjectStoreExt, PutPayload};
use robust_ckpt::Checkpoint;
use robust_ckpt::manifest;
use std::fs::File;
use std::path::Path;

/// A complete checkpoint on disk, opened: retention may remove its folder meanwhile.
pub struct Local {
    checkpoint: Checkpoint,
    manifest: Vec<u8>,
    sources: Vec<Source>,
}

/// What was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uploaded {
    /// Bytes of all shards.
    pub bytes: u64,
    /// Whether all of it was there already.
    pub was_there: bool,
}

impl Local {
    /// Opens the checkpoint in a folder.
    pub fn open(dir: &Path) -> Result<Self, RemoteError> {
        let path = dir.join(MANIFEST);
        let manifest = std::fs::read(&path).map_err(RemoteError::local("read", &path))?;
        let bad = |reason| RemoteError::bad(dir.display(), reason);
        let checkpoint = manifest::parse(&manifest, dir).map_err(bad)?;
        let open = |shard: &robust_ckpt::Shard| {
            let file = File::open(&shard.path).map_err(RemoteError::local("open", &shard.path))?;
            let shard = shard.clone();
            Ok(Source { file, shard })
        };
        let sources = checkpoint.shards.iter().map(open);
        Ok(Self {
            sources: sources.collect::<Result<_, RemoteError>>()?,
            checkpoint,
            manifest,
        })
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }
}

impl Remote {
    /// Puts a checkpoint of a run: the shards, then the manifest. Whatever fails, no manifest names
    /// what is not there.
    pub async fn upload(
        &self,
        run: &str,
        local: Local,
        sent: Progress<'_>,
    ) -> Result<Uploaded, RemoteError> {
        let Local {
            checkpoint,
            manifest,
            sources,
        } = local;
        let place = Place {
            run: run.to_owned(),
            generation: checkpoint.generation,
            step: checkpoint.step,
        };
        let (bytes, folder) = (checkpoint.bytes(), place.key(&self.root));
        let key = folder.clone().join(MANIFEST);
        if self.has(&key, &manifest).await? {
            let was_there = true;
            return Ok(Uploaded { bytes, was_there });
        }
        for source in sources {
            let name = source.shard.path.file_name().unwrap_or_default();
            let key = folder.clone().join(&*name.to_string_lossy());
            transfer::put(&self.store, &key, source, sent).await?;
        }
        let put = self.store.put(&key, PutPayload::from(manifest)).await;
        put.map_err(RemoteError::store("put", &key))?;
        let was_there = false;
        Ok(Uploaded { bytes, was_there })
    }

    /// Whether this very manifest is there: then so is what it names.
    async fn has(
        &self,
        key: &object_store::path::Path,
        manifest: &[u8],
    ) -> Result<bool, RemoteError> {
        let failed = RemoteError::store("read", key);
        match self.store.get(key).await {
            Ok(found) => Ok(found.bytes().await.map_err(failed)? == manifest),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}
