//! Nodes and whom they follow: they join whoever welcomes them in no earlier term than the latest that they know, and leave
//! a leader that is silent (`daemon/src/node/link.rs`, `actor.rs`).
use super::super::{Happening, World, ms};
use super::Apart;
use robust_shared::ha::Bug;
use std::time::Duration;

/// A node leaves a leader that says nothing for so long.
const SILENCE: Duration = Duration::from_millis(1500);
/// Whom a node is linked to whose leader's machine is gone.
const NOBODY: usize = usize::MAX;

impl World {
    fn reaches(&self, at: usize, c: usize) -> bool {
        let node = u32::try_from(at).unwrap_or(u32::MAX);
        !self.apart(c, Apart::Nodes) && !self.apart(c, Apart::Node(node))
    }

    /// A node tries to join in a while.
    pub(super) fn try_join(&mut self, at: usize) {
        let relink = ms(20) + self.timing.relink.draw(&mut self.dice);
        if !std::mem::replace(&mut self.machines.all[at].tries, true) {
            self.after(relink, Happening::Join(at));
        }
    }

    /// A node tries all addresses, and begins with whoever answers first.
    pub(in super::super) fn join_some(&mut self, at: usize) {
        let Some(m) = self.machines.all.get_mut(at) else {
            return;
        };
        m.tries = false;
        if m.trouble.is_some() || m.linked || m.joining {
            return;
        }
        let deposed = self.ha.has(Bug::WelcomeDeposed);
        let welcomes = |c: &usize| {
            let k = &self.ha.all[*c];
            let leads = self.is_serving(*c) || deposed && k.led > 0;
            k.up && leads && self.now >= k.frozen_until && self.reaches(at, *c)
        };
        let all: Vec<_> = (0..self.ha.all.len()).filter(welcomes).collect();
        let one = usize::try_from(self.dice.below(all.len() as u64)).unwrap_or(0);
        let Some(c) = all.get(one).copied() else {
            return self.try_join(at);
        };
        let k = &self.ha.all[c];
        let epoch = k.term.as_ref().map_or(k.led, |term| term.epoch);
        let m = &mut self.machines.all[at];
        if epoch < m.epoch && !self.ha.has(Bug::JoinEarlierTerm) {
            return self.try_join(at);
        }
        (m.epoch, m.highest) = (epoch, m.highest.max(epoch));
        if std::mem::take(&mut m.was_parted) {
            m.well_at = self.now;
        }
        self.check_welcome(c, at);
        if !self.is_serving(c) {
            let stream = self.number();
            let m = &mut self.machines.all[at];
            (m.leader, m.linked, m.stream) = (c, true, stream);
            return;
        }
        self.sit(c);
        match self.daemon.idle() {
            true => {
                self.machines.all[at].leader = c;
                self.join_here(at);
            }
            false => self.try_join(at),
        }
        self.sit_back();
    }

    /// A leader is gone: its nodes notice, at once or by its silence.
    pub(super) fn leader_is_gone(&mut self, c: usize, silent: bool) {
        for at in self.followers(c) {
            match silent {
                // It is linked to nobody, and does not know yet.
                true => {
                    self.machines.all[at].leader = NOBODY;
                    self.falls_silent(at);
                }
                false => self.leaves_leader(at),
            }
        }
    }

    /// Nodes that are linked to it, or about to be.
    pub(super) fn followers(&self, c: usize) -> Vec<usize> {
        let follows = |at: &usize| {
            let m = &self.machines.all[*at];
            m.leader == c && (m.linked || m.joining)
        };
        (1..self.machines.all.len()).filter(follows).collect()
    }

    pub(super) fn falls_silent(&mut self, at: usize) {
        let stream = self.machines.all[at].stream;
        self.after(SILENCE, Happening::Silent(at, stream));
    }

    /// Nothing came on a node's stream for long, if it is still that one.
    pub(in super::super) fn silent(&mut self, at: usize, stream: u64) {
        let m = &self.machines.all[at];
        let awake = |k: &super::Controller| k.up && self.now >= k.frozen_until;
        let speaks = self.ha.all.get(m.leader).is_some_and(awake) && self.is_serving(m.leader);
        if (m.linked || m.joining) && m.stream == stream && !speaks {
            self.leaves_leader(at);
        }
    }

    fn leaves_leader(&mut self, at: usize) {
        self.drop_stream(at);
        self.machines.all[at].pending.clear();
        self.try_join(at);
    }

    /// Those that it does not reach any more leave it.
    pub(super) fn part_nodes(&mut self, c: usize) {
        for at in self.followers(c) {
            if !self.reaches(at, c) {
                self.leaves_leader(at);
                self.machines.all[at].was_parted = true;
            }
        }
    }
}
