//! What the controller asks at every turn, kept so that no answer needs a look at all instances.
//!
//! ```text
//!  get_mut, life_mut ──► touched ──► sync: facts of the instance anew ──► what differs from before:
//!  leases, requests ───────▲            │                                 counts, ordered sets
//!  globals changed: a role ┘            └─► its deadline ──► timers
//! ```
//! Nothing here is stored; it is derived from the state when that is restored. [`Core::check`]
//! compares it with a full scan.
pub(in crate::core) mod check;
mod facts;
mod near;

use facts::Facts;
use near::Nearby;
pub(in crate::core) use near::{Distance, Place};

use crate::core::Core;
use crate::core::gang::context::Context;
use crate::core::roster::instances::ROLES;
use crate::core::roster::nodes::Slots;
use crate::core::state::Stage;
use crate::core::timers::TimerKey;
use crate::hash::IdMap;
use crate::ids::{Incarnation, InstanceId, Role, WeightVersion};
use std::collections::BTreeSet;

/// Counts of a role's instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::core) struct Counts {
    pub linked: u32,
    pub sound: u32,
    pub spawned: u32,
    pub condemned: u32,
    pub works: u32,
    pub serves: u32,
    pub unpaused: u32,
    pub unrolling: u32,
    /// Those that are not to have a process: they wait for a slot, or are gone for good.
    pub absent: u32,
    /// Engines that others may pull the published version from, now or when they are free.
    pub relays: u32,
}

impl Counts {
    /// With the others added, or taken out.
    fn with(&self, others: &Counts, there: bool) -> Counts {
        let of = |own: u32, other: u32| match there {
            true => own.wrapping_add(other),
            false => own.wrapping_sub(other),
        };
        Counts {
            linked: of(self.linked, others.linked),
            sound: of(self.sound, others.sound),
            spawned: of(self.spawned, others.spawned),
            condemned: of(self.condemned, others.condemned),
            works: of(self.works, others.works),
            serves: of(self.serves, others.serves),
            unpaused: of(self.unpaused, others.unpaused),
            unrolling: of(self.unrolling, others.unrolling),
            absent: of(self.absent, others.absent),
            relays: of(self.relays, others.relays),
        }
    }
}

/// What all facts, or all deadlines, of a role depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Globals {
    published: Option<WeightVersion>,
    serves: Option<WeightVersion>,
    stage: Option<Stage>,
    /// A call or a pull waits for the ranks.
    wanted: bool,
    context: Context,
}

/// An engine that is to pull: whether it can wait, whether it gets traffic, what it has.
pub(in crate::core) type Behind = (bool, bool, Option<WeightVersion>, InstanceId);

/// An engine that may serve a puller more: whether it is still pulling itself, and its pullers.
type Relay = (bool, u32, InstanceId, Incarnation);

/// The index. See the module's doc.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Index {
    facts: [Vec<Facts>; ROLES],
    counts: [Counts; ROLES],
    /// Engines that are to pull; those that others wait for, then those without traffic come first.
    behind: Nearby<Behind>,
    /// Engines that may serve a puller more; those that have everything, then the idlest come first.
    relays: Nearby<Relay>,
    /// Engines whose pullers are to go on elsewhere.
    stranding: BTreeSet<InstanceId>,
    /// Engines that have or pull the published version while others pull an older one from them.
    outdated: BTreeSet<InstanceId>,
    /// Pulls by the relay they come from.
    pulls: IdMap<Incarnation, BTreeSet<(WeightVersion, InstanceId)>>,
    /// Pulls from the trainer.
    from_trainer: BTreeSet<(WeightVersion, InstanceId)>,
    /// Engines that were failed by a rank just now.
    avoid_ranks: BTreeSet<InstanceId>,
    /// Hybrid engines that are to be told to pause or to go on.
    to_tell: BTreeSet<InstanceId>,
    /// Those that wait for a slot.
    homeless: BTreeSet<InstanceId>,
    /// Those that are to go or to move.
    going: BTreeSet<InstanceId>,
    slots: Slots,
    globals: Globals,
}

impl Index {
    /// Counts of a role.
    pub(in crate::core) fn counts(&self, role: Role) -> Counts {
        self.counts[role as usize]
    }

    /// Those that wait for a slot, ranks first.
    pub fn homeless(&self) -> Vec<InstanceId> {
        self.homeless.iter().copied().collect()
    }

    /// Those that are to go or to move.
    pub fn going(&self) -> Vec<InstanceId> {
        self.going.iter().copied().collect()
    }

    /// Whether an instance has nothing to do.
    pub fn is_idle(&self, id: InstanceId) -> bool {
        let facts = self.facts[id.role as usize].get(id.index as usize);
        facts.is_some_and(|f| f.idle)
    }

    /// Who occupies which slot.
    pub(in crate::core) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Whether one instance counts there.
    pub(in crate::core) fn has(&self, id: InstanceId, reached: fn(&Counts) -> u32) -> bool {
        let facts = self.facts[id.role as usize].get(id.index as usize);
        facts.is_some_and(|f| reached(&f.counts()) > 0)
    }

    /// Engines that are to pull the published version, in the order they are served.
    pub(in crate::core) fn behind_after(&self, last: Option<Behind>) -> Option<Behind> {
        self.behind.after(last)
    }

    /// The engine that is to pull and is nearest to a place.
    pub(in crate::core) fn nearest_behind(&self, place: Place) -> Option<(Distance, Behind)> {
        self.behind.from(place).next()
    }

    /// Whether anybody who has the published version, or some of it, may serve another puller.
    pub fn any_relay(&self) -> bool {
        !self.relays.is_empty()
    }

    /// Engines that may serve another puller, the nearest first; then those that have everything, then
    /// the idlest. Some come more than once. With the way, and whether it is still pulling itself.
    pub(in crate::core) fn relays_near(
        &self,
        place: Place,
    ) -> impl Iterator<Item = (Distance, bool, Incarnation)> {
        let all = self.relays.from(place);
        all.map(|(way, (growing, _, _, relay))| (way, growing, relay))
    }

    /// Engines whose pullers are to go on elsewhere.
    pub fn stranding(&self) -> Vec<InstanceId> {
        self.stranding.iter().copied().collect()
    }

    /// Engines that have or pull the published version while others pull an older one from them.
    pub fn outdated(&self) -> Vec<InstanceId> {
        self.outdated.iter().copied().collect()
    }

    /// Where an instance is.
    pub(in crate::core) fn place(&self, id: InstanceId) -> Place {
        let facts = self.facts[id.role as usize].get(id.index as usize);
        facts.map(|f| f.place).unwrap_or_default()
    }

    /// The first hybrid engine that is to be told something.
    pub fn to_tell(&self) -> Option<InstanceId> {
        self.to_tell.first().copied()
    }

    /// Pulls from this relay.
    pub fn pulls_of(
        &self,
        relay: Incarnation,
    ) -> impl Iterator<Item = &(WeightVersion, InstanceId)> {
        self.pulls.get(&relay).into_iter().flatten()
    }

    /// How many pull from this relay.
    pub(in crate::core) fn pullers_of(&self, relay: Incarnation) -> u32 {
        let pulls = self.pulls.get(&relay).map_or(0, BTreeSet::len);
        u32::try_from(pulls).unwrap_or(u32::MAX)
    }

    /// Pulls from the trainer, by version.
    pub fn trainer_pulls(&self) -> &BTreeSet<(WeightVersion, InstanceId)> {
        &self.from_trainer
    }

    /// Whether a pull from the gang is under way, or was given up just now.
    pub fn pulls_wait_for_ranks(&self) -> bool {
        !self.from_trainer.is_empty() || !self.avoid_ranks.is_empty()
    }

    /// Takes in what became of the facts of an instance. Only what differs is looked up: most of what
    /// happens changes one of them, and some of the sets have all engines in them.
    fn change(&mut self, id: InstanceId, old: &Facts, new: &Facts) {
        let counts = &mut self.counts[id.role as usize];
        *counts = counts.with(&old.counts(), false).with(&new.counts(), true);
        let flags = [
            (&mut self.going, old.going, new.going),
            (&mut self.homeless, old.homeless, new.homeless),
            (&mut self.avoid_ranks, old.avoids_rank, new.avoids_rank),
            (
                &mut self.to_tell,
                old.to_tell.is_some(),
                new.to_tell.is_some(),
            ),
            (&mut self.stranding, old.strands, new.strands),
            (&mut self.outdated, old.outdated, new.outdated),
        ];
        for (set, was, is) in flags {
            if was != is {
                put(set, id, is);
            }
        }
        let life = |facts: &Facts| facts.incarnation;
        let reborn = life(old) != life(new);
        let moved = old.place != new.place;
        if moved || old.behind != new.behind {
            for (facts, there) in [(old, false), (new, true)] {
                if let Some((waits, admitted, version)) = facts.behind {
                    let entry = (waits, admitted, version, id);
                    self.behind.put(facts.place, entry, there);
                }
            }
        }
        if moved || reborn || old.relay != new.relay {
            for (facts, there) in [(old, false), (new, true)] {
                if let Some((growing, pullers)) = facts.relay {
                    let entry = (growing, pullers, id, life(facts));
                    self.relays.put(facts.place, entry, there);
                }
            }
        }
        if old.pull != new.pull {
            self.note_pull(id, old, false);
            self.note_pull(id, new, true);
        }
    }

    fn note_pull(&mut self, id: InstanceId, facts: &Facts, there: bool) {
        match facts.pull {
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

fn put<T: Ord>(set: &mut BTreeSet<T>, entry: T, there: bool) {
    let _ = match there {
        true => set.insert(entry),
        false => set.remove(&entry),
    };
}

impl Core {
    /// The index, up to date.
    pub(in crate::core) fn index(&mut self) -> &Index {
        self.sync();
        &self.index
    }

    /// The index as it was last brought up to date, which must be now.
    pub(in crate::core) fn index_now(&self) -> &Index {
        debug_assert!(self.s.instances.untouched(), "the index is behind");
        &self.index
    }

    /// Counts of a role, as they were last brought up to date.
    pub(in crate::core) fn index_counts(&self, role: Role) -> Counts {
        self.index.counts(role)
    }

    /// Whether a pull from the gang is under way, or was given up just now.
    pub(in crate::core) fn pulls_wait_for_ranks(&self) -> bool {
        self.index.pulls_wait_for_ranks()
    }

    /// Derives anew what follows from everything that was touched.
    pub(in crate::core) fn sync(&mut self) {
        self.touch_by_others();
        if self.s.instances.untouched()
            && self.s.nodes.unchanged()
            && self.globals() == self.index.globals
        {
            return;
        }
        let before = self.index.globals;
        self.notice_globals();
        while let Some(node) = self.s.nodes.next_changed() {
            let slots = &mut self.index.slots;
            slots.survey(node, &self.s.nodes, &self.config);
            self.slots_due = true;
            for id in slots.on_node(node) {
                // Its labels may be others.
                self.s.instances.touch(id);
            }
        }
        let mut again = std::mem::take(&mut self.rearm);
        while let Some(id) = self.s.instances.next_touched() {
            self.refresh(id);
            again.push(id);
        }
        self.index.globals = self.globals();
        if self.index.globals.wanted && !before.wanted {
            again.extend(self.s.instances.role(Role::Trainer).map(|i| i.id));
        }
        for id in again.drain(..) {
            let due = self.s.instances.get(id).and_then(|i| self.deadline(i));
            self.timers.arm(TimerKey::Instance(id), due, self.now);
        }
        self.rearm = again;
    }

    /// Leases and requests that changed touch whoever holds or serves them.
    fn touch_by_others(&mut self) {
        loop {
            let Some(life) = self.s.work.next_changed() else {
                return;
            };
            if let Some(id) = self.s.instances.life(life).map(|i| i.id) {
                self.s.instances.touch(id);
            }
        }
    }

    /// Tells the work which incarnation takes more of it.
    fn offer(&mut self, id: InstanceId, old: &Facts, new: &Facts) {
        let same = old.incarnation == new.incarnation;
        if same && old.takes == new.takes {
            return;
        }
        if !same {
            self.s.work.offer(id, old.incarnation, None);
        }
        self.s.work.offer(id, new.incarnation, new.takes);
    }

    fn globals(&self) -> Globals {
        let gang = &self.s.gang;
        let calls = !matches!(gang.stage, Stage::Forming | Stage::Ready);
        Globals {
            published: self.s.published,
            serves: gang.serves,
            stage: Some(gang.stage),
            context: gang.context,
            wanted: calls || self.index.pulls_wait_for_ranks(),
        }
    }

    fn notice_globals(&mut self) {
        let (now, before) = (self.globals(), self.index.globals);
        if now.published != before.published {
            let engines: Vec<_> = self.s.instances.engines().map(|i| i.id).collect();
            engines
                .into_iter()
                .for_each(|id| self.s.instances.touch(id));
        }
        if now.context != before.context {
            self.s.instances.touch_role(Role::Hybrid);
        }
        if now.stage != before.stage {
            // A call that begins is what an idle rank is measured against.
            self.s.instances.touch_role(Role::Trainer);
        }
        if now != before {
            (self.plan_due, self.recoveries_due) = (true, true);
        }
    }

    fn refresh(&mut self, id: InstanceId) {
        let facts = match self.s.instances.get(id) {
            Some(i) => self.facts(i),
            None => Facts::default(),
        };
        let slot = self.s.instances.get(id).and_then(|i| i.slot.as_ref());
        let slots = &mut self.index.slots;
        self.slots_due |= slots.place(id, slot, &self.s.nodes, &self.config);
        let known = &mut self.index.facts[id.role as usize];
        let at = id.index as usize;
        if known.len() <= at {
            known.resize_with(at + 1, Facts::default);
        }
        let unchanged = known[at] == facts;
        let old = match unchanged {
            true => Facts::default(),
            false => std::mem::replace(&mut known[at], facts.clone()),
        };
        // Places that are gone, once nothing is known of them any more.
        let places = self.s.instances.count(id.role) as usize;
        while known.len() > places && known.last() == Some(&Facts::default()) {
            known.pop();
        }
        if unchanged {
            return;
        }
        self.plan_due |= old.planning() != facts.planning();
        self.retire_due |= old.going || facts.going;
        self.slots_due |= (old.linked, old.homeless) != (facts.linked, facts.homeless);
        self.recoveries_due |= old.recovery() != facts.recovery();
        self.index.change(id, &old, &facts);
        self.offer(id, &old, &facts);
        if id.role == Role::Trainer && old.incarnation != facts.incarnation {
            for engine in self.index.avoid_ranks.clone() {
                self.s.instances.touch(engine);
            }
        }
        if old.pull != facts.pull {
            let relays = [old.pull, facts.pull].into_iter().flatten();
            for relay in relays.filter_map(|(_, relay)| relay) {
                if let Some(id) = self.s.instances.life(relay).map(|i| i.id) {
                    self.s.instances.touch(id);
                }
            }
        }
    }
}
