//! Slots that are about to fail are left before they do.
//!
//! ```text
//!  drained: nobody new comes ──► rollout, agent: nothing new for it ── idle ──► starts elsewhere
//!                            └─► rank: at the next step boundary the gang starts anew (`planned`)
//!  no slot to go to: everybody stays and works on, until there is one
//! ```
use super::SlotRef;
use super::homes::{Given, Home};
use crate::core::Core;
use crate::core::ops::planned::Change;
use crate::core::output::Severity;
use crate::ids::{InstanceId, Role};

impl Core {
    /// Nobody new comes to a slot, and who is in it leaves when it can.
    pub(in crate::core) fn drain_slot(&mut self, slot: &SlotRef, why: &str) {
        let key = (slot.pool.clone(), slot.index);
        let node = self.s.nodes.get_mut(slot.node);
        if node.is_some_and(|n| n.draining.insert(key)) {
            let text = format!("{} is drained: {why}", self.s.nodes.named(slot));
            self.event(Severity::Warn, "slot", None, text);
        }
    }

    /// Lets go whoever is to go and houses whoever waits, until that frees no further slot: one that is
    /// left late in a round is what somebody on a drained one waits for, and nothing else may ever
    /// happen. It comes to an end: nobody who has a usable slot leaves it for another.
    pub(in crate::core) fn settle_slots(&mut self) {
        let mut freed = false;
        loop {
            self.sync();
            if freed || self.slots_due {
                self.leave_drained();
            }
            self.retire_idle();
            self.sync();
            // Who waits for a slot takes it first; what is left of it those on drained ones hear of in
            // the next round, also where nobody waited.
            freed = self.slots_due;
            self.house_homeless();
            self.sync();
            if !freed && !self.slots_due && !self.retire_due {
                return;
            }
        }
    }

    /// Lets those leave whose slots are drained, as far as there is a place for them.
    fn leave_drained(&mut self) {
        let slots = self.index.slots();
        let drained = slots.draining().flat_map(|slot| slots.takers(slot));
        for id in drained.collect::<Vec<_>>() {
            self.leave(id);
        }
    }

    fn leave(&mut self, id: InstanceId) {
        let there = self.s.instances.get(id);
        let stays = there.is_none_or(|i| i.going() || i.condemned.is_some() || !i.has_process());
        if stays || !self.placement().is_housed(id) {
            return;
        }
        match id.role {
            // It goes with its rank.
            Role::Hybrid => {}
            Role::Trainer if self.s.orders.planned().is_some() => {}
            Role::Trainer => {
                let ranks = self.s.instances.count(Role::Trainer);
                let why = format!("{id} leaves its slot before that fails");
                // Nothing else is planned, which is all that it could be refused for.
                let _ = self.plan_change(Change {
                    leaves: true,
                    ..Change::of(ranks, 0, why)
                });
            }
            Role::Rollout | Role::Agent => {
                if let Some(i) = self.s.instances.get_mut(id) {
                    i.moving = true;
                }
                let text =
                    format!("{id} gets nothing new and moves when it has nothing left to do");
                self.event(Severity::Info, "slot", Some(id), text);
            }
        }
    }

    /// One that moves has nothing left to do.
    pub(in crate::core) fn move_on(&mut self, id: InstanceId) {
        if let Some(i) = self.s.instances.get_mut(id) {
            i.moving = false;
        }
        if matches!(
            self.placement().home(id, &Given::default()),
            Home::Waits(_) | Home::Stays
        ) {
            // What was free is not any more, or its slot may be used again: it works on.
            return;
        }
        self.replace(&[id], "it leaves its slot before that fails");
    }
}
