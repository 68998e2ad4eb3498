//! Who gets which slot: what `roster/nodes/placement` says is done. Slots that are about to fail are left
//! before they do.
//!
//! ```text
//!  drained: nobody new comes ──► rollout, agent: nothing new for it ── idle ──► starts elsewhere
//!                            └─► rank: at the next step boundary the gang starts anew (`planned`)
//!  no slot to go to: everybody stays and works on, until there is one
//! ```
use crate::core::Core;
use crate::core::mutation::Mutation;
use crate::core::ops::planned::Change;
use crate::core::output::Severity;
use crate::core::roster::instance::{Instance, Life};
use crate::core::roster::nodes::{Given, Home, SlotRef};
use crate::ids::{Generation, Incarnation, InstanceId, Role};
use std::collections::BTreeSet;

impl Core {
    /// Lets go whoever is to go and houses whoever waits, until that frees no further slot: one that is
    /// left late in a round is what somebody on a drained one waits for, and nothing else may ever
    /// happen. It comes to an end: nobody who has a usable slot leaves it for another.
    pub(in crate::core) fn settle_slots(&mut self) {
        let mut freed = false;
        loop {
            self.derive();
            if freed || self.s.roster.is_slot_due() {
                // Those leave whose slots are drained, as far as there is a place for them.
                for id in self.s.roster.index().on_drained() {
                    self.leave(id);
                }
            }
            self.retire_idle();
            self.derive();
            // Who waits for a slot takes it first; what is left of it those on drained ones hear of in
            // the next round, also where nobody waited.
            freed = self.s.roster.is_slot_due();
            self.house_homeless();
            self.derive();
            let roster = &self.s.roster;
            if !freed && !roster.is_slot_due() && !roster.is_retire_due() {
                return;
            }
        }
    }

    fn leave(&mut self, id: InstanceId) {
        let placement = self.s.placement(self.now, &self.config);
        if !placement.may_leave(id) {
            return;
        }
        match id.role {
            // It goes with its rank.
            Role::Hybrid => {}
            Role::Trainer if self.s.orders.planned().is_some() => {}
            Role::Trainer => {
                let ranks = self.s.roster.instances().count(Role::Trainer);
                let why = format!("{id} leaves its slot before that is gone");
                // Nothing else is planned, which is all that it could be refused for.
                let _ = self.plan_change(Change {
                    leaves: true,
                    ..Change::of(ranks, 0, why)
                });
            }
            Role::Rollout | Role::Agent => {
                if let Some(i) = self.s.roster.get_mut(id) {
                    i.is_to_move(true);
                }
                let text =
                    format!("{id} gets nothing new and moves when it has nothing left to do");
                self.event(Severity::Info, "slot", Some(id), text);
            }
        }
    }

    /// One that moves has nothing left to do.
    pub(in crate::core) fn move_on(&mut self, id: InstanceId) {
        if let Some(i) = self.s.roster.get_mut(id) {
            i.is_to_move(false);
        }
        let placement = self.s.placement(self.now, &self.config);
        if matches!(
            placement.home(id, &Given::default()),
            Home::Waits(_) | Home::Stays
        ) {
            // What was free is not any more, or its slot may be used again: it works on.
            return;
        }
        self.replace(&[id], "it leaves its slot before that is gone");
    }

    /// Gives an instance a slot, if there is one for it.
    pub(in crate::core) fn house(&mut self, id: InstanceId) -> Option<SlotRef> {
        self.derive();
        let placement = self.s.placement(self.now, &self.config);
        let slot = match placement.home(id, &Given::default()) {
            Home::Stays => {
                let i = self.s.roster.instances().get(id);
                return i.and_then(|i| i.slot().cloned());
            }
            Home::Moves(slot) => Some(slot),
            Home::Takes { rollout, slot } => {
                self.displace(rollout, id);
                Some(slot)
            }
            Home::Waits(_) => self.reopen_for(id),
        };
        if let Some(i) = self.s.roster.get_mut(id) {
            i.move_to(slot.clone());
        }
        slot
    }

    /// Starts those that wait for a slot, as far as there are any.
    fn house_homeless(&mut self) {
        self.derive();
        if !self.s.roster.take_slot_due() {
            return;
        }
        // Places of a role are alike, but for engines, which come with their ranks.
        let mut full = BTreeSet::new();
        let homeless = self.s.roster.index().homeless();
        let forgets = self.config.mutant(Mutation::ForgetHomeless);
        for id in homeless.into_iter().filter(|_| !forgets) {
            let waits = |i: &Instance| i.life() == Life::Homeless && !i.retiring();
            let waits = self.s.roster.instances().get(id).is_some_and(waits);
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
        let there = self.s.roster.instances().get(rollout);
        if there.is_some_and(|i| i.retiring()) {
            return self.vacate(rollout);
        }
        self.note_replaced(rollout, &format!("{rank} needs its slot"));
        let none = Incarnation(0);
        if let Some(i) = self.reborn(rollout, none, Generation(0)) {
            i.wait_for_slot();
        }
        let text = format!("{rollout} gives its slot to {rank} and waits for another");
        self.event(Severity::Warn, "standby", Some(rollout), text);
    }
}
