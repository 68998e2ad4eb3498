//! Who is to pull, who may serve, and who pulls from whom, in the order in which the planner looks for them.
use super::near::{Distance, Nearby, Place, put};
use super::standing::Standing;
use crate::hash::IdMap;
use crate::ids::{Incarnation, InstanceId, Role, WeightVersion};
use std::collections::BTreeSet;

/// An engine that is to pull: whether it can wait, whether it gets traffic, what it has.
pub(super) type Behind = (bool, bool, Option<WeightVersion>, InstanceId);

/// An engine that may serve a puller more: whether it is still pulling itself, and its pullers.
type Relay = (bool, u32, InstanceId, Incarnation);

/// What the planner asks at every turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sets {
    /// Engines that are to pull; those that others wait for, then those without traffic come first.
    pub behind: Nearby<Behind>,
    /// Engines that may serve a puller more; those that have everything, then the idlest come first.
    relays: Nearby<Relay>,
    /// Engines that others may pull the published version from, now or when they are free.
    having: u32,
    /// Engines whose pullers are to go on elsewhere.
    pub stranding: BTreeSet<InstanceId>,
    /// Engines that have or pull the published version while others pull an older one from them.
    pub outdated: BTreeSet<InstanceId>,
    /// Pulls by the relay they come from.
    pulls: IdMap<Incarnation, BTreeSet<(WeightVersion, InstanceId)>>,
    /// Pulls from the trainer, by version.
    pub from_trainer: BTreeSet<(WeightVersion, InstanceId)>,
    /// What may still be read though its reader was told to pull something else: from which relay (none: from the
    /// trainer), and by whom.
    left: BTreeSet<(Option<Incarnation>, WeightVersion, InstanceId)>,
    /// Engines that were failed by a rank just now.
    pub avoid_ranks: BTreeSet<InstanceId>,
}

impl Sets {
    /// The engine that is to pull and is nearest to a place.
    pub fn nearest_behind(&self, place: Place) -> Option<(Distance, Behind)> {
        self.behind.from(place).next()
    }

    /// Whether anybody who has the published version, or some of it, may serve another puller.
    pub fn any_relay(&self) -> bool {
        !self.relays.is_empty()
    }

    /// Whether engines, free or not, have the published version or are getting it.
    pub fn any_has(&self) -> bool {
        self.having > 0
    }

    /// Engines that may serve another puller, the nearest first; then those that have everything, then
    /// the idlest. Some come more than once. With the way, and whether it is still pulling itself.
    pub fn relays_near(&self, place: Place) -> impl Iterator<Item = (Distance, bool, Incarnation)> {
        let all = self.relays.from(place);
        all.map(|(way, (growing, _, _, relay))| (way, growing, relay))
    }

    /// Pulls from this relay.
    pub fn pulls_of(
        &self,
        relay: Incarnation,
    ) -> impl Iterator<Item = &(WeightVersion, InstanceId)> {
        self.pulls.get(&relay).into_iter().flatten()
    }

    /// Versions of this relay (none: of the trainer) that may be read by engines that were told to pull something else,
    /// and by whom.
    pub fn left_of(
        &self,
        relay: Option<Incarnation>,
    ) -> impl Iterator<Item = (WeightVersion, InstanceId)> {
        // The least that there can be: a trainer's rank is the first of all instances.
        let first = InstanceId {
            role: Role::Trainer,
            index: 0,
        };
        let of = self.left.range((relay, WeightVersion(0), first)..);
        let of = of.take_while(move |(from, ..)| *from == relay);
        of.map(|(_, version, id)| (*version, *id))
    }

    /// How many pull from this relay.
    pub fn pullers_of(&self, relay: Incarnation) -> u32 {
        let pulls = self.pulls.get(&relay).map_or(0, BTreeSet::len);
        u32::try_from(pulls).unwrap_or(u32::MAX)
    }

    /// Takes in what became of an engine. Only what differs is looked up: most of what happens changes one
    /// of them, and some of the sets have all engines in them.
    pub fn change(&mut self, id: InstanceId, old: &Standing, new: &Standing) {
        let had = self.having.wrapping_sub(u32::from(old.has));
        self.having = had.wrapping_add(u32::from(new.has));
        let flags = [
            (&mut self.avoid_ranks, old.avoids_rank, new.avoids_rank),
            (&mut self.stranding, old.strands, new.strands),
            (&mut self.outdated, old.outdated, new.outdated),
        ];
        for (set, was, is) in flags {
            if was != is {
                put(set, id, is);
            }
        }
        let moved = old.place != new.place;
        if moved || old.behind != new.behind {
            for (of, there) in [(old, false), (new, true)] {
                if let Some((waits, admitted, version)) = of.behind {
                    let entry = (waits, admitted, version, id);
                    self.behind.put(of.place, entry, there);
                }
            }
        }
        if moved || old.life != new.life || old.relay != new.relay {
            for (of, there) in [(old, false), (new, true)] {
                if let Some((growing, pullers)) = of.relay {
                    let entry = (growing, pullers, id, of.life);
                    self.relays.put(of.place, entry, there);
                }
            }
        }
        if old.left != new.left {
            for (of, there) in [(old, false), (new, true)] {
                if let Some((version, relay)) = of.left {
                    put(&mut self.left, (relay, version, id), there);
                }
            }
        }
        if old.pull != new.pull {
            self.note_pull(id, old, false);
            self.note_pull(id, new, true);
        }
    }

    fn note_pull(&mut self, id: InstanceId, of: &Standing, there: bool) {
        match of.pull {
            Some((version, None)) => put(&mut self.from_trainer, (version, id), there),
            Some((version, Some(relay))) => {
                let pulls = self.pulls.entry(relay).or_default();
                put(pulls, (version, id), there);
                if pulls.is_empty() {
                    self.pulls.remove(&relay);
                }
            }
            None => {}
        }
    }
}
