//! What is known of an engine: its health, who found what it serves to be corrupt, and whose its slot is.
use super::{Health, Instance};
use crate::core::gang::context::Turn;
use crate::ids::{Incarnation, Role};
use crate::time::Time;
use std::collections::BTreeSet;

/// Whether it generates (`detect::health_probe` and `detect::rollout_silent` decide).
impl Instance {
    /// It is being probed until then, and gets no traffic.
    pub fn suspect_until(&mut self, until: Time) {
        self.suspect = Some(until);
    }

    /// It is suspect no more.
    pub fn trust(&mut self) {
        self.suspect = None;
    }

    /// A new life: its first probe is due then.
    pub fn begin_probes(&mut self, next: Time) {
        self.health = Health {
            next,
            ..Health::default()
        };
    }

    /// What its probes said is void; the next one is due then.
    pub fn void_probes(&mut self, next: Time) {
        self.suspect = None;
        self.begin_probes(next);
    }

    /// A probe is sent, whose answer may take until then. Returns whether it is suspect.
    pub fn ask(&mut self, until: Time) -> bool {
        self.health.asked = Some(until);
        let suspect = self.suspect.is_some();
        if suspect {
            self.suspect = Some(until);
        }
        suspect
    }

    /// It generates, which is all that a probe asks for; the next one is due no sooner than then.
    pub fn generates(&mut self, next: Time) {
        self.suspect = None;
        (self.health.failures, self.health.asked) = (0, None);
        self.health.next = self.health.next.max(next);
    }

    /// It answered the probe of a suspect.
    pub fn answered(&mut self, now: Time) {
        (self.suspect, self.tokens_at, self.last_sign) = (None, now, now);
        self.health.asked = None;
    }

    /// A probe succeeded; the next one is due then. Returns how many failed before it.
    pub fn probe_succeeded(&mut self, now: Time, next: Time) -> u32 {
        let failures = self.health.failures;
        self.begin_probes(next);
        self.last_sign = now;
        if failures > 0 {
            self.suspect = None;
            // The silent rule counts from here: it got no requests meanwhile.
            self.tokens_at = now;
        }
        failures
    }

    /// A probe is over; the next one is due then.
    pub fn probe_is_over(&mut self, next: Time) {
        (self.health.asked, self.health.next) = (None, next);
    }

    /// It failed. Returns how many did in a row.
    pub fn probe_failed(&mut self) -> u32 {
        self.health.failures += 1;
        self.health.failures
    }
}

/// What it serves (`detect::corruption` decides).
impl Instance {
    /// An operator took it out, or let it in again.
    pub fn quarantine(&mut self, out: bool) {
        self.quarantined = out;
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
        self.corrupt_sources = sources;
    }

    /// Somebody else found that source corrupt, too.
    pub fn blames_no_more(&mut self, source: Incarnation) {
        self.corrupt_sources.remove(&source);
    }
}

/// Whose its slot is (`gang::context` draws the machine).
impl Instance {
    /// Whether an engine holds its slot; one without a linked process holds none, one whose link is
    /// broken is judged by its grace, and one that is condemned computes until it is killed.
    pub fn holds_slot(&self) -> bool {
        self.id.role == Role::Hybrid && self.was_attached()
    }

    /// It was told to generate.
    pub fn told_to_resume(&mut self, since: Time) {
        self.turn = Turn::Resuming { since };
    }

    /// It was told to leave its slot to its rank.
    pub fn told_to_pause(&mut self, since: Time) {
        self.turn = Turn::Pausing { since };
        // A probe would be sent away like any request; its answer is what it is judged by now.
        self.suspect = None;
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

    /// The daemon was away: it may have been told what is not on record, or not what is.
    pub fn forget_turn(&mut self) {
        self.turn = Turn::Unknown;
    }

    /// It is to end, and computes until it does, which is waited for until then.
    pub fn note_leaving(&mut self, until: Time) {
        if self.holds_slot() && self.turn != Turn::Paused {
            self.leaving = Some((self.incarnation, until));
        }
    }

    /// The life that was to end did, or is waited for no longer.
    pub fn has_left(&mut self) {
        self.leaving = None;
    }
}
