//! How the weights are stored: what there is of versions with the head of the state, and an entry for what an
//! engine has.
use super::engines::Engines;
use super::holder::{Holder, NOTHING};
use super::{Sets, Weights};
use crate::changed::Changed;
use crate::ids::{InstanceId, WeightVersion};
use serde::{Deserialize, Deserializer};

/// What an engine has was a part of its instance in earlier builds, and is read from there still; where it has
/// an entry of its own, that is the newer one. For serde, as a field that is flattened: none where there is
/// nothing of the kind.
pub fn read_former<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<Holder>>, D::Error> {
    let holder = Holder::deserialize(from)?;
    Ok((holder != NOTHING).then(|| Box::new(holder)))
}

impl Weights {
    /// As they were written down.
    pub fn put_back(
        published: Option<WeightVersion>,
        bytes: u64,
        holders: impl IntoIterator<Item = (InstanceId, Holder)>,
    ) -> Self {
        Self {
            published,
            bytes,
            engines: holders.into_iter().collect(),
            ..Self::default()
        }
    }

    /// The same, of which nothing is derived or written yet, with what an earlier build stored elsewhere.
    pub fn resumed(self, former: impl IntoIterator<Item = (InstanceId, Holder)>) -> Self {
        let holders = self.engines.holders();
        let holders: Vec<_> = holders.map(|(id, holder)| (id, holder.clone())).collect();
        let all = former.into_iter().chain(holders);
        Self::put_back(self.published, self.bytes, all)
    }

    /// The job was stopped: no process of it is left.
    pub fn forget_engines(&mut self) {
        (self.engines, self.sets) = (Engines::default(), Sets::default());
        self.changed = Changed::default();
    }

    /// The entries that changed since this was last asked, and all that there are where that is wanted or it
    /// was never asked; none: nothing is left there.
    pub fn take_changed(&mut self, all: bool) -> Vec<(InstanceId, Option<Holder>)> {
        let ids = match self.changed.take() {
            Some(changed) if !all => changed,
            _ => self.engines.holders().map(|(id, _)| id).collect(),
        };
        let value = |id: InstanceId| Some(self.of(id)).filter(|holder| **holder != NOTHING);
        ids.into_iter().map(|id| (id, value(id).cloned())).collect()
    }
}
