//! Links between the daemon and its processes: ordered, lost whole, opened again by the process.
use super::process::Order;
use super::{Happening, World};
use robust_shared::core::{Hello, Input, RoleEvent};
use robust_shared::ids::Incarnation;
use robust_shared::phase::Phase;
use robust_shared::time::Time;
use std::time::Duration;

impl World {
    /// Whether a process does anything at all.
    pub(super) fn works(&self, life: Incarnation) -> bool {
        self.procs.get(&life).is_some_and(|p| p.works())
    }

    /// Whether two processes reach each other.
    pub(super) fn in_touch(&self, a: Incarnation, b: Incarnation) -> bool {
        let at = |life: &Incarnation| self.procs.get(life).map_or(0, |p| p.machine);
        self.machines.together(at(&a), at(&b))
    }

    /// Whether all of them reach each other.
    pub(super) fn all_together(&self, all: &[Incarnation]) -> bool {
        all.windows(2).all(|two| self.in_touch(two[0], two[1]))
    }

    /// Whether what a process says to the leader, link or not, arrives.
    pub(super) fn is_heard(&self, life: Incarnation) -> bool {
        let at = self.procs.get(&life).map_or(0, |p| p.machine);
        let answers = !self.ha.are_there() || self.daemon.up && self.machines.linked(at);
        self.works(life) && self.machines.in_reach(at) && answers
    }

    /// A process says something over its link; in order, and lost with the link.
    pub(super) fn say(&mut self, from: Incarnation, input: Input) {
        let delay = self.timing.message.draw(&mut self.dice);
        let now = self.now;
        let Some(p) = self.procs.get_mut(&from).filter(|p| p.linked) else {
            return;
        };
        p.heard_at = p.heard_at.max(now + delay);
        let (link, wait) = (p.link, p.heard_at.since(now));
        if wait.is_zero() {
            return self.feed(input);
        }
        self.after(wait, Happening::Said(from, link, input));
    }

    pub(super) fn heard(&mut self, from: Incarnation, link: u64, input: Input) {
        if self
            .procs
            .get(&from)
            .is_some_and(|p| p.linked && p.link == link)
        {
            self.feed(input);
        }
    }

    /// The daemon says something over a link, in order; without one it is lost.
    pub(super) fn tell(&mut self, to: Incarnation, order: Order) {
        let delay = self.timing.message.draw(&mut self.dice);
        let (now, machines) = (self.now, &self.machines);
        let there = |p: &&mut super::Proc| p.linked && machines.linked(p.machine);
        if let Some(p) = self.procs.get_mut(&to).filter(there) {
            p.told_at = p.told_at.max(now + delay);
            let (link, wait) = (p.link, p.told_at.since(now));
            self.after(wait, Happening::Told(to, link, order));
        }
    }

    pub(super) fn told(&mut self, to: Incarnation, link: u64, order: Order) {
        let Some(p) = self.procs.get_mut(&to) else {
            return;
        };
        if !p.alive || p.link != link {
            return;
        }
        if p.halted() {
            return p.inbox.push_back(order);
        }
        let at = p.machine;
        self.check_order(at);
        self.obey(to, order);
    }

    pub(super) fn obey(&mut self, to: Incarnation, order: Order) {
        match order {
            Order::Pull(transfer) => self.begin_pull(to, transfer),
            Order::Dispatch(trajectory, work) => self.hold(to, trajectory, work),
            Order::Revoke(trajectory) => self.let_go(to, trajectory),
        }
    }

    /// Both ends find the link broken; what is under way on it is lost.
    pub(super) fn unlink(&mut self, life: Incarnation) -> bool {
        let (serial, now) = (self.number(), self.now);
        let Some(p) = self.procs.get_mut(&life).filter(|p| p.linked) else {
            return false;
        };
        (p.linked, p.linked_at, p.link) = (false, now, serial);
        p.inbox.clear();
        true
    }

    /// The link of a process breaks, and stays broken for a time.
    pub fn cut(&mut self, life: Incarnation, for_: Duration) {
        if !self.unlink(life) {
            return;
        }
        let until = self.now + for_;
        if let Some(p) = self.procs.get_mut(&life) {
            p.cut_until = until;
        }
        let noticed = self.timing.message.draw(&mut self.dice);
        self.after(noticed, Happening::LinkEnds(life));
        let relink = self.timing.relink.draw(&mut self.dice);
        self.after(for_ + relink, Happening::Link(life));
    }

    /// The daemon finds the end of a link, unless a newer one took its place.
    pub(super) fn link_ends(&mut self, incarnation: Incarnation) {
        if self.procs.get(&incarnation).is_some_and(|p| !p.linked) {
            self.feed(Input::Role(incarnation, RoleEvent::Detached));
        }
    }

    /// A process opens its link; a fenced one is refused and ends.
    pub(super) fn link(&mut self, life: Incarnation) {
        let (serial, now) = (self.number(), self.now);
        let Some(p) = self.procs.get_mut(&life) else {
            return;
        };
        if !self.machines.linked(p.machine) {
            // It tries again when its node has joined.
            return;
        }
        if !p.alive || p.linked || !p.start.links() || !self.daemon.up {
            return;
        }
        if p.halted() || self.daemon.writing || p.cut_until > now {
            let wait = p.cut_until.since(now).max(super::ms(5));
            return self.after(wait, Happening::Link(life));
        }
        if self.core.is_current(life).is_none() {
            return self.die(life);
        }
        let at = p.machine;
        self.note_linking(at, life);
        let Some(p) = self.procs.get_mut(&life) else {
            return;
        };
        (p.linked, p.linked_at, p.link) = (true, now, serial);
        (p.heard_at, p.told_at) = (Time(0), Time(0));
        let hello = Hello {
            version: p.version,
            step: p.step,
            leases: p.held.keys().copied().collect(),
            ..Hello::default()
        };
        let (phase, step) = (p.phase, p.step.unwrap_or_default());
        self.feed(Input::Role(life, RoleEvent::Attached { hello }));
        if phase != Phase::Init {
            self.say(
                life,
                Input::Role(life, RoleEvent::PhaseChanged { phase, step }),
            );
        }
    }
}
