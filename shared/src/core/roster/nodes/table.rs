//! The table of nodes: which are there, and which of their slots can be used.
use super::faults::{Faults, NodeFault};
use super::spec::{NodeSpec, SlotRef};
use crate::changed::{Layered, Layers};
use crate::ids::{IncidentId, NodeId};
use crate::nearest::instead_of;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Where a node is in its life with the job.
///
/// ```text
///            NodeJoined               no beat for the rule's window
///  awaited ────────────► here ───────────────────────────────────────► lost
///                         ▲  │ NodeLeft                                  │
///                         │  └──────────► left                           │
///                         └────────────────┴──── NodeJoined ─────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// The job file names it, and it has not joined yet.
    Awaited,
    /// It is part of the job.
    Here,
    /// Its heartbeat stopped; it may come back.
    Lost,
    /// It said goodbye; it may come back.
    Left,
}

crate::wire::named! {
    NodeState:
    /// In one word.
    word {
        Awaited = "awaited",
        Here = "here",
        Lost = "lost",
        Left = "left",
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// What it has.
    pub spec: NodeSpec,
    /// Whether it is there.
    pub state: NodeState,
    /// Nothing new is started on it.
    pub cordoned: bool,
    /// When it was heard of last.
    pub beat_at: Time,
    /// Its slots that are gone until they are restored: pool and number.
    pub lost: BTreeSet<(String, u32)>,
    /// Its slots that are about to fail: nobody new comes to them, until they are restored.
    #[serde(default)]
    pub draining: BTreeSet<(String, u32)>,
    /// It said that it will leave: all its slots are as those, until it joins again.
    #[serde(default)]
    pub leaving: bool,
    /// Faults of its own.
    #[serde(default, skip_serializing_if = "Faults::is_empty")]
    pub faults: Faults,
}

impl Node {
    fn new(spec: NodeSpec, state: NodeState) -> Self {
        Self {
            spec,
            state,
            cordoned: false,
            beat_at: Time(0),
            lost: BTreeSet::new(),
            draining: BTreeSet::new(),
            leaving: false,
            faults: Faults::default(),
        }
    }

    /// Its slots that whoever is there leaves: pool and number.
    pub fn left_slots(&self) -> BTreeSet<(String, u32)> {
        let all = |(pool, slots): (&String, &u32)| {
            let pool = pool.clone();
            (0..*slots).map(move |index| (pool.clone(), index))
        };
        match self.leaving {
            true => self.spec.pools.iter().flat_map(all).collect(),
            false => self.draining.clone(),
        }
    }

    /// Whether something may be started on it.
    pub fn open(&self) -> bool {
        self.state == NodeState::Here && !self.cordoned && !self.leaving
    }

    /// Whether it has such a slot.
    pub fn has(&self, pool: &str, index: u32) -> bool {
        self.spec
            .pools
            .get(pool)
            .is_some_and(|slots| index < *slots)
    }

    /// Its slots in words: `train 2, rollout 1`.
    pub fn slots_in_words(&self) -> String {
        let each = |(pool, slots): (&String, &u32)| format!("{pool} {slots}");
        self.spec
            .pools
            .iter()
            .map(each)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// All nodes the job ever had; the first is the leader's own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeTable {
    nodes: Vec<Node>,
    /// Those of which something changed that matters to where slots are free.
    #[serde(skip)]
    touched: Vec<NodeId>,
    /// Those to be written down again; when they were heard of apart from the rest.
    #[serde(skip)]
    changed: Layered<NodeId>,
}

/// Equal are those that remember the same, whatever was derived from it so far.
impl PartialEq for NodeTable {
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes
    }
}

/// In the order of their numbers.
impl FromIterator<Node> for NodeTable {
    fn from_iter<I: IntoIterator<Item = Node>>(all: I) -> Self {
        let nodes = all.into_iter().collect();
        Self {
            nodes,
            ..Self::default()
        }
        .all_changed()
    }
}

impl NodeTable {
    /// The nodes of a job that begins: the leader's own is there.
    pub fn new(specs: Vec<NodeSpec>) -> Self {
        let node = |(at, spec)| match at {
            0 => Node::new(spec, NodeState::Here),
            _ => Node::new(spec, NodeState::Awaited),
        };
        specs.into_iter().enumerate().map(node).collect()
    }

    /// The same table, of which nothing is derived yet.
    pub fn all_changed(mut self) -> Self {
        self.touched = self.ids().collect();
        self
    }

    /// A slot, with its node's name.
    pub fn named(&self, slot: &SlotRef) -> String {
        let node = self.get(slot.node).map_or("?", |n| n.spec.name.as_str());
        format!("slot {} of pool `{}` on {node}", slot.index, slot.pool)
    }

    /// Every node's number.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        let count = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        (0..count).map(NodeId)
    }

    /// Whether there is none: a state from before there were nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All nodes, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    /// A node.
    pub fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)
    }

    /// A node, to be changed.
    pub fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        let node = self.nodes.get_mut(id.0 as usize);
        if node.is_some() {
            self.touched.push(id);
            self.changed.note(id);
        }
        node
    }

    /// A node was heard of; nothing else changes.
    pub fn beat(&mut self, id: NodeId, now: Time) {
        if let Some(node) = self.nodes.get_mut(id.0 as usize) {
            node.beat_at = now;
            self.changed.note_over(id);
        }
    }

    /// Notes a fault of a node's own. One whose cause was met on another node is the program's, and so are
    /// those. Returns whether it counts.
    pub fn count_fault(&mut self, id: NodeId, mut fault: NodeFault) -> bool {
        let Some(node) = self.nodes.get(id.0 as usize) else {
            return false;
        };
        if !node.faults.is_news(fault.at) || node.faults.is_drill(fault.at) {
            return false;
        }
        if let Some(cause) = fault.cause {
            for (other, node) in (0..).map(NodeId).zip(&mut self.nodes) {
                if other != id && node.faults.has(cause) {
                    node.faults.is_common(cause);
                    self.changed.note(other);
                    fault.common = true;
                }
            }
        }
        let counts = !fault.common;
        if let Some(node) = self.nodes.get_mut(id.0 as usize) {
            if let Some(cause) = fault.cause.filter(|_| fault.common) {
                node.faults.is_common(cause);
            }
            node.faults.add(fault);
            self.changed.note(id);
        }
        counts
    }

    /// What this incident tells of was no node's fault.
    pub fn take_back_fault(&mut self, incident: IncidentId) {
        for (id, node) in (0..).map(NodeId).zip(&mut self.nodes) {
            if node.faults.take_back(incident) {
                self.changed.note(id);
            }
        }
    }

    /// What fails on a node until then an operator's fault is to blame for.
    pub fn is_drilled(&mut self, id: NodeId, until: Time) {
        if let Some(node) = self.nodes.get_mut(id.0 as usize) {
            let known = node.faults.drill_until;
            node.faults.drill_until = known.max(Some(until));
            self.changed.note(id);
        }
    }

    /// Nothing new is started on a node because of its faults, or it may be used in spite of them.
    pub fn cordon_for_faults(&mut self, id: NodeId, out: bool) {
        if let Some(node) = self.get_mut(id) {
            (node.cordoned, node.faults.cordoned) = (out, out);
        }
    }

    /// An operator says whether something may be started on a node. His word replaces what its faults said,
    /// and where it may, they are forgotten.
    pub fn cordon(&mut self, id: NodeId, out: bool) {
        if let Some(node) = self.get_mut(id) {
            (node.cordoned, node.faults.cordoned) = (out, false);
            if !out {
                node.faults = Faults::default();
            }
        }
    }

    /// What the faults of a node count now, in thousandths.
    pub fn fault_weight(&self, id: NodeId, now: Time, half_life: Duration) -> u64 {
        let node = self.get(id);
        node.map_or(0, |node| node.faults.weight(now, half_life))
    }

    /// The nodes that are cordoned for their faults and there.
    pub fn cordoned_for_faults(&self) -> impl Iterator<Item = NodeId> {
        let all = (0..).map(NodeId).zip(&self.nodes);
        let out =
            all.filter(|(_, n)| n.faults.cordoned && n.state == NodeState::Here && !n.leaving);
        out.map(|(id, _)| id)
    }

    /// Those that changed since this was last asked; none: all of them, or that is wanted.
    pub(in crate::core) fn take_changed(&mut self, all: bool) -> Option<Layers<NodeId>> {
        self.changed.take(all)
    }

    /// The node of that name.
    pub fn by_name(&self, name: &str) -> Option<NodeId> {
        let at = self.nodes.iter().position(|n| n.spec.name == name)?;
        u32::try_from(at).ok().map(NodeId)
    }

    /// A node joins, or comes back; a known name keeps its number.
    pub fn join(&mut self, spec: NodeSpec, now: Time) -> NodeId {
        let id = match self.by_name(&spec.name) {
            Some(id) => id,
            None => {
                self.nodes.push(Node::new(spec.clone(), NodeState::Here));
                NodeId(u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX))
            }
        };
        if let Some(node) = self.get_mut(id) {
            (node.spec, node.state, node.beat_at) = (spec, NodeState::Here, now);
            node.leaving = false;
        }
        id
    }

    /// Whether a node that would do and has slots of the pool has not joined yet.
    pub fn awaits(&self, pool: &str, fits: impl Fn(&NodeSpec) -> bool) -> bool {
        let slots = |n: &Node| n.spec.pools.get(pool).is_some_and(|slots| *slots > 0);
        let has = |n: &Node| slots(n) && fits(&n.spec);
        self.nodes
            .iter()
            .any(|n| n.state == NodeState::Awaited && has(n))
    }

    /// Whether something may run in the slot.
    pub fn usable(&self, slot: &SlotRef) -> bool {
        self.get(slot.node).is_some_and(|node| {
            let key = (slot.pool.clone(), slot.index);
            node.open()
                && node.has(&slot.pool, slot.index)
                && !node.lost.contains(&key)
                && !node.draining.contains(&key)
        })
    }

    /// What may have been meant by a name that no node has: the nearest, or the names of all.
    pub fn instead_of(&self, name: &str) -> String {
        let names = self.nodes.iter().map(|n| n.spec.name.as_str());
        instead_of(name, &names.collect::<Vec<_>>(), "the job's nodes are")
    }

    /// One of the nodes that changed.
    pub fn next_changed(&mut self) -> Option<NodeId> {
        self.touched.pop()
    }

    /// Whether none changed.
    pub fn unchanged(&self) -> bool {
        self.touched.is_empty()
    }
}
