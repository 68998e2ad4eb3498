//! What is known of hybrid engines' turns (`gang::context` draws the machine).
use super::instance::Instance;
use super::instances::Instances;
use crate::core::gang::context::Turn;
use crate::ids::{Incarnation, Role};
use crate::time::Time;

impl Instance {
    /// Whether an engine holds its slot; one without a linked process holds none, one whose link is
    /// broken is judged by its grace, and one that is condemned computes until it is killed.
    pub fn holds_slot(&self) -> bool {
        self.id.role == Role::Hybrid && self.was_attached()
    }

    /// It did as told.
    pub fn has_switched(&mut self, paused: bool, now: Time) {
        self.last_sign = now;
        self.turn = match paused {
            true => Turn::Paused,
            false => Turn::Rolls,
        };
        if !paused {
            self.tokens_at = now;
        }
    }

    /// It is to end, and computes until it does, which is waited for until then.
    pub fn note_leaving(&mut self, until: Time) {
        if self.holds_slot() && self.turn != Turn::Paused {
            self.leaving = Some((self.incarnation, until));
        }
    }
}

impl Instances {
    /// A process ended whose place has another incarnation already.
    pub fn has_left(&mut self, life: Incarnation) {
        let left = |i: &&Instance| i.leaving.is_some_and(|(who, _)| who == life);
        let engine = self.role(Role::Hybrid).find(left).map(|i| i.id);
        if let Some(i) = engine.and_then(|id| self.get_mut(id)) {
            i.leaving = None;
        }
    }

    /// The daemon was away: engines may have been told what is not on record, or not what is.
    pub fn forget_turns(&mut self) {
        for i in self.iter_mut() {
            // One that had not linked by the last record may have done so, and been told, since.
            if i.id.role == Role::Hybrid && i.has_process() {
                i.turn = Turn::Unknown;
            }
        }
    }
}
