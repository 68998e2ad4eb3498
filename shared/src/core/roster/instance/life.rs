//! The life of an instance's process, its slot, and what a verdict does to it.
use super::{Condemned, Instance, Life, REASONS_KEPT, Restarted};
use crate::core::roster::nodes::SlotRef;
use crate::ids::IncidentId;
use crate::time::Time;

/// Where it is in its life.
impl Instance {
    /// Whether it gets nothing new.
    pub fn going(&self) -> bool {
        self.retiring || self.moving
    }

    /// Whether a process may exist for it.
    pub fn has_process(&self) -> bool {
        !matches!(
            self.life,
            Life::None | Life::Waiting { .. } | Life::Homeless
        )
    }

    /// Whether it can be commanded.
    pub fn attached(&self) -> bool {
        self.life == Life::Attached
    }

    /// Whether the process linked at least once in this life.
    pub fn was_attached(&self) -> bool {
        matches!(self.life, Life::Attached | Life::Unlinked { .. })
    }

    /// Its new process was told to start, and has to link until then.
    pub fn told_to_start(&mut self, until: Time) {
        self.life = Life::Spawning { until };
    }

    /// Its process runs, and has to link until then.
    pub fn spawned(&mut self, pid: u32, until: Time, now: Time) {
        self.pid = pid;
        if matches!(self.life, Life::Spawning { .. }) {
            self.life = Life::Starting { until };
            self.last_sign = now;
        }
    }

    /// Its link broke, and may come again until then.
    pub fn link_broke(&mut self, until: Time) {
        if self.attached() {
            self.life = Life::Unlinked { until };
        }
    }

    /// It starts anew then.
    pub fn wait_until(&mut self, until: Time) {
        self.life = Life::Waiting { until };
    }

    /// Its process linked.
    pub fn greet(&mut self, now: Time) {
        self.life = Life::Attached;
        // What was heard of it before its link broke says nothing of what it does now.
        (self.last_sign, self.active_at, self.moved_at) = (now, now, now);
    }

    /// Its process is about to be replaced.
    pub fn note_restart(&mut self, restarted: Restarted) {
        match restarted.incident {
            Some(_) => self.restarts += 1,
            None => self.replaced += 1,
        }
        if self.restarted.len() == REASONS_KEPT {
            self.restarted.pop_front();
        }
        self.restarted.push_back(restarted);
    }

    /// An injected fault ends this life: the first one is what an incident counts from.
    pub fn is_struck(&mut self, now: Time) {
        self.struck.get_or_insert(now);
    }

    /// An operator's fault struck this life: what fails of it from now on is no node's fault.
    pub fn is_drilled(&mut self) {
        self.drilled = true;
    }

    /// A verdict fell: it is killed when its evidence is in, or late.
    pub fn condemn(&mut self, condemned: Condemned) {
        self.condemned = Some(condemned);
    }

    /// All the evidence of that incident is in: nothing is waited for any longer.
    pub fn evidence_is_in(&mut self, incident: IncidentId, now: Time) {
        let condemned = self.condemned.as_mut();
        if let Some(condemned) = condemned.filter(|c| c.incident == incident) {
            condemned.until = condemned.until.min(now);
        }
    }

    /// Its verdict is carried out.
    pub fn take_condemned(&mut self) -> Option<Condemned> {
        self.condemned.take()
    }
}

/// Where it runs, and whether it is to stay.
impl Instance {
    /// Whether it is to go when it has nothing left to do.
    pub fn retire(&mut self, retiring: bool) {
        self.retiring = retiring;
    }

    /// Whether it is to start in another slot when it has nothing left to do.
    pub fn is_to_move(&mut self, moving: bool) {
        self.moving = moving;
    }

    /// It is to run in another slot, or nowhere yet. A process that it has goes on where it is.
    pub fn move_to(&mut self, slot: Option<SlotRef>) {
        let left = std::mem::replace(&mut self.slot, slot);
        if let Some(left) = left.filter(|_| self.incarnation.0 != 0) {
            self.before = Some((self.incarnation, left));
        }
    }

    /// Nothing runs there, and it has no slot.
    pub fn wait_for_slot(&mut self) {
        (self.life, self.slot) = (Life::Homeless, None);
    }

    /// Nothing runs there, and nothing will.
    pub fn vacate(&mut self) {
        (self.life, self.slot, self.retiring) = (Life::None, None, true);
    }

    /// The daemon was away: its link is gone, and may come again until then.
    pub fn rejoin(&mut self, now: Time, grace: Time) {
        match &mut self.life {
            Life::Attached => self.life = Life::Unlinked { until: grace },
            Life::Spawning { until } | Life::Starting { until } | Life::Unlinked { until } => {
                *until = grace;
            }
            Life::None | Life::Waiting { .. } | Life::Homeless => {}
        }
        if let Some(engine) = self.engine_mut() {
            engine.suspect = None;
            (engine.health.asked, engine.health.failures) = (None, 0);
        }
        self.unwatched(now);
    }

    /// Nobody watched what it did until now.
    pub fn unwatched(&mut self, now: Time) {
        (self.sampled_at, self.active_at) = (Time(0), now);
        (self.moved_at, self.tokens_at) = (now, now);
    }
}
