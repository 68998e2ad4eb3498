//! Nodes (`roster/nodes`): they join, are heard of, leave and are lost, and what ran on one that is gone has
//! failed.
use crate::core::Core;
use crate::core::config::CoreConfig;
use crate::core::detect::{Verdict, node_lost};
use crate::core::input::Exit;
use crate::core::mutation::Mutation;
use crate::core::output::{Output, Severity};
use crate::core::roster::Roster;
use crate::core::roster::instance::Life;
use crate::core::roster::nodes::{NodeSpec, NodeState};
use crate::core::state::JobState;
use crate::core::timers::{TimerKey, Timers};
use crate::ids::{Incarnation, InstanceId, NodeId, Role};
use crate::time::Time;

impl Timers {
    /// Sets the timer of a node, by when it counts as lost.
    pub(in crate::core) fn arm_node(
        &mut self,
        roster: &Roster,
        config: &CoreConfig,
        node: NodeId,
        now: Time,
    ) {
        let due = roster.node_deadline(config, node);
        self.arm(TimerKey::Node(node), due, now);
    }
}

impl Core {
    /// A node of the job.
    pub fn node(&self, id: NodeId) -> Option<&NodeSpec> {
        self.s.roster.nodes().get(id).map(|n| &n.spec)
    }

    /// Where a node is in its life with the job.
    pub fn node_state(&self, id: NodeId) -> Option<NodeState> {
        self.s.roster.nodes().get(id).map(|n| n.state)
    }

    /// The node of that name.
    pub fn node_id(&self, name: &str) -> Option<NodeId> {
        self.s.roster.nodes().by_name(name)
    }

    pub(in crate::core) fn on_node_joined(&mut self, spec: NodeSpec, running: &[Incarnation]) {
        let name = spec.name.clone();
        let node = self.s.roster.join(spec, self.now);
        let (roster, config) = (&self.s.roster, &self.config);
        self.timers.arm_node(roster, config, node, self.now);
        for &incarnation in running {
            let current = roster.instances().life(incarnation);
            let there = current.and_then(|i| i.slot()).map(|s| s.node);
            if there != Some(node) && !config.mutant(Mutation::ForgetStale) {
                self.out.push(Output::Fence { node, incarnation });
            }
        }
        self.derive();
        for id in self.s.roster.on_node(node) {
            let Some(i) = self.s.roster.instances().get(id) else {
                continue;
            };
            // An order to start may still be on its way; a process that runs is named.
            let ran = i.has_process() && !matches!(i.life(), Life::Spawning { .. });
            if ran && !running.contains(&i.incarnation()) {
                let current = i.current();
                self.on_exited(current, None, &Exit::Gone, "gone while its node was away");
            }
        }
        let text = format!("node {name} joined");
        self.event(Severity::Info, "node", None, text);
    }

    /// Whoever is there moves as from a slot that is about to fail (`slots`).
    pub(in crate::core) fn on_node_leaving(&mut self, node: NodeId, reason: &str) {
        if !self.s.roster.node_is_leaving(node) {
            return;
        }
        let name = self.node(node).map_or("?", |n| n.name.as_str());
        let text = format!("node {name} will leave ({reason}): what runs there moves elsewhere");
        self.event(Severity::Info, "node", None, text);
    }

    pub(in crate::core) fn on_node_left(&mut self, node: NodeId, reason: &str) {
        self.node_gone(node, NodeState::Left, &format!("left: {reason}"));
    }

    /// Nobody listened meanwhile: what nodes said waits to be heard.
    pub(in crate::core) fn stood_still(&mut self) {
        for node in self.s.roster.nodes().ids() {
            self.s.roster.beat(node, self.now);
            let (roster, config) = (&self.s.roster, &self.config);
            self.timers.arm_node(roster, config, node, self.now);
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
        let (now, config, roster) = (self.now, &self.config, &mut self.s.roster);
        let silent = |node: &NodeId| {
            let due = roster.node_deadline(config, *node);
            due.is_some_and(|at| at <= now)
        };
        let (lost, heard): (Vec<_>, Vec<_>) = fallen.iter().copied().partition(silent);
        for node in heard {
            self.timers.arm_node(roster, config, node, now);
        }
        // All are lost before anything is started anew: not on another one of them.
        for &node in &lost {
            roster.node_is_gone(node, NodeState::Lost);
        }
        for &node in &lost {
            self.count_lost_node(node);
        }
        for node in lost {
            let silent = self.s.roster.nodes().get(node);
            let silent = silent.map(|n| now.since(n.beat_at)).unwrap_or_default();
            let why = format!("was not heard for {:.1} s", silent.as_secs_f64());
            self.node_gone(node, NodeState::Lost, &why);
        }
    }

    fn node_gone(&mut self, node: NodeId, state: NodeState, why: &str) {
        self.s.roster.node_is_gone(node, state);
        let Some(known) = self.s.roster.nodes().get(node) else {
            return;
        };
        let reason = format!("its node {} {why}", known.spec.name);
        let text = format!("node {} {why}", known.spec.name);
        self.event(Severity::Fault, "node", None, text);
        self.derive();
        let lives = |core: &Self, id: InstanceId| {
            let i = core.s.roster.instances().get(id);
            Some(i.filter(|i| i.has_process())?.incarnation())
        };
        let there = self.s.roster.on_node(node);
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
            match self
                .s
                .roster
                .instances()
                .get(who)
                .and_then(|i| i.condemned())
            {
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
}
