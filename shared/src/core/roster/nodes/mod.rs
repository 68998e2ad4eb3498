//! The machines of the job and their slots: who is there, what is lost, where everybody lives.
//!
//! ```text
//!            NodeJoined               no beat for the rule's window
//!  awaited ────────────► here ───────────────────────────────────────► lost
//!                         ▲  │ NodeLeft                                  │
//!                         │  └──────────► left                           │
//!                         └────────────────┴──── NodeJoined ─────────────┘
//! ```
//! The leader's own node is always here. What runs on a node that comes back and is over is fenced
//! (I-1); what is current goes on.
mod drain;
mod homes;
mod housing;
mod placement;
mod slots;
mod spec;
mod table;

pub use homes::{Home, Move, NoHome};
pub(in crate::core) use placement::Placement;
pub(in crate::core) use slots::Slots;
pub use spec::{Labels, NodeSpec, SlotRef};
pub use table::{Node, NodeState, NodeTable};

use crate::core::detect::{Verdict, node_lost};
use crate::core::input::Exit;
use crate::core::output::{Output, Severity};
use crate::core::roster::instance::Life;
use crate::core::state::JobState;
use crate::core::timers::TimerKey;
use crate::core::{Core, Mutation};
use crate::ids::{Incarnation, InstanceId, NodeId, Role};
use crate::time::Time;

impl Core {
    /// A node of the job.
    pub fn node(&self, id: NodeId) -> Option<&NodeSpec> {
        self.s.nodes.get(id).map(|n| &n.spec)
    }

    /// Where a node is in its life with the job.
    pub fn node_state(&self, id: NodeId) -> Option<NodeState> {
        self.s.nodes.get(id).map(|n| n.state)
    }

    /// The node of that name.
    pub fn node_id(&self, name: &str) -> Option<NodeId> {
        self.s.nodes.by_name(name)
    }

    pub(in crate::core) fn on_node_joined(&mut self, spec: NodeSpec, running: &[Incarnation]) {
        let name = spec.name.clone();
        let node = self.s.nodes.join(spec, self.now);
        self.arm_node(node);
        for &incarnation in running {
            let current = self.s.instances.life(incarnation);
            let there = current.and_then(|i| i.slot.as_ref()).map(|s| s.node);
            if there != Some(node) && !self.config.mutant(Mutation::ForgetStale) {
                self.out.push(Output::Fence { node, incarnation });
            }
        }
        self.sync();
        for id in self.index.slots().on_node(node) {
            let Some(i) = self.s.instances.get(id) else {
                continue;
            };
            // An order to start may still be on its way; a process that runs is named.
            let ran = i.has_process() && !matches!(i.life, Life::Spawning { .. });
            if ran && !running.contains(&i.incarnation) {
                let current = i.current();
                self.on_exited(current, None, &Exit::Gone, "gone while its node was away");
            }
        }
        let text = format!("node {name} joined");
        self.event(Severity::Info, "node", None, text);
    }

    pub(in crate::core) fn on_node_left(&mut self, node: NodeId, reason: &str) {
        self.node_gone(node, NodeState::Left, &format!("left: {reason}"));
    }

    /// Nobody listened meanwhile: what nodes said waits to be heard.
    pub(in crate::core) fn stood_still(&mut self) {
        for node in self.s.nodes.ids() {
            self.s.nodes.beat(node, self.now);
            self.arm_node(node);
        }
    }

    /// Nodes whose time is over are lost before anything else that is heard now is decided on, or its
    /// consequence would be started on them.
    pub(in crate::core) fn lose_silent_nodes(&mut self) {
        if self.started && self.s.job == JobState::Running {
            let fallen = self.timers.fallen_nodes(self.now);
            self.check_nodes(&fallen);
        }
    }

    /// Nodes whose heartbeat stopped for the rule's window are lost.
    pub(in crate::core) fn check_nodes(&mut self, fallen: &[NodeId]) {
        let silent = |node: &NodeId| self.node_deadline(*node).is_some_and(|at| at <= self.now);
        let (lost, heard): (Vec<_>, Vec<_>) = fallen.iter().copied().partition(silent);
        for node in heard {
            self.arm_node(node);
        }
        // All are lost before anything is started anew: not on another one of them.
        for &node in &lost {
            if let Some(known) = self.s.nodes.get_mut(node) {
                known.state = NodeState::Lost;
            }
        }
        for node in lost {
            let silent = self.s.nodes.get(node).map(|n| self.now.since(n.beat_at));
            let seconds = silent.unwrap_or_default().as_secs_f64();
            let why = format!("was not heard for {seconds:.1} s");
            self.node_gone(node, NodeState::Lost, &why);
        }
    }

    fn node_gone(&mut self, node: NodeId, state: NodeState, why: &str) {
        let Some(known) = self.s.nodes.get_mut(node) else {
            return;
        };
        known.state = state;
        let reason = format!("its node {} {why}", known.spec.name);
        let text = format!("node {} {why}", known.spec.name);
        self.event(Severity::Fault, "node", None, text);
        self.sync();
        let lives = |core: &Self, id: InstanceId| {
            let i = core.s.instances.get(id).filter(|i| i.has_process())?;
            Some(i.incarnation)
        };
        let there = self.index.slots().on_node(node);
        let mut there: Vec<_> = there
            .into_iter()
            .filter_map(|id| Some((id, lives(self, id)?)))
            .collect();
        // The gang's incident is the first, and the others' are folded under it.
        there.sort_by_key(|(id, _)| id.role != Role::Trainer);
        let mut first = None;
        for (who, life) in there {
            // The first rank's verdict takes its peers along.
            if lives(self, who) != Some(life) || self.s.outcome().is_some() {
                continue;
            }
            match self.s.instances.get(who).and_then(|i| i.condemned) {
                // Its fault is counted and decided on already.
                Some(_) => self.execute(who, lives(self, who)),
                None => {
                    let verdict = Verdict::new(who, &node_lost::RULE, reason.clone());
                    let opened = self.fault_of_rule(verdict.ended().under(first));
                    first = first.or(opened);
                }
            }
        }
    }

    /// When a node counts as lost, if it is not heard.
    pub(in crate::core) fn node_deadline(&self, node: NodeId) -> Option<Time> {
        let rules = &self.config.rules;
        let watched = node != NodeId::LEADER && !rules.is_off(&node_lost::RULE);
        let here = |n: &&Node| watched && n.state == NodeState::Here;
        let window = || rules.node_lost.window.get();
        let node = self.s.nodes.get(node).filter(here);
        node.map(|n| n.beat_at + window())
    }

    pub(in crate::core) fn arm_node(&mut self, node: NodeId) {
        let due = self.node_deadline(node);
        self.timers.arm(TimerKey::Node(node), due, self.now);
    }

    /// Takes a slot out of use, with whoever is in it.
    pub(in crate::core) fn lose_slot(&mut self, slot: &SlotRef) -> Vec<InstanceId> {
        self.sync();
        let takers: Vec<_> = self.index.slots().takers(slot).collect();
        let kept = self.config.mutant(Mutation::KeepLostSlot);
        if let Some(node) = self.s.nodes.get_mut(slot.node).filter(|_| !kept) {
            node.lost.insert((slot.pool.clone(), slot.index));
        }
        takers
    }
}
