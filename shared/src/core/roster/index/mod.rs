//! What the controller asks at every turn, kept so that no answer needs a look at all instances.
//!
//! ```text
//!  an instance changes ────────► touched ──► facts of the instance anew ──► what differs from before:
//!  leases, requests, weights ───────▲             │                         counts, ordered sets, news
//!  globals changed: a role ─────────┘             └─► its deadline ──► timers
//! ```
//! Nothing here is stored; it is derived from the state when that is restored. [`crate::core::Core::check`]
//! compares it with a full scan.
mod facts;

pub use facts::{Facts, Others};

use crate::core::config::CoreConfig;
use crate::core::gang::Stage;
use crate::core::gang::context::Context;
use crate::core::roster::instances::ROLES;
use crate::core::roster::nodes::{NodeTable, SlotRef, Slots};
use crate::ids::{InstanceId, NodeId, Role, WeightVersion};
use std::collections::BTreeSet;

/// Counts of a role's instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub linked: u32,
    pub sound: u32,
    pub spawned: u32,
    pub condemned: u32,
    pub works: u32,
    pub pulls: u32,
    pub serves: u32,
    pub unpaused: u32,
    pub unrolling: u32,
    /// Those that are not to have a process: they wait for a slot, or are gone for good.
    pub absent: u32,
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
            pulls: of(self.pulls, others.pulls),
            serves: of(self.serves, others.serves),
            unpaused: of(self.unpaused, others.unpaused),
            unrolling: of(self.unrolling, others.unrolling),
            absent: of(self.absent, others.absent),
        }
    }
}

/// What all facts, or all deadlines, of a role depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Globals {
    /// The version that engines are to have.
    pub published: Option<WeightVersion>,
    /// The one that the gang serves.
    pub serves: Option<WeightVersion>,
    /// What the gang is about.
    pub stage: Option<Stage>,
    /// A call or a pull waits for the ranks.
    pub wanted: bool,
    /// Whose turn the trainer's slots are.
    pub context: Context,
}

/// The index. See the module's doc.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Index {
    facts: [Vec<Facts>; ROLES],
    counts: [Counts; ROLES],
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

    /// Those whose slots are about to fail.
    pub fn on_drained(&self) -> Vec<InstanceId> {
        let drained = self.slots.draining();
        drained.flat_map(|slot| self.slots.takers(slot)).collect()
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

    /// The first hybrid engine that is to be told something.
    pub fn to_tell(&self) -> Option<InstanceId> {
        self.to_tell.first().copied()
    }

    /// How the others were when it was last brought up to date.
    pub fn globals(&self) -> Globals {
        self.globals
    }

    /// How they are now.
    pub(super) fn keep(&mut self, globals: Globals) {
        self.globals = globals;
    }

    /// Takes in what a node is like now.
    pub(super) fn survey(&mut self, node: NodeId, nodes: &NodeTable, config: &CoreConfig) {
        self.slots.survey(node, nodes, config);
    }

    /// Takes in where an instance is now. Returns whether that is news.
    pub(super) fn place(
        &mut self,
        id: InstanceId,
        slot: Option<&SlotRef>,
        nodes: &NodeTable,
        config: &CoreConfig,
    ) -> bool {
        self.slots.place(id, slot, nodes, config)
    }

    /// Takes in what follows from an instance now, of a role that has so many places. Returns what did
    /// before, if that differs.
    pub(super) fn replace(&mut self, id: InstanceId, new: &Facts, places: usize) -> Option<Facts> {
        let known = &mut self.facts[id.role as usize];
        let at = id.index as usize;
        if known.len() <= at {
            known.resize_with(at + 1, Facts::default);
        }
        let differs = known[at] != *new;
        let old = differs.then(|| std::mem::replace(&mut known[at], new.clone()));
        // Places that are gone, once nothing is known of them any more.
        while known.len() > places && known.last() == Some(&Facts::default()) {
            known.pop();
        }
        let old = old?;
        self.change(id, &old, new);
        Some(old)
    }

    /// Takes in what became of the facts of an instance. Only what differs is looked up: most of what
    /// happens changes one of them.
    fn change(&mut self, id: InstanceId, old: &Facts, new: &Facts) {
        let counts = &mut self.counts[id.role as usize];
        *counts = counts.with(&old.counts(), false).with(&new.counts(), true);
        let flags = [
            (&mut self.going, old.going, new.going),
            (&mut self.homeless, old.homeless, new.homeless),
            (
                &mut self.to_tell,
                old.to_tell.is_some(),
                new.to_tell.is_some(),
            ),
        ];
        for (set, was, is) in flags {
            if was != is {
                put(set, id, is);
            }
        }
    }
}

fn put<T: Ord>(set: &mut BTreeSet<T>, entry: T, there: bool) {
    let _ = match there {
        true => set.insert(entry),
        false => set.remove(&entry),
    };
}
