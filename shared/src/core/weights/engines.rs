//! Every engine, as far as weights go.
use super::holder::{Holder, NOTHING};
use super::standing::{Peer, Standing};
use crate::core::roster::instances::ROLES;
use crate::ids::{InstanceId, Role};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One engine.
#[derive(Clone, Debug, Default)]
pub(super) struct Engine {
    /// What it has: all of it that is remembered.
    pub holder: Holder,
    /// What the roster says of it.
    pub peer: Peer,
    /// What follows from both.
    pub standing: Standing,
}

/// All of them, found by role and index.
#[derive(Clone, Debug, Default)]
pub(super) struct Engines([Vec<Engine>; ROLES]);

impl Engines {
    pub fn get(&self, id: InstanceId) -> Option<&Engine> {
        self.0[id.role as usize].get(id.index as usize)
    }

    /// What one has; nothing, if it was never heard of.
    pub fn holder(&self, id: InstanceId) -> &Holder {
        self.get(id).map_or(&NOTHING, |engine| &engine.holder)
    }

    /// One of them, of which nothing may be known yet.
    pub fn at(&mut self, id: InstanceId) -> &mut Engine {
        let (of_role, at) = (&mut self.0[id.role as usize], id.index as usize);
        if of_role.len() <= at {
            of_role.resize_with(at + 1, Engine::default);
        }
        &mut of_role[at]
    }

    /// How many are known.
    pub fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// All that are known, hybrids first.
    pub fn ids(&self) -> Vec<InstanceId> {
        let of_role = |role: Role| {
            let indexes = (0u32..).zip(&self.0[role as usize]);
            indexes.map(move |(index, _)| InstanceId { role, index })
        };
        let roles = [Role::Hybrid, Role::Rollout].into_iter();
        roles.flat_map(of_role).collect()
    }

    /// Those that have something.
    pub fn holders(&self) -> impl Iterator<Item = (InstanceId, &Holder)> {
        let all = self.ids().into_iter();
        let all = all.map(|id| (id, self.holder(id)));
        all.filter(|(_, holder)| **holder != NOTHING)
    }

    /// What the roster said, and what follows from it, is forgotten.
    pub fn forget_told(&mut self) {
        for engine in self.0.iter_mut().flatten() {
            (engine.peer, engine.standing) = (Peer::default(), Standing::default());
        }
    }

    /// Whether the planner sees the same in both. One that it sees nothing of may as well not be there.
    pub fn stand_as(&self, other: &Self) -> bool {
        let seen = |engine: &&Engine| engine.standing != Standing::default();
        let standings = |all: &Self| -> Vec<_> {
            let ids = all.ids().into_iter();
            let engines = ids.filter_map(|id| Some((id, all.get(id).filter(seen)?.standing)));
            engines.collect()
        };
        standings(self) == standings(other)
    }
}

/// Equal are those that remember the same.
impl PartialEq for Engines {
    fn eq(&self, other: &Self) -> bool {
        self.holders().eq(other.holders())
    }
}

/// A list of those that have something.
impl Serialize for Engines {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.holders())
    }
}

impl<'de> Deserialize<'de> for Engines {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let holders = Vec::<(InstanceId, Holder)>::deserialize(from)?;
        Ok(holders.into_iter().collect())
    }
}

impl FromIterator<(InstanceId, Holder)> for Engines {
    fn from_iter<T: IntoIterator<Item = (InstanceId, Holder)>>(all: T) -> Self {
        let mut engines = Self::default();
        for (id, holder) in all {
            engines.at(id).holder = holder;
        }
        engines
    }
}
