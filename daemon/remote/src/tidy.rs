//! What need not stay there.
use crate::place::MANIFEST;
use crate::{Kept, Place, Remote, RemoteError};
use futures::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload};
use robust_ckpt::{Known, Retention};
use robust_shared::ids::Step;
use std::collections::BTreeSet;
use std::fmt;
use std::time::SystemTime;

/// What need not stay, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surplus {
    /// Where.
    pub place: Place,
    /// Why.
    pub why: Why,
}

/// Why a place need not stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Retention lets it go.
    Retention,
    /// A later gang of the run began before it: it did not happen.
    Undone,
    /// It never got its manifest: an upload ended half way, or is under way.
    Incomplete,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retention => "retention",
            Self::Undone => "undone",
            Self::Incomplete => "incomplete",
        })
    }
}

impl Remote {
    /// Removes what a run put there and need not keep ([`Remote::surplus`]). For who uploads: of what is incomplete nothing
    /// may be under way but what another one does that leads by now, which is beyond all that is complete. Says what went.
    pub async fn tidy(
        &self,
        run: &str,
        keep: &Retention,
        pinned: &BTreeSet<Step>,
    ) -> Result<Vec<Place>, RemoteError> {
        let (places, listed) = self.places_and_kept(run).await?;
        let newest = listed.iter().map(|kept| &kept.place).max();
        let surplus = surplus(&places, &listed, keep, pinned);
        let goes = |s: &Surplus| s.why != Why::Incomplete || Some(&s.place) < newest;
        let gone = surplus.into_iter().filter(goes);
        let gone: Vec<Place> = gone.map(|s| s.place).collect();
        for place in &gone {
            self.remove(place).await?;
        }
        Ok(gone)
    }

    /// What a run put there and need not keep: what retention lets go, history that did not happen,
    /// and places that never got their manifest. Other runs' is never among it. `pinned` are steps that an operator wants
    /// to stay, besides those that are pinned there.
    pub async fn surplus(
        &self,
        run: &str,
        keep: &Retention,
        pinned: &BTreeSet<Step>,
    ) -> Result<Vec<Surplus>, RemoteError> {
        let (places, listed) = self.places_and_kept(run).await?;
        Ok(surplus(&places, &listed, keep, pinned))
    }

    /// Has a checkpoint stay, or go with the others again.
    pub async fn pin(&self, place: &Place, pinned: bool) -> Result<(), RemoteError> {
        let key = place.pin(&self.root);
        if !pinned {
            return self.delete(&key).await;
        }
        let put = self.store.put(&key, PutPayload::default()).await;
        put.map(drop).map_err(RemoteError::store("put", &key))
    }

    /// When anything was last written in a place; none where nothing is (any more).
    pub async fn touched(&self, place: &Place) -> Result<Option<SystemTime>, RemoteError> {
        let written = self.objects(place).await?.into_iter();
        Ok(written.map(|o| SystemTime::from(o.last_modified)).max())
    }

    /// Removes a checkpoint. The manifest goes first: one half removed does not exist.
    pub async fn remove(&self, place: &Place) -> Result<(), RemoteError> {
        let manifest = place.key(&self.root).join(MANIFEST);
        self.delete(&manifest).await?;
        self.delete(&place.pin(&self.root)).await?;
        for object in self.objects(place).await? {
            self.delete(&object.location).await?;
        }
        Ok(())
    }

    async fn objects(&self, place: &Place) -> Result<Vec<ObjectMeta>, RemoteError> {
        let folder = place.key(&self.root);
        let listing = self.store.list(Some(&folder)).try_collect().await;
        listing.map_err(RemoteError::store("list", &folder))
    }

    async fn delete(&self, key: &Key) -> Result<(), RemoteError> {
        match self.store.delete(key).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(RemoteError::store("remove", key)(error)),
        }
    }
}

/// The rule. Of one step only the newest gang's counts, so steps name what retention speaks of.
fn surplus(
    places: &[Place],
    listed: &[Kept],
    keep: &Retention,
    pinned: &BTreeSet<Step>,
) -> Vec<Surplus> {
    let complete = |place: &Place| listed.iter().any(|k| k.place == *place);
    let undone = |place: &Place| {
        let complete = listed.iter().filter(|k| k.manifest.is_ok());
        complete
            .into_iter()
            .any(|other| place.is_undone_by(&other.place))
    };
    let known = |k: &Kept| Known {
        step: k.place.step,
        reward: k.manifest.as_ref().ok().and_then(|c| c.reward),
        pinned: k.pinned || pinned.contains(&k.place.step),
        usable: k.manifest.is_ok(),
    };
    let happened = listed.iter().filter(|k| !undone(&k.place));
    let known: Vec<Known> = happened.map(known).collect();
    let surplus = keep.surplus(&known);
    let why = |place: &Place| match () {
        () if !complete(place) => Some(Why::Incomplete),
        () if undone(place) => Some(Why::Undone),
        () if surplus.contains(&place.step) => Some(Why::Retention),
        () => None,
    };
    let one = |place: &Place| {
        let why = why(place)?;
        let place = place.clone();
        Some(Surplus { place, why })
    };
    places.iter().filter_map(one).collect()
}
