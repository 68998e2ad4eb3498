//! What the controller asks at every turn, kept so that no answer needs a look at all instances.
//!
//! ```text
//!  get_mut, life_mut ───────► touched ──► sync: facts of the instance anew ──► what differs from before:
//!  leases, requests, weights ────▲             │                               counts, ordered sets
//!  globals changed: a role ──────┘             └─► its deadline ──► timers
//! ```
//! Nothing here is stored; it is derived from the state when that is restored. [`Core::check`]
//! compares it with a full scan.
pub(in crate::core) mod check;
mod facts;

use facts::{Basis, Facts};

use crate::core::Core;
use crate::core::gang::Stage;
use crate::core::gang::context::Context;
use crate::core::roster::instances::ROLES;
use crate::core::roster::nodes::Slots;
use crate::core::timers::TimerKey;
use crate::ids::{InstanceId, Role, WeightVersion};
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

impl Core {
    /// The index, up to date.
    pub(in crate::core) fn index(&mut self) -> &Index {
        self.sync();
        &self.index
    }

    /// The index as it was last brought up to date, which must be now.
    pub(in crate::core) fn index_now(&self) -> &Index {
        let heard = self.s.instances.untouched() && self.s.weights.is_heard();
        debug_assert!(heard, "the index is behind");
        &self.index
    }

    /// Counts of a role, as they were last brought up to date.
    pub(in crate::core) fn index_counts(&self, role: Role) -> Counts {
        self.index.counts(role)
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
        while let Some(id) = self.next_touched() {
            self.refresh(id);
            again.push(id);
        }
        self.index.globals = self.globals();
        if self.index.globals.wanted && !before.wanted {
            again.extend(self.s.instances.role(Role::Trainer).map(|i| i.id));
        }
        for id in again.drain(..) {
            let due = self
                .s
                .instances
                .get(id)
                .and_then(|i| self.sight().deadline(i));
            self.timers.arm(TimerKey::Instance(id), due, self.now);
        }
        self.rearm = again;
    }

    /// One of those touched. What the weights make of what they are told meanwhile may concern another one.
    fn next_touched(&mut self) -> Option<InstanceId> {
        let touched = self.s.instances.next_touched();
        touched.or_else(|| self.s.weights.next_changed())
    }

    /// Leases and requests that changed touch whoever holds or serves them, weights whoever has them.
    fn touch_by_others(&mut self) {
        while let Some(engine) = self.s.weights.next_changed() {
            self.s.instances.touch(engine);
        }
        while let Some(life) = self.s.work.next_changed() {
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
        Globals {
            published: self.s.weights.published(),
            serves: gang.serves(),
            stage: Some(gang.stage()),
            context: gang.context(),
            wanted: gang.is_called() || self.s.weights.wait_for_ranks(),
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
        let wanted = before.wanted;
        if (Globals { wanted, ..now }) != before {
            self.s.weights.look_again();
            self.s.recover.look_again();
        }
    }

    fn basis(&self) -> Basis<'_> {
        Basis {
            config: &self.config,
            nodes: &self.s.nodes,
            gang: &self.s.gang,
            weights: &self.s.weights,
            work: &self.s.work,
        }
    }

    fn refresh(&mut self, id: InstanceId) {
        let facts = match self.s.instances.get(id) {
            Some(i) => self.basis().facts(i),
            None => Facts::default(),
        };
        if id.role == Role::Trainer && self.s.instances.get(id).is_none() {
            self.s.weights.rank_is_gone(&self.config, id);
        }
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
        self.retire_due |= old.going || facts.going;
        self.slots_due |= (old.linked, old.homeless) != (facts.linked, facts.homeless);
        if old.recovery() != facts.recovery() {
            self.s.recover.look_again();
        }
        self.index.change(id, &old, &facts);
        self.offer(id, &old, &facts);
        self.tell_weights(id, &old, &facts);
    }

    /// Tells the weights who is there, and in what state.
    fn tell_weights(&mut self, id: InstanceId, old: &Facts, new: &Facts) {
        let (weights, config) = (&mut self.s.weights, &self.config);
        match id.role {
            Role::Trainer => {
                let there = self.s.instances.get(id).is_some();
                if there && old.incarnation != new.incarnation {
                    weights.tell_rank(config, id, new.incarnation);
                }
                if old.sound != new.sound {
                    weights.look_again();
                }
            }
            Role::Hybrid | Role::Rollout => {
                if old.peer != new.peer {
                    weights.tell(config, id, new.peer.unwrap_or_default());
                }
            }
            Role::Agent => {}
        }
    }
}
