//! What is there.
use crate::place::MANIFEST;
use crate::signature;
use crate::transfer::{self, Wanted};
use crate::{Place, Remote, RemoteError};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as Key;
use object_store::{ListResult, ObjectMeta, ObjectStoreExt};
use robust_ckpt::{Checkpoint, manifest};
use robust_shared::ids::Step;
use std::collections::BTreeSet;
use std::path::Path;

/// Manifests read at a time.
const AT_ONCE: usize = 8;
/// No manifest is larger: a checkpoint's names some thousands of tensors and trajectories.
const MOST_BYTES: u64 = 64 << 20;

/// Why one without a signature is of no use to who has a key.
const NOT_SIGNED: &str = "it is not signed, and `checkpoint.remote_signing_key_file` wants all to be: put there without \
     that key, or by somebody else";

/// A checkpoint in the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Where.
    pub place: Place,
    /// What its manifest says; or why that is of no use, a sentence. Paths are keys below the URL.
    pub manifest: Result<Checkpoint, String>,
    /// Whether an operator wants it to stay.
    pub pinned: bool,
    /// BLAKE3 of the manifest's text, which may be another one when it is read again.
    pub(crate) text: [u8; 32],
    /// BLAKE3 of each shard, where it was signed.
    pub(crate) shards: Vec<[u8; 32]>,
}

impl Kept {
    /// One of whose manifest nothing is believed, for this reason.
    fn unusable(place: Place, why: String) -> Self {
        Self {
            place,
            manifest: Err(why),
            pinned: false,
            text: [0; 32],
            shards: Vec::new(),
        }
    }

    /// A shard by its place in the manifest, and what it has to be.
    pub(crate) fn wanted<'a>(&'a self, at: usize, shard: &'a robust_ckpt::Shard) -> Wanted<'a> {
        let blake3 = self.shards.get(at);
        Wanted { shard, blake3 }
    }
}

impl Remote {
    /// The lives of jobs that put something there.
    pub async fn runs(&self) -> Result<Vec<String>, RemoteError> {
        self.names(&self.root).await
    }

    /// What a run put there, oldest first. A place without a manifest is not a checkpoint.
    pub async fn list(&self, run: &str) -> Result<Vec<Kept>, RemoteError> {
        Ok(self.places_and_kept(run).await?.1)
    }

    /// Places of a run in order of its history, whether they have a manifest or not, and the checkpoints there.
    pub(crate) async fn places_and_kept(
        &self,
        run: &str,
    ) -> Result<(Vec<Place>, Vec<Kept>), RemoteError> {
        let (places, pins) = self.places(run).await?;
        let looking = places.iter().map(|place| self.look_at(place.clone()));
        let kept: Vec<Option<Kept>> = stream::iter(looking.collect::<Vec<_>>())
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let with_pin = |kept: Kept| Kept {
            pinned: pins.contains(&kept.place),
            ..kept
        };
        let kept = kept.into_iter().flatten().map(with_pin).collect();
        Ok((places, kept))
    }

    /// What all runs put there; of each, oldest first.
    pub async fn list_all(&self) -> Result<Vec<Kept>, RemoteError> {
        let mut all = Vec::new();
        for run in self.runs().await? {
            all.append(&mut self.list(&run).await?);
        }
        Ok(all)
    }

    /// The newest usable checkpoint of a run, of a step up to `limit`; and why newer ones are not
    /// used, each a sentence. Only manifests are read: what is fetched is verified then.
    pub async fn newest(
        &self,
        run: &str,
        limit: Step,
    ) -> Result<(Option<Kept>, Vec<String>), RemoteError> {
        let mut rejected = Vec::new();
        for kept in self.list(run).await?.into_iter().rev() {
            match &kept.manifest {
                _ if kept.place.step > limit => {}
                Ok(_) => return Ok((Some(kept), rejected)),
                Err(why) => rejected.push(format!("{} is not used: {why}", kept.place)),
            }
        }
        Ok((None, rejected))
    }

    /// Reads every byte of a checkpoint and compares it; `read` hears of every piece.
    pub async fn verify(
        &self,
        kept: &Kept,
        read: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), RemoteError> {
        let place = kept.place.key(&self.root);
        for (at, shard) in self.readable(kept)?.shards.iter().enumerate() {
            let (key, wanted) = (shard_key(&place, shard), kept.wanted(at, shard));
            transfer::get(&self.store, &key, wanted, None, read).await?;
        }
        Ok(())
    }

    pub(crate) fn readable<'a>(&self, kept: &'a Kept) -> Result<&'a Checkpoint, RemoteError> {
        let unusable = |why: &String| RemoteError::bad(&kept.place, why.clone());
        kept.manifest.as_ref().map_err(unusable)
    }

    /// Places of a run in order of its history, whether they have a manifest or not, and those that are pinned.
    async fn places(&self, run: &str) -> Result<(Vec<Place>, BTreeSet<Place>), RemoteError> {
        let found = self.look_into(&self.root.clone().join(run)).await?;
        let name = |folder: &Key| Place::parse(run, folder.filename()?);
        let mut places: Vec<Place> = found.common_prefixes.iter().filter_map(name).collect();
        places.sort();
        let pin = |object: &ObjectMeta| Place::of_pin(run, object.location.filename()?);
        let pins = found.objects.iter().filter_map(pin).collect();
        Ok((places, pins))
    }

    /// Names of the folders in a folder.
    async fn names(&self, key: &Key) -> Result<Vec<String>, RemoteError> {
        let found = self.look_into(key).await?;
        let name = |folder: &Key| folder.filename().map(str::to_owned);
        Ok(found.common_prefixes.iter().filter_map(name).collect())
    }

    async fn look_into(&self, key: &Key) -> Result<ListResult, RemoteError> {
        let listed = self.store.list_with_delimiter(Some(key)).await;
        listed.map_err(RemoteError::store("list", key))
    }

    pub(crate) async fn look_at(&self, place: Place) -> Result<Option<Kept>, RemoteError> {
        let folder = place.key(&self.root);
        let key = folder.clone().join(MANIFEST);
        let failed = RemoteError::store("read", &key);
        let text = match self.store.get(&key).await {
            Ok(found) if found.meta.size > MOST_BYTES => {
                let why = format!("its manifest has {} bytes", found.meta.size);
                return Ok(Some(Kept::unusable(place, why)));
            }
            Ok(found) => found.bytes().await.map_err(failed)?,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let shards = match &self.signing_key {
            None => Vec::new(),
            Some(signing_key) => match self.signature(&folder).await? {
                None => return Ok(Some(Kept::unusable(place, NOT_SIGNED.to_owned()))),
                Some(signature) => match signing_key.verify(&place.run, &text, &signature) {
                    Ok(shards) => shards,
                    Err(why) => return Ok(Some(Kept::unusable(place, why))),
                },
            },
        };
        let manifest =
            manifest::parse(&text, Path::new(folder.as_ref())).and_then(|found| {
                match (found.generation, found.step) == (place.generation, place.step) {
                    true => Ok(found),
                    false => Err(format!(
                        "its manifest is that of step {} of {}",
                        found.step, found.generation
                    )),
                }
            });
        let manifest = manifest.and_then(|found| {
            match self.signing_key.is_none() || found.shards.len() == shards.len() {
                true => Ok(found),
                false => Err("its signature is of more or fewer shards".to_owned()),
            }
        });
        Ok(Some(Kept {
            place,
            manifest,
            pinned: false,
            text: *blake3::hash(&text).as_bytes(),
            shards,
        }))
    }

    /// What lies beside the manifest in a folder; none if nothing that could be a signature does.
    pub(crate) async fn signature(&self, folder: &Key) -> Result<Option<Vec<u8>>, RemoteError> {
        let key = folder.clone().join(signature::FILE);
        let failed = RemoteError::store("read", &key);
        match self.store.get(&key).await {
            Ok(found) if found.meta.size > signature::MOST_BYTES => Ok(None),
            Ok(found) => Ok(Some(found.bytes().await.map_err(failed)?.to_vec())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

/// The object of a shard. Of the manifest's word only the file's name counts: it comes from outside.
pub(crate) fn shard_key(place: &Key, shard: &robust_ckpt::Shard) -> Key {
    let name = shard.path.file_name().unwrap_or_default();
    place.clone().join(&*name.to_string_lossy())
}
