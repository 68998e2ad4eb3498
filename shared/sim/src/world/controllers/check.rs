//! What must hold of several controllers, beside all that holds of one (`super::super::check`), which is looked at on the
//! stage: over what counts.
//!
//! | looked at | holds |
//! | --- | --- |
//! | the head moves | writer: by whoever has the place at that moment, from where the log stands |
//! | the place is taken | epoch: numbers of terms grow |
//! | a node obeys | epoch: no order of an earlier term than one that it joined |
//! | a node is welcomed | join: by one that leads, as far as it can know |
//! | outputs after a record leave | registered: their group counts |
//! | a turn is acknowledged | registered: its group counts; it is in the final log |
//! | anything leaves | fence: not long after the lease would be over by the leader's own clock |
//! | a controller begins to lead | takeover: its state, and its trajectories, are what the log says |
//! | the end | log: a disk that has nothing comes to what counts by what is in the store |
use super::super::World;
use super::log::{Group, Misread, Position, Stored, Way};
use robust_shared::core::Entries;
use robust_shared::ids::TrajectoryId;
use std::time::Duration;

/// Once faults have stopped one of them leads within this virtual time, and goes on doing so.
const ELECTED: Duration = Duration::from_secs(30);

impl World {
    /// The first that breaks counts, whoever is seated.
    pub(super) fn wrong(&mut self, invariant: &'static str, text: String) {
        self.ha.broken.get_or_insert((invariant, text));
    }

    pub(super) fn check_number(&mut self, created: u64, epoch: u64) {
        let before = self.ha.terms.range(..created).next_back();
        if let Some((_, before)) = before.filter(|(_, before)| **before >= epoch) {
            let text = format!("a term has the number {epoch}, the one before has {before}");
            self.wrong("epoch", text);
        }
    }

    /// A node does as it was told.
    pub(in super::super) fn check_order(&mut self, at: usize) {
        let Some(m) = self.machines.all.get(at) else {
            return;
        };
        if m.epoch < m.highest {
            let text = format!(
                "node {at} obeys a leader of term {}, and was joined to one of term {}",
                m.epoch, m.highest
            );
            self.wrong("epoch", text);
        }
    }

    pub(super) fn check_welcome(&mut self, c: usize, at: usize) {
        if !self.is_serving(c) {
            let text = format!("controller {c}, which does not lead, welcomes node {at}");
            self.wrong("join", text);
        }
        self.check_lease(c, "welcomes a node");
    }

    /// Something leaves the one that is seated.
    pub(in super::super) fn check_acts(&mut self) {
        let c = self.ha.seat;
        self.check_lease(c, "acts");
    }

    fn check_lease(&mut self, c: usize, does: &str) {
        let timing = self.ha.timing;
        let k = &self.ha.all[c];
        let Some(term) = &k.term else { return };
        // It looks at the clock at every sign, and one that stood still does so when it runs again.
        let last = (term.held + timing.fence()).max(k.thawed_at) + timing.sign * 3;
        if self.now > last {
            let since = self.now.since(term.held).as_millis();
            let text = format!("controller {c} {does}, {since} ms after its lease was lengthened");
            self.wrong("fence", text);
        }
    }

    /// Something that needs a group to count is done.
    pub(super) fn check_counts(&mut self, at: Position, done: bool, what: &str) {
        if done && !self.ha.registered.has(&at) {
            let text = format!(
                "group {} of term {} does not count, and {what}",
                at.number, at.epoch
            );
            self.wrong("registered", text);
        }
    }

    pub(super) fn note_acknowledged(&mut self, trajectory: TrajectoryId, turns: u32) {
        let known = self.ha.acknowledged.entry(trajectory).or_default();
        *known = (*known).max(turns);
    }

    /// The head moves.
    pub(super) fn check_writer(&mut self, c: usize, created: u64, group: Option<&Group>) {
        if !self.ha.etcd.is_place(created) {
            let leader = self.ha.etcd.read().leader.map(|place| place.who);
            let text =
                format!("controller {c} moves the head, and the place is that of {leader:?}");
            self.wrong("writer", text);
        }
        let stands = self.ha.registered.at();
        let after = group.map(|group| group.after);
        if after != stands {
            let text =
                format!("controller {c} goes on after {after:?}, the log stands at {stands:?}");
            self.wrong("writer", text);
        }
    }

    pub(super) fn check_takeover(&mut self, c: usize, entries: &Entries, stored: &Stored) {
        if self.ha.all[c].disk.is_as(&self.ha.registered) {
            return;
        }
        let (counted, of_log) = self.ha.registered.contents();
        if *entries != counted || *stored != of_log {
            let at = self.ha.registered.at().map_or(0, |at| at.number);
            let text = format!(
                "controller {c} leads with another state than the log's, which has {at} groups"
            );
            self.wrong("takeover", text);
        }
    }

    /// One of them leads, and the job goes on.
    pub(crate) fn check_elected(&mut self) {
        if !self.ha.are_there() {
            return;
        }
        let led = self.run_until(ELECTED, |w| w.outcome.is_some() || w.is_led());
        if !led {
            let text = format!("faults stopped {ELECTED:?} ago, and no controller leads");
            self.checker.broken(self.now, "liveness", &text);
        }
    }

    fn is_led(&self) -> bool {
        let place = self.ha.etcd.read().leader.map(|place| place.who);
        place == Some(self.ha.stage) && self.is_serving(self.ha.stage)
    }

    /// The log has all that was acknowledged, and can be read.
    pub(crate) fn check_log(&mut self) {
        let Some(tip) = self.ha.registered.at() else {
            return;
        };
        let (entries, stored) = self.ha.registered.contents();
        let read = match self.ha.objects.way(None, &tip, Misread::default()) {
            Way::Anew(replica) => Some(replica.contents()),
            _ => None,
        };
        let same = read.is_some_and(|(e, s)| e == entries && s == stored);
        let done = self.checker.committed.0;
        let open = |t: &TrajectoryId| t.batch > done;
        let acknowledged = self.ha.acknowledged.iter();
        let mut acknowledged = acknowledged.filter(|(t, _)| open(t));
        let lost = acknowledged.find(|(t, n)| stored.turns.get(*t) < Some(*n));
        let lost =
            lost.map(|(t, n)| format!("turn {n} of {t} was acknowledged, and is not in the log"));
        if let Some(text) = lost {
            self.checker.broken(self.now, "I-2", &text);
        }
        if !same {
            let text = "what the store has is not what was registered";
            self.checker.broken(self.now, "log", text);
        }
    }
}
