//! A checkpoint on disk, put into the store.
use crate::place::MANIFEST;
use crate::signature;
use crate::transfer::{self, Known, Progress, Source};
use crate::{Place, Remote, RemoteError};
use object_store::path::Path as Key;
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
            let known = Known {
                path: shard.path.clone(),
                bytes: shard.bytes,
                xxh3: Some(shard.xxh3),
            };
            let bytes = Box::new(file);
            Ok(Source { bytes, known })
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
    /// Puts a checkpoint of a run: the shards, their signature where there is a key, then the manifest. Whatever
    /// fails, no manifest names what is not there. One that is there without its signature is put again.
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
        if self.has(&key, &manifest).await? && self.is_signed(run, &folder, &manifest).await? {
            let was_there = true;
            return Ok(Uploaded { bytes, was_there });
        }
        let mut shards = Vec::new();
        for source in sources {
            let name = source.known.path.file_name().unwrap_or_default();
            let key = folder.clone().join(&*name.to_string_lossy());
            let named = self.signing_key.is_some();
            let put = transfer::put(&self.store, &key, source, named, sent).await?;
            shards.extend(put.blake3);
        }
        self.seal(run, &folder, manifest, &shards).await?;
        let was_there = false;
        Ok(Uploaded { bytes, was_there })
    }

    /// What makes a checkpoint of shards that are there: their signature, where there is a key, then the manifest.
    pub(crate) async fn seal(
        &self,
        run: &str,
        folder: &Key,
        manifest: Vec<u8>,
        shards: &[[u8; 32]],
    ) -> Result<(), RemoteError> {
        if let Some(signing_key) = &self.signing_key {
            let signature = signing_key.sign(run, &manifest, shards);
            let key = folder.clone().join(signature::FILE);
            let put = self.store.put(&key, PutPayload::from(signature)).await;
            put.map_err(RemoteError::store("put", &key))?;
        }
        let key = folder.clone().join(MANIFEST);
        let put = self.store.put(&key, PutPayload::from(manifest)).await;
        put.map_err(RemoteError::store("put", &key))?;
        Ok(())
    }

    /// Whether this manifest's signature is there, if it has to have one.
    async fn is_signed(
        &self,
        run: &str,
        folder: &Key,
        manifest: &[u8],
    ) -> Result<bool, RemoteError> {
        let Some(signing_key) = &self.signing_key else {
            return Ok(true);
        };
        let signature = self.signature(folder).await?;
        let by_us = |text: Vec<u8>| signing_key.verify(run, manifest, &text).is_ok();
        Ok(signature.is_some_and(by_us))
    }

    /// Whether this very manifest is there: then so is what it names.
    async fn has(&self, key: &Key, manifest: &[u8]) -> Result<bool, RemoteError> {
        let failed = RemoteError::store("read", key);
        match self.store.get(key).await {
            Ok(found) => Ok(found.bytes().await.map_err(failed)? == manifest),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}
