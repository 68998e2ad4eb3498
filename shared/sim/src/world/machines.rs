//! The other nodes: daemons that start what the leader asks, beat every second, and come and go.
//!
//! ```text
//!            Join                         cut, dead, left, given up by the core
//!  away ────────────► linked: orders and words travel ──────────────────────────► away
//!    ▲                                                                             │
//!    └──── its trouble is over, or it finds its stream ended: it joins anew ◄──────┘
//! ```
//! The leader's own node is always in reach. What travels between the two: `streams`.
use super::{Happening, World, ms};
use robust_shared::core::{Input, Labels, NodeEvent, NodeSpec, SlotRef};
use robust_shared::ids::{Generation, Incarnation, InstanceId, NodeId};
use robust_shared::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A node's daemon says so often that it is alive.
pub(super) const BEAT: Duration = Duration::from_secs(1);

/// What is wrong with a node; one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Its power is gone, with all its processes.
    Dead,
    /// It said goodbye.
    Left,
    /// Nothing it says is heard, and it hears nothing.
    Cut,
    /// It is stopped with all its processes.
    Frozen,
}

/// A process to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpawnOrder {
    pub id: InstanceId,
    pub life: Incarnation,
    pub generation: Generation,
    pub slot: SlotRef,
}

/// What the leader tells a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeOrder {
    Spawn(SpawnOrder),
    Kill(Incarnation),
    Stop(Incarnation),
}

/// One node and its daemon.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub spec: NodeSpec,
    pub trouble: Option<Trouble>,
    /// Its stream to the leader stands.
    pub linked: bool,
    /// To which controller it does, where there are several.
    pub leader: usize,
    /// The latest term that it joined, as it knows it, and the latest that there was.
    pub epoch: u64,
    pub highest: u64,
    /// It is about to try to join.
    pub tries: bool,
    /// Since it was linked last it was cut off from its leader, who heard nothing of it.
    pub was_parted: bool,
    pub joining: bool,
    pub stream: u64,
    /// When the last order, and the last word, on the stream arrives: they stay in order.
    pub arrives: (Time, Time),
    /// When its last trouble was over; 0: it had none.
    pub well_at: Time,
    /// Told to kill, on this stream.
    pub ending: BTreeSet<Incarnation>,
    /// What it could not say yet.
    pub unsaid: Vec<Input>,
    /// What it could not hear yet.
    pub unheard: Vec<NodeOrder>,
    /// The leader's: ordered, and no word of them yet.
    pub pending: BTreeMap<Incarnation, SpawnOrder>,
}

impl Machine {
    fn new(spec: NodeSpec) -> Self {
        Self {
            spec,
            trouble: None,
            linked: false,
            leader: 0,
            epoch: 0,
            highest: 0,
            tries: false,
            was_parted: false,
            joining: false,
            stream: 0,
            arrives: (Time(0), Time(0)),
            well_at: Time(0),
            ending: BTreeSet::new(),
            unsaid: Vec::new(),
            unheard: Vec::new(),
            pending: BTreeMap::new(),
        }
    }
}

/// All nodes, the leader's own first.
#[derive(Clone, Debug, Default)]
pub(super) struct Machines {
    pub all: Vec<Machine>,
    /// They join, beat and come back by themselves; else whoever drives the world speaks for them.
    pub live: bool,
    /// The controller for which this is asked.
    pub seat: usize,
}

impl Machines {
    pub fn new(specs: Vec<NodeSpec>) -> Self {
        let all = specs.into_iter().map(Machine::new).collect();
        Self {
            all,
            live: false,
            seat: 0,
        }
    }

    /// Whether a node and the others hear each other.
    pub fn in_reach(&self, at: usize) -> bool {
        let trouble = self.all.get(at).and_then(|m| m.trouble);
        at == 0 || !self.live || matches!(trouble, None | Some(Trouble::Frozen))
    }

    /// Whether the leader and the node's daemon are linked.
    pub fn linked(&self, at: usize) -> bool {
        at == 0 || !self.live || self.leader_of(at) == Some(self.seat)
    }

    /// Whom a node's daemon is linked to.
    pub fn leader_of(&self, at: usize) -> Option<usize> {
        let m = self.all.get(at).filter(|m| m.linked);
        m.map(|m| m.leader)
    }

    /// Whether the node is linked to the leader, or about to be.
    pub fn hears(&self, at: usize) -> bool {
        let joins = |m: &Machine| m.joining && m.leader == self.seat;
        self.linked(at) || self.all.get(at).is_some_and(joins)
    }

    /// What was ordered and not heard of is another controller's now, which orders it again.
    pub fn forget_orders(&mut self) {
        self.all.iter_mut().for_each(|m| m.pending.clear());
    }

    /// Where a process is to be started that no node said a word of.
    pub fn waits(&self, life: Incarnation) -> Option<usize> {
        self.all.iter().position(|m| m.pending.contains_key(&life))
    }

    /// Whether a process that is started now is to be killed next.
    pub fn ends(&self, at: usize, life: Incarnation) -> bool {
        self.all.get(at).is_some_and(|m| m.ending.contains(&life))
    }

    /// Whether what is on two nodes can talk.
    pub fn together(&self, a: usize, b: usize) -> bool {
        a == b || (self.in_reach(a) && self.in_reach(b))
    }
}

impl World {
    /// From now on nodes join, beat, fail and come back by themselves.
    pub fn run_nodes(&mut self) {
        self.machines.live = true;
        for at in 1..self.machines.all.len() {
            let joins = self.dice.up_to(ms(400));
            self.after(joins, Happening::Join(at));
            self.after(BEAT, Happening::Beat(at));
        }
    }

    /// A node nobody knew of.
    pub fn new_node(&mut self) {
        let number = self.machines.all.len();
        if !self.machines.live {
            return;
        }
        let mut spec = NodeSpec {
            name: format!("late-{number}"),
            labels: Labels::default(),
            ..NodeSpec::default()
        };
        let pools = self.config.first_nodes().into_iter().flat_map(|n| n.pools);
        spec.pools = pools.map(|(pool, _)| (pool, 1)).collect();
        if let Some(first) = self.machines.all.first() {
            spec.labels.clone_from(&first.spec.labels);
        }
        self.machines.all.push(Machine::new(spec));
        self.after(Duration::ZERO, Happening::Join(number));
        self.after(BEAT, Happening::Beat(number));
    }

    pub(super) fn machine_of(&self, node: NodeId) -> usize {
        let name = self.core.node(node).map(|n| n.name.as_str());
        let known = |m: &Machine| Some(m.spec.name.as_str()) == name;
        self.machines.all.iter().position(known).unwrap_or(0)
    }

    pub(super) fn node_of(&self, at: usize) -> Option<NodeId> {
        self.core.node_id(&self.machines.all.get(at)?.spec.name)
    }

    /// Something befalls a node that is well, for a time.
    fn trouble(&mut self, at: usize, trouble: Trouble, for_: Duration) -> bool {
        let well = self
            .machines
            .all
            .get(at)
            .is_some_and(|m| m.trouble.is_none());
        if at == 0 || !well {
            return false;
        }
        self.machines.all[at].trouble = Some(trouble);
        self.after(for_, Happening::NodeBack(at));
        true
    }

    /// A node dies with all its processes, and comes up again later.
    pub fn kill_node(&mut self, at: usize, for_: Duration) {
        if self.trouble(at, Trouble::Dead, for_) {
            self.empty_node(at);
        }
    }

    /// A node leaves the job with all its processes, and joins again later. Every other one says a while before that it
    /// will.
    pub fn leave_node(&mut self, at: usize, for_: Duration) {
        let well = |m: &Machine| m.trouble.is_none() && m.linked;
        let well = at > 0 && self.machines.all.get(at).is_some_and(well);
        let node = self.node_of(at).filter(|_| well);
        if let Some(node) = node.filter(|_| for_.as_millis() % 2 == 1) {
            let reason = "maintenance".to_owned();
            self.feed(Input::Node(node, NodeEvent::Leaving { reason }));
            return self.after(for_, Happening::NodeLeaves(at, for_));
        }
        self.leave_now(at, for_);
    }

    /// One that is stopped goes on for that, and says first what it could not say.
    pub(super) fn leave_now(&mut self, at: usize, for_: Duration) {
        let frozen = |m: &Machine| m.trouble == Some(Trouble::Frozen) && m.linked;
        if self.machines.all.get(at).is_some_and(frozen) {
            let m = &mut self.machines.all[at];
            m.trouble = None;
            let (stream, unsaid) = (m.stream, std::mem::take(&mut m.unsaid));
            for word in unsaid {
                self.node_said(at, stream, word);
            }
        }
        let node = self.node_of(at).filter(|_| self.machines.linked(at));
        if !self.trouble(at, Trouble::Left, for_) {
            return;
        }
        self.empty_node(at);
        if let Some(node) = node {
            let reason = "maintenance".to_owned();
            self.feed(Input::Node(node, NodeEvent::Left { reason }));
        }
    }

    /// A node is stopped with all its processes, and goes on later.
    pub fn freeze_node(&mut self, at: usize, for_: Duration) {
        if self.trouble(at, Trouble::Frozen, for_) {
            for p in self.procs.values_mut().filter(|p| p.machine == at) {
                p.frozen = true;
            }
        }
    }

    /// A node is cut off from all others for a time.
    pub fn cut_node(&mut self, at: usize, for_: Duration) {
        if self.trouble(at, Trouble::Cut, for_) {
            self.drop_stream(at);
        }
    }

    pub(super) fn lives_on(&self, at: usize) -> Vec<Incarnation> {
        let there = self
            .procs
            .iter()
            .filter(|(_, p)| p.machine == at && p.alive);
        there.map(|(life, _)| *life).collect()
    }

    fn empty_node(&mut self, at: usize) {
        self.drop_stream(at);
        for life in self.lives_on(at) {
            self.vanish(life);
        }
        // It remembers nothing when it is back: what it is told to start then, it starts.
        let again: Vec<_> = self.machines.all[at].pending.keys().copied().collect();
        again.iter().for_each(|life| drop(self.procs.remove(life)));
        let m = &mut self.machines.all[at];
        m.unsaid.clear();
        m.unheard.clear();
    }

    /// The stream of a node ends, and with it the links that go through it.
    pub(super) fn drop_stream(&mut self, at: usize) {
        let stream = self.number();
        let Some(m) = self.machines.all.get_mut(at) else {
            return;
        };
        (m.linked, m.joining, m.stream) = (false, false, stream);
        m.unheard.clear();
        m.ending.clear();
        for p in self.procs.values_mut().filter(|p| p.machine == at) {
            p.over = false;
        }
        for life in self.lives_on(at) {
            if self.unlink(life) {
                let noticed = self.timing.message.draw(&mut self.dice);
                self.after(noticed, Happening::LinkEnds(life));
            }
        }
    }

    /// The leader is gone: so are all streams, and what it had ordered.
    pub(super) fn drop_streams(&mut self) {
        for m in self.machines.all.iter_mut().skip(1) {
            (m.linked, m.joining) = (false, false);
            m.unheard.clear();
            m.ending.clear();
            m.pending.clear();
        }
        for p in self.procs.values_mut().filter(|p| p.machine > 0) {
            p.over = false;
        }
    }

    /// The leader is back: nodes find it when they try the next time.
    pub(super) fn find_leader(&mut self) {
        if !self.machines.live {
            return;
        }
        for at in 1..self.machines.all.len() {
            let relink = self.timing.relink.draw(&mut self.dice);
            self.after(relink, Happening::Join(at));
        }
    }

    /// A node's trouble is over.
    pub(super) fn node_back(&mut self, at: usize) {
        let now = self.now;
        let Some(m) = self.machines.all.get_mut(at) else {
            return;
        };
        let Some(trouble) = m.trouble.take() else {
            return;
        };
        m.well_at = now;
        if trouble == Trouble::Frozen {
            self.thaw(at);
        }
        if !self.machines.linked(at) {
            let relink = self.timing.relink.draw(&mut self.dice);
            self.after(relink, Happening::Join(at));
        }
    }

    fn thaw(&mut self, at: usize) {
        for life in self.lives_on(at) {
            if let Some(p) = self.procs.get_mut(&life) {
                p.frozen = false;
            }
            self.read_inbox(life);
        }
        let m = &mut self.machines.all[at];
        let (orders, words) = (
            std::mem::take(&mut m.unheard),
            std::mem::take(&mut m.unsaid),
        );
        orders.into_iter().for_each(|o| self.node_obeys(at, o));
        words.into_iter().for_each(|w| self.node_says(at, w));
    }

    /// All nodes are well again.
    pub(super) fn heal_nodes(&mut self) {
        (1..self.machines.all.len()).for_each(|at| self.node_back(at));
    }
}
