//! What befalls controllers, etcd and the object store.
use super::super::{Happening, World, ms};
use super::{Event, Replica};
use robust_shared::core::{Input, STALL};
use robust_shared::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Which controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// The one that leads, or led last.
    Leader,
    /// One that goes on as if it led, while another one does; the leader where there is none.
    Former,
    /// By its number.
    Number(u32),
}

/// What a controller is cut off from, which may be one way only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Apart {
    /// What it asks does not reach etcd.
    Requests,
    /// What etcd answers does not reach it.
    Answers,
    /// The object store.
    Store,
    /// All nodes.
    Nodes,
    /// One of them.
    Node(u32),
}

impl World {
    fn which(&self, which: Which) -> usize {
        match which {
            Which::Leader => {
                let place = self.ha.etcd.read().leader.map(|place| place.who);
                place.unwrap_or(self.ha.stage)
            }
            Which::Former => {
                let leads = self.which(Which::Leader);
                let mut all = 0..self.ha.all.len();
                let former = all.find(|c| *c != leads && self.ha.all[*c].term.is_some());
                former.unwrap_or(leads)
            }
            Which::Number(c) => c as usize % self.ha.all.len().max(1),
        }
    }

    /// A controller ends with its process, or with its machine, and is back after a time, with its disk or without.
    pub fn crash_controller(&mut self, which: Which, back: Duration, wiped: bool) {
        if !self.ha.are_there() {
            return;
        }
        let c = self.which(which);
        let up = self.ha.all[c].up;
        if up {
            let silent = self.dice.chance(500);
            self.controller_ends(c, silent);
            let life = self.ha.all[c].life;
            self.after(back, Happening::Controller(c, life, Event::Up));
        }
        if wiped {
            self.ha.all[c].disk = Replica::default();
        }
    }

    /// The one that is seated ends with its process.
    pub(in super::super) fn crash_seated(&mut self) {
        let c = self.ha.seat;
        if self.ha.all[c].up && self.daemon.up {
            self.controller_ends(c, false);
            let (life, back) = (self.ha.all[c].life, ms(100) + self.dice.up_to(ms(3000)));
            self.after(back, Happening::Controller(c, life, Event::Up));
        }
    }

    /// A controller is told to end, gives its place up first, and is started again.
    pub fn hand_over(&mut self, which: Which) {
        if !self.ha.are_there() {
            return;
        }
        let c = self.which(which);
        let lease = self.ha.all[c].term.as_ref().map(|term| term.lease);
        if let Some(lease) = lease {
            self.send_to_etcd(c, 0, super::Ask::Revoke { lease });
            self.begins_anew(c);
        }
    }

    /// A controller stands still for a time, and then goes on as if nothing were.
    pub fn freeze_controller(&mut self, which: Which, for_: Duration) {
        if !self.ha.are_there() {
            return;
        }
        let c = self.which(which);
        let (now, until) = (self.now, self.now + for_);
        let k = &mut self.ha.all[c];
        if !k.up || now < k.frozen_until {
            return;
        }
        k.frozen_until = until;
        let life = k.life;
        self.after(for_, Happening::Controller(c, life, Event::Thaw));
        if !self.is_serving(c) {
            return;
        }
        self.sit(c);
        let from = self.heard_until();
        self.daemon.halt((from, until));
        if for_ > STALL {
            self.daemon.hear_first(Input::StoodStill);
        }
        self.daemon.writing = true;
        self.sit_back();
        for at in self.followers(c) {
            self.falls_silent(at);
        }
    }

    /// It runs again: its parts go on in any order. Whoever decides looks at the clock first.
    pub(super) fn thaws(&mut self, c: usize) {
        let k = &mut self.ha.all[c];
        k.thawed_at = self.now;
        let (life, waits) = (k.life, std::mem::take(&mut k.waits));
        let first = self.dice.chance(500);
        if first {
            self.runs_again(c);
        }
        for event in waits {
            if matches!(event, Event::Back(..) | Event::Again(_)) {
                self.fences_itself(c);
            }
            self.controller(c, life, event);
        }
        if !first && self.ha.all[c].life == life {
            self.runs_again(c);
        }
    }

    /// A leader whose place may be another's by now decides nothing more.
    fn fences_itself(&mut self, c: usize) {
        let fence = self.ha.timing.fence();
        let over = |term: &super::Term| self.now >= term.held + fence;
        if self.is_serving(c) && self.ha.all[c].term.as_ref().is_some_and(over) {
            self.begins_anew(c);
        }
    }

    fn runs_again(&mut self, c: usize) {
        self.fences_itself(c);
        let writes = |term: &super::Term| term.is_writing();
        let writes = self.ha.all[c].term.as_ref().is_some_and(writes);
        if self.is_serving(c) && !writes {
            self.sit(c);
            self.hear_what_waited();
            self.sit_back();
        }
    }

    /// A controller is cut off for a time.
    pub fn part_controller(&mut self, which: Which, from: &[Apart], for_: Duration) {
        if !self.ha.are_there() {
            return;
        }
        let c = self.which(which);
        let serial = self.number();
        let k = &mut self.ha.all[c];
        (k.apart, k.apart_serial) = (from.iter().copied().collect(), serial);
        self.part_nodes(c);
        self.after(for_, Happening::Together(c, serial));
    }

    /// What cut it off is over, unless it is cut off otherwise meanwhile.
    pub(in super::super) fn comes_together(&mut self, c: usize, serial: u64) {
        let k = &mut self.ha.all[c];
        if k.apart_serial == serial {
            k.apart = BTreeSet::new();
        }
    }

    /// etcd has no majority for a time.
    pub fn lose_quorum(&mut self, for_: Duration) {
        let until = self.now + for_;
        self.ha.quorum_at = self.ha.quorum_at.max(until);
        // It chooses its own leader then, and all leases begin anew.
        self.after(for_, Happening::Quorum);
    }

    pub(in super::super) fn quorum(&mut self) {
        if self.now >= self.ha.quorum_at {
            self.ha.etcd.lengthen(self.now);
        }
    }

    /// The object store cannot be reached for a time.
    pub fn lose_store(&mut self, for_: Duration) {
        self.ha.store_at = self.ha.store_at.max(self.now + for_);
    }

    /// All controllers are well again, and so are etcd and the store.
    pub(in super::super) fn heal_controllers(&mut self) {
        (self.ha.quorum_at, self.ha.store_at) = (Time(0), Time(0));
        self.ha.late_per_mille = 0;
        for c in 0..self.ha.all.len() {
            let (now, number) = (self.now, self.number());
            let k = &mut self.ha.all[c];
            (k.apart, k.apart_serial) = (BTreeSet::new(), number);
            let (life, frozen) = (k.life, now < k.frozen_until);
            k.frozen_until = k.frozen_until.min(now);
            if frozen {
                self.thaws(c);
            }
            if !self.ha.all[c].up {
                // A second start of the same life changes nothing.
                self.after(ms(50), Happening::Controller(c, life, Event::Up));
            }
        }
    }
}
