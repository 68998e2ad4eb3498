//! Who gets which slot: what `placement` says is done.
use super::homes::{Given, Home, Move};
use super::placement::Placement;
use super::spec::SlotRef;
use crate::core::Core;
use crate::core::mutation::Mutation;
use crate::core::output::Severity;
use crate::core::roster::instance::{Instance, Life};
use crate::ids::{Generation, Incarnation, InstanceId, Role};
use std::collections::BTreeSet;

impl Core {
    /// What decides where an instance is to run, as the index was last brought up to date.
    pub(in crate::core) fn placement(&self) -> Placement<'_> {
        Placement {
            now: self.now,
            config: &self.config,
            instances: &self.s.instances,
            nodes: &self.s.nodes,
            slots: self.index.slots(),
            weights: &self.s.weights,
        }
    }

    /// The changes of slots that a restart of these brings.
    pub(in crate::core) fn moves(&mut self, ids: &[InstanceId]) -> Vec<Move> {
        self.sync();
        self.placement().moves(ids, &mut Given::default())
    }

    /// Gives an instance a slot, if there is one for it.
    pub(in crate::core) fn house(&mut self, id: InstanceId) -> Option<SlotRef> {
        self.sync();
        let slot = match self.placement().home(id, &Given::default()) {
            Home::Stays => return self.s.instances.get(id).and_then(|i| i.slot.clone()),
            Home::Moves(slot) => Some(slot),
            Home::Takes { rollout, slot } => {
                self.displace(rollout, id);
                Some(slot)
            }
            Home::Waits(_) => None,
        };
        if let Some(i) = self.s.instances.get_mut(id) {
            let left = std::mem::replace(&mut i.slot, slot.clone());
            if let Some(left) = left.filter(|_| i.incarnation.0 != 0) {
                i.before = Some((i.incarnation, left));
            }
        }
        slot
    }

    /// Starts those that wait for a slot, as far as there are any.
    pub(super) fn house_homeless(&mut self) {
        self.sync();
        if !std::mem::take(&mut self.slots_due) {
            return;
        }
        // Places of a role are alike, but for engines, which come with their ranks.
        let mut full = BTreeSet::new();
        let homeless = self.index.homeless();
        let forgets = self.config.mutant(Mutation::ForgetHomeless);
        for id in homeless.into_iter().filter(|_| !forgets) {
            let waits = |i: &Instance| i.life == Life::Homeless && !i.retiring;
            let waits = self.s.instances.get(id).is_some_and(waits);
            if !waits || full.contains(&id.role) {
                continue;
            }
            if self.house(id).is_some() {
                self.issue(&[id]);
            } else if id.role != Role::Hybrid {
                full.insert(id.role);
            }
        }
    }

    /// A rollout gives its slot to a rank: it is asked to end, its requests go on elsewhere.
    fn displace(&mut self, rollout: InstanceId, rank: InstanceId) {
        self.retire(rollout);
        if self.s.instances.get(rollout).is_some_and(|i| i.retiring) {
            return self.vacate(rollout);
        }
        self.note_replaced(rollout, &format!("{rank} needs its slot"));
        let none = Incarnation(0);
        if let Some(i) = self.reborn(rollout, none, Generation(0)) {
            (i.life, i.slot) = (Life::Homeless, None);
        }
        let text = format!("{rollout} gives its slot to {rank} and waits for another");
        self.event(Severity::Warn, "standby", Some(rollout), text);
    }
}
