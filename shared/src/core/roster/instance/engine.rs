//! What is known of an engine: its health, who found what it serves to be corrupt, and whose its slot is.
use super::{Engine, Health, Instance};
use crate::core::gang::context::Turn;
use crate::ids::{Incarnation, Role};
use crate::time::Time;
use std::collections::BTreeSet;

/// Whether it generates (`detect::health_probe` and `detect::rollout_silent` decide).
impl Instance {
    /// It is being probed until then, and gets no traffic.
    pub fn suspect_until(&mut self, until: Time) {
        if let Some(engine) = self.engine_mut() {
            engine.suspect = Some(until);
        }
    }

    /// It is suspect no more.
    pub fn trust(&mut self) {
        if let Some(engine) = self.engine_mut() {
            engine.suspect = None;
        }
    }

    /// A new life: its first probe is due then.
    pub fn begin_probes(&mut self, next: Time) {
        if let Some(engine) = self.engine_mut() {
            engine.begin_probes(next);
        }
    }

    /// What its probes said is void; the next one is due then.
    pub fn void_probes(&mut self, next: Time) {
        self.trust();
        self.begin_probes(next);
    }

    /// A probe is sent, whose answer may take until then. Returns whether it is suspect.
    pub fn ask(&mut self, until: Time) -> bool {
        let Some(engine) = self.engine_mut() else {
            return false;
        };
        engine.health.asked = Some(until);
        engine.suspect = engine.suspect.map(|_| until);
        engine.suspect.is_some()
    }

    /// It generates, which is all that a probe asks for; the next one is due no sooner than then.
    pub fn generates(&mut self, next: Time) {
        if let Some(engine) = self.engine_mut() {
            engine.suspect = None;
            let next = engine.health.next.max(next);
            engine.begin_probes(next);
        }
    }

    /// It answered the probe of a suspect.
    pub fn answered(&mut self, now: Time) {
        (self.tokens_at, self.last_sign) = (now, now);
        if let Some(engine) = self.engine_mut() {
            (engine.suspect, engine.health.asked) = (None, None);
        }
    }

    /// A probe succeeded; the next one is due then. Returns how many failed before it.
    pub fn probe_succeeded(&mut self, now: Time, next: Time) -> u32 {
        let failures = self.health().failures;
        self.begin_probes(next);
        self.last_sign = now;
        if failures > 0 {
            self.trust();
            // The silent rule counts from here: it got no requests meanwhile.
            self.tokens_at = now;
        }
        failures
    }

    /// A probe is over; the next one is due then.
    pub fn probe_is_over(&mut self, next: Time) {
        if let Some(engine) = self.engine_mut() {
            (engine.health.asked, engine.health.next) = (None, next);
        }
    }

    /// It failed. Returns how many did in a row.
    pub fn probe_failed(&mut self) -> u32 {
        let Some(engine) = self.engine_mut() else {
            return 0;
        };
        engine.health.failures += 1;
        engine.health.failures
    }
}

impl Engine {
    fn begin_probes(&mut self, next: Time) {
        self.health = Health {
            next,
            ..Health::default()
        };
    }
}

/// What it serves (`detect::corruption` decides).
impl Instance {
    /// An operator took it out, or let it in again.
    pub fn quarantine(&mut self, out: bool) {
        if let Some(engine) = self.engine_mut() {
            engine.quarantined = out;
        }
    }

    /// A puller says that its chunks are corrupt. Returns how many did.
    pub fn is_reported(&mut self) -> u32 {
        self.corrupt_reports += 1;
        self.corrupt_reports
    }

    /// An incarnation found its chunks to be corrupt. Returns all that did.
    pub fn is_corrupt_to(&mut self, finder: Incarnation) -> BTreeSet<Incarnation> {
        self.corrupt_to.insert(finder);
        self.corrupt_to.clone()
    }

    /// Sources whose chunks it found corrupt, and nobody else did.
    pub fn blames(&mut self, sources: BTreeSet<Incarnation>) {
        if let Some(engine) = self.engine_mut() {
            engine.corrupt_sources = sources;
        }
    }

    /// Somebody else found that source corrupt, too.
    pub fn blames_no_more(&mut self, source: Incarnation) {
        if let Some(engine) = self.engine_mut() {
            engine.corrupt_sources.remove(&source);
        }
    }
}

/// Whose its slot is (`gang::context` draws the machine).
impl Instance {
    /// Whether an engine holds its slot; one without a linked process holds none, one whose link is
    /// broken is judged by its grace, and one that is condemned computes until it is killed. One that was
    /// starting when the daemon went away may have linked, and been given requests, before it did.
    pub fn holds_slot(&self) -> bool {
        let may_have = self.has_process() && self.turn() == Turn::Unknown;
        self.place.id.role == Role::Hybrid && (self.was_attached() || may_have)
    }

    /// It was told to generate.
    pub fn told_to_resume(&mut self, since: Time) {
        self.turns(Turn::Resuming { since });
    }

    /// It was told to leave its slot to its rank.
    pub fn told_to_pause(&mut self, since: Time) {
        self.turns(Turn::Pausing { since });
        // A probe would be sent away like any request; its answer is what it is judged by now.
        self.trust();
    }

    /// It did as told.
    pub fn has_switched(&mut self, paused: bool, now: Time) {
        self.last_sign = now;
        self.turns(match paused {
            true => Turn::Paused,
            false => Turn::Rolls,
        });
        if !paused {
            self.tokens_at = now;
        }
    }

    /// The daemon was away: it may have been told what is not on record, or not what is.
    pub fn forget_turn(&mut self) {
        self.turns(Turn::Unknown);
    }

    /// It is to end, and computes until it does, which is waited for until then.
    pub fn note_leaving(&mut self, until: Time) {
        let computes = self.holds_slot() && self.turn() != Turn::Paused;
        let incarnation = self.incarnation;
        if let Some(engine) = self.engine_mut().filter(|_| computes) {
            engine.leaving = Some((incarnation, until));
        }
    }

    /// The life that was to end did, or is waited for no longer.
    pub fn has_left(&mut self) {
        if let Some(engine) = self.engine_mut() {
            engine.leaving = None;
        }
    }

    fn turns(&mut self, turn: Turn) {
        if let Some(engine) = self.engine_mut() {
            engine.turn = turn;
        }
    }
}
