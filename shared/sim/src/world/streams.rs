//! What the leader and the daemons of other nodes tell each other: in order, late, lost with the
//! stream.
//!
//! Orders to a node out of reach are lost, but for processes to start, which are ordered again when it
//! joins. What ended there meanwhile is told then.
use super::machines::{BEAT, Machine, NodeOrder, SpawnOrder, Trouble};
use super::{Happening, World, ms};
use robust_shared::core::{Exit, Input, NodeEvent, NodeState, RoleEvent};
use robust_shared::ids::Incarnation;

impl World {
    /// Whether the controller that is there hears this at all: of nodes that are linked to it, where there are several.
    pub(super) fn comes_here(&self, input: &Input) -> bool {
        if !self.ha.are_there() {
            return true;
        }
        match input {
            // It read that in its own store.
            Input::Role(_, RoleEvent::TrajectoryFinished { .. }) => true,
            // The end of a link that it had.
            Input::Role(life, RoleEvent::Detached) => {
                let at = self.procs.get(life).map(|p| p.machine);
                let m = at.and_then(|at| self.machines.all.get(at));
                m.is_some_and(|m| m.leader == self.machines.seat)
            }
            Input::Role(life, _) => {
                let p = self.procs.get(life);
                p.is_none_or(|p| self.machines.hears(p.machine))
            }
            Input::Node(node, _) => self.machines.hears(self.machine_of(*node)),
            _ => true,
        }
    }

    pub(super) fn beat(&mut self, at: usize) {
        self.after(BEAT, Happening::Beat(at));
        let lost = self.timing.duplicate_per_mille / 4;
        if let Some(node) = self.node_of(at)
            && !self.dice.chance(lost)
        {
            let takes = self.timing.message.draw(&mut self.dice);
            let stream = self.machines.all[at].stream;
            if self.machines.all[at].trouble.is_none() && self.machines.linked(at) {
                let beat = Input::Node(node, NodeEvent::Beat);
                self.after(takes, Happening::NodeSaid(at, stream, beat));
            }
        }
    }

    /// What a node's daemon has to say travels, waits, or is lost.
    pub(super) fn node_says(&mut self, at: usize, input: Input) {
        if at == 0 || !self.machines.live {
            return self.feed(input);
        }
        let Some(m) = self.machines.all.get_mut(at) else {
            return;
        };
        let ended = matches!(input, Input::Role(_, RoleEvent::Exited { .. }));
        match m.trouble {
            Some(Trouble::Dead | Trouble::Left) => {}
            None if m.linked => {
                let takes = self.timing.message.draw(&mut self.dice);
                m.arrives.1 = m.arrives.1.max(self.now + takes);
                let (stream, takes) = (m.stream, m.arrives.1.since(self.now));
                self.after(takes, Happening::NodeSaid(at, stream, input));
            }
            Some(Trouble::Frozen) => m.unsaid.push(input),
            _ if ended => m.unsaid.push(input),
            _ => {}
        }
    }

    pub(super) fn node_said(&mut self, at: usize, stream: u64, input: Input) {
        let Some(m) = self.machines.all.get_mut(at) else {
            return;
        };
        if !m.linked || m.stream != stream {
            if matches!(input, Input::Role(_, RoleEvent::Exited { .. })) {
                m.unsaid.push(input);
            }
            return;
        }
        match &input {
            Input::Role(life, RoleEvent::Spawned { .. }) if m.pending.remove(life).is_none() => {
                // Its link said so already, or it was given up since.
            }
            Input::Role(life, RoleEvent::SpawnFailed { .. }) => {
                m.pending.remove(life);
                self.feed(input);
            }
            _ => self.feed(input),
        }
    }

    /// A process that links is there, whether its node's word of it came or was lost: it is not to be
    /// started again when that node joins anew.
    pub(super) fn note_linking(&mut self, at: usize, life: Incarnation) {
        let machine = self.machines.all.get_mut(at);
        if machine.is_some_and(|m| m.pending.remove(&life).is_some()) {
            let pid = super::daemon::pid_of(life);
            self.feed(Input::Role(life, RoleEvent::Spawned { pid }));
        }
    }

    /// The leader orders something of a node.
    pub(super) fn order(&mut self, at: usize, order: NodeOrder) {
        if at == 0 || !self.machines.live {
            return self.node_obeys(at, order);
        }
        let Some(m) = self.machines.all.get_mut(at) else {
            return;
        };
        let linked = m.linked && m.leader == self.machines.seat;
        match &order {
            NodeOrder::Spawn(spawn) => {
                m.pending.insert(spawn.life, spawn.clone());
            }
            NodeOrder::Kill(life) => {
                m.pending.remove(life);
                if linked {
                    m.ending.insert(*life);
                }
                if let Some(p) = self.procs.get_mut(life).filter(|_| linked) {
                    p.over = true;
                }
            }
            NodeOrder::Stop(_) => {}
        }
        self.send_order(at, order);
    }

    fn send_order(&mut self, at: usize, order: NodeOrder) {
        let seat = self.machines.seat;
        let m = &mut self.machines.all[at];
        if m.linked && m.leader == seat {
            let takes = self.timing.message.draw(&mut self.dice);
            m.arrives.0 = m.arrives.0.max(self.now + takes);
            let (stream, takes) = (m.stream, m.arrives.0.since(self.now));
            self.after(takes, Happening::Ordered(at, stream, order));
        }
    }

    pub(super) fn ordered(&mut self, at: usize, stream: u64, order: NodeOrder) {
        let Some(m) = self.machines.all.get_mut(at) else {
            return;
        };
        match m.trouble {
            _ if !m.linked || m.stream != stream => {}
            Some(Trouble::Frozen) => m.unheard.push(order),
            Some(_) => {}
            None => {
                self.check_order(at);
                self.node_obeys(at, order);
            }
        }
    }

    pub(super) fn node_obeys(&mut self, at: usize, order: NodeOrder) {
        match order {
            NodeOrder::Spawn(order) if self.procs.contains_key(&order.life) => {}
            NodeOrder::Spawn(order) => self.spawn_process(at, order),
            NodeOrder::Kill(life) => self.die(life),
            NodeOrder::Stop(life) => {
                if let Some(p) = self.procs.get_mut(&life) {
                    p.stopped = true;
                }
            }
        }
    }

    /// A node joins, or comes back: it says what ended and what runs there.
    pub(super) fn join(&mut self, at: usize) {
        let Some(m) = self.machines.all.get(at) else {
            return;
        };
        if m.trouble.is_some() || m.linked || m.joining || !self.daemon.up {
            return;
        }
        if !self.daemon.idle() {
            return self.after(ms(5), Happening::Join(at));
        }
        self.join_here(at);
    }

    /// It joins the one that is there.
    pub(super) fn join_here(&mut self, at: usize) {
        let m = &mut self.machines.all[at];
        m.joining = true;
        let (node, ended) = (m.spec.clone(), std::mem::take(&mut m.unsaid));
        let mut running = self.lives_on(at);
        let pending: Vec<_> = self.machines.all[at].pending.keys().copied().collect();
        running.extend(pending.iter().filter(|l| !self.procs.contains_key(l)));
        let known = self.node_of(at);
        let expected = self.core.view(self.now).instances;
        // Whoever joins is alive; what follows must not find it overdue.
        if let Some(node) = known {
            self.feed(Input::Node(node, NodeEvent::Beat));
        }
        for input in ended {
            if let Input::Role(incarnation, RoleEvent::Exited { .. }) = &input {
                self.machines.all[at].pending.remove(incarnation);
            }
            self.feed(input);
        }
        for i in expected {
            let (there, incarnation) = (i.slot.map(|s| s.node), i.incarnation);
            if known.is_some()
                && there == known
                && incarnation.0 > 0
                && !running.contains(&incarnation)
            {
                let (at, exit, detail) = (None, Exit::Gone, String::new());
                self.feed(Input::Role(
                    incarnation,
                    RoleEvent::Exited { at, exit, detail },
                ));
            }
        }
        self.feed(Input::NodeJoined { node, running });
    }

    /// The controller heard that a node joined.
    pub(super) fn joined(&mut self, name: &str) {
        let known = |m: &Machine| m.spec.name == name;
        let Some(at) = self.machines.all.iter().position(known) else {
            return;
        };
        let stream = self.number();
        let m = &mut self.machines.all[at];
        if !self.machines.live || !m.joining {
            return;
        }
        (m.joining, m.linked, m.stream) = (false, true, stream);
        for order in m.pending.clone().into_values() {
            self.send_order(at, NodeOrder::Spawn(order));
        }
        for life in self.lives_on(at) {
            let relink = self.timing.relink.draw(&mut self.dice);
            self.after(relink, Happening::Link(life));
        }
    }

    /// A node that the controller gave up has to join anew.
    pub(super) fn drop_given_up(&mut self) {
        if !self.machines.live {
            return;
        }
        for at in 1..self.machines.all.len() {
            if !self.machines.linked(at) {
                continue;
            }
            let node = self.node_of(at);
            if node.is_some_and(|node| self.core.node_state(node) != Some(NodeState::Here)) {
                self.drop_stream(at);
                let core = &self.core;
                let current =
                    |life: &Incarnation, _: &mut SpawnOrder| core.is_current(*life).is_some();
                self.machines.all[at].pending.retain(current);
                if self.machines.all[at].trouble.is_none() {
                    let relink = self.timing.relink.draw(&mut self.dice);
                    self.after(relink, Happening::Join(at));
                }
            }
        }
    }
}
