//! What need not stay there.
use crate::place::MANIFEST;
use crate::{Kept, Place, Remote, RemoteError};
use futures::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use robust_ckpt::{Known, Retention};
use robust_shared::ids::Step;
use std::collections::BTreeSet;

impl Remote {
    /// Removes what a run put there and need not keep: what retention lets go, history that did not
    /// happen, and places that never got their manifest. Other runs' is never touched. `pinned` are
    /// the steps that an operator wants to stay. Says what went.
    pub async fn tidy(
        &self,
        run: &str,
        keep: &Retention,
        pinned: &BTreeSet<Step>,
    ) -> Result<Vec<Place>, RemoteError> {
        let places = self.places(run).await?;
        let listed = self.list(run).await?;
        let gone = surplus(&places, &listed, keep, pinned);
        for place in &gone {
            self.remove(place).await?;
        }
        Ok(gone)
    }

    /// Removes a checkpoint. The manifest goes first: one half removed does not exist.
    pub async fn remove(&self, place: &Place) -> Result<(), RemoteError> {
        let folder = place.key(&self.root);
        self.delete(&folder.clone().join(MANIFEST)).await?;
        let listed: Vec<_> = self
            .store
            .list(Some(&folder))
            .try_collect()
            .await
            .map_err(RemoteError::store("list", &folder))?;
        for object in listed {
            self.delete(&object.location).await?;
        }
        Ok(())
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
) -> Vec<Place> {
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
        pinned: pinned.contains(&k.place.step),
    };
    let happened = listed.iter().filter(|k| !undone(&k.place));
    let known: Vec<Known> = happened.map(known).collect();
    let surplus = keep.surplus(&known);
    let goes = |p: &&Place| !complete(p) || undone(p) || surplus.contains(&p.step);
    places.iter().filter(goes).cloned().collect()
}
