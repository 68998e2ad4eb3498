//! Faults of nodes (`roster/nodes/faults`): which are a node's own, and which nodes are cordoned for them.
use crate::core::Core;
use crate::core::detect::{Rule, Verdict, agent_unable, exit, numeric, poison, pull_stall};
use crate::core::mutation::Mutation;
use crate::core::output::Severity;
use crate::core::recover::cause::{Cause, Fingerprint};
use crate::core::recover::root::Root;
use crate::core::roster::instance::Instance;
use crate::core::roster::nodes::{
    Given, Home, Node, NodeFault, NodeState, Placement, SlotRef, whole,
};
use crate::fault::Fault;
use crate::ids::{Incarnation, IncidentId, InstanceId, NodeId, Role};
use std::time::Duration;

/// A lemon has so many times the faults of the middle one of the others.
const STANDS_OUT: u64 = 2;

/// After a node was lost on request what fails there is the drill's for so long, beyond the rule's window.
const DRILL: Duration = Duration::from_secs(60);

/// What such a rule finds is no machine's: arithmetics go wrong in all ranks alike, the pull that stands still
/// may be held up at either end, and an agent may be unable because of an environment that is elsewhere.
fn is_of_no_machine(rule: &Rule) -> bool {
    let of_none = [
        numeric::RULE.name,
        pull_stall::RULE.name,
        poison::RULE.name,
        agent_unable::RULE.name,
    ];
    of_none.contains(&rule.name)
}

/// Whose fault, and how it is known again.
struct Found {
    node: NodeId,
    incident: IncidentId,
    cause: Option<Fingerprint>,
    /// In words, for whoever reads why the node is cordoned.
    what: String,
}

impl Core {
    /// An operator's fault strikes a node: what fails there is not the node's.
    pub(in crate::core) fn drill_node(&mut self, node: NodeId, fault: &Fault) {
        let lasts = match fault {
            Fault::DiskFull { lasts } | Fault::NoProcesses { lasts } => *lasts,
            _ => self.config.rules.node_lost.window.get() + DRILL,
        };
        let until = self.now + lasts;
        self.s.roster.nodes_mut().is_drilled(node, until);
        // Peers elsewhere end of what ends here, maybe before that is heard of.
        for id in self.s.roster.on_node(node) {
            if let Some(i) = self.s.roster.get_mut(id) {
                i.is_drilled();
            }
        }
    }

    /// Counts what a rule found against the node, if it is the node's own. A hang counts when its root is
    /// known.
    pub(in crate::core) fn count_on_node(&mut self, verdict: &Verdict, is_innocent: bool) {
        let of_another = is_innocent || verdict.under.is_some() || self.is_drill(verdict.who);
        if verdict.hangs || of_another || is_of_no_machine(verdict.rule) {
            return;
        }
        let Some(node) = self.seat_of(verdict.who, None) else {
            return;
        };
        if !self.is_judged(node) {
            return;
        }
        // Why the operating system did not start it says whether that is so on every node.
        let not_started = verdict.rule.name == exit::SPAWN.name;
        let said = || not_started.then(|| Cause::of_error(&verdict.reason))?;
        let cause = verdict.cause.clone().or_else(said);
        self.count(Found {
            node,
            incident: self.s.recover.next_incident(),
            cause: cause.map(|cause| cause.fingerprint),
            what: format!("{}: {}", verdict.who, verdict.rule.name),
        });
    }

    /// The evidence of a hang is in: it counts against the node of its root. Of a gang nobody else can be
    /// told to be the one.
    pub(in crate::core) fn count_hang_on_node(&mut self, id: IncidentId) {
        let Some(incident) = self.s.recover.incidents().get(id) else {
            return;
        };
        let alone = match incident.who.role {
            Role::Trainer => self.s.roster.instances().count(Role::Trainer) == 1,
            Role::Hybrid | Role::Rollout | Role::Agent => true,
        };
        let own = || alone.then_some((incident.who, incident.incarnation));
        let root = incident.root.as_ref().and_then(Root::one).or_else(own);
        let of_another = incident.under.is_some() || incident.innocent;
        let rule = incident.rule.clone();
        let judged = incident.judged.unwrap_or(incident.who);
        let Some((who, life)) = root.filter(|_| !of_another && !self.is_drill(judged)) else {
            return;
        };
        let node = self
            .seat_of(who, Some(life))
            .filter(|node| self.is_judged(*node) && !self.is_drill(who));
        if let Some(node) = node {
            self.count(Found {
                node,
                incident: id,
                cause: None,
                what: format!("{who}: {rule}"),
            });
        }
    }

    /// A node was not heard any more. One that said that it would leave did nothing else; and where another one
    /// was heard last at about the same time, it is what is between them and here.
    pub(in crate::core) fn count_lost_node(&mut self, node: NodeId) {
        let nodes = self.s.roster.nodes();
        let Some(known) = nodes.get(node) else { return };
        let about = self.config.rules.node_lost.window.get() / 2;
        let (now, last) = (self.now, known.beat_at);
        let with_it = |other: &Node| {
            let apart = other.beat_at.since(last).max(last.since(other.beat_at));
            let may_fall_silent = matches!(other.state, NodeState::Here | NodeState::Lost);
            may_fall_silent && now.since(other.beat_at) > about && apart < about
        };
        let others = nodes
            .ids()
            .filter(|id| *id != node && *id != NodeId::LEADER);
        let alone = !others.filter_map(|id| nodes.get(id)).any(with_it);
        if alone && !known.leaving {
            self.count(Found {
                node,
                incident: IncidentId(0),
                cause: None,
                what: "node lost".to_owned(),
            });
        }
    }

    /// Whether an operator's fault struck this life; what strikes one rank stops its peers.
    fn is_drill(&self, who: InstanceId) -> bool {
        let instances = self.s.roster.instances();
        match who.role {
            Role::Trainer => instances.role(Role::Trainer).any(Instance::drilled),
            _ => instances.get(who).is_some_and(Instance::drilled),
        }
    }

    /// Whether what fails on a node counts there: one that is gone was counted as a whole, and one that leaves
    /// may end what runs there.
    fn is_judged(&self, node: NodeId) -> bool {
        let known = self.s.roster.nodes().get(node);
        known.is_some_and(|n| n.state == NodeState::Here && !n.leaving)
    }

    /// Where an instance, or this very life of it, has its slot.
    fn seat_of(&self, who: InstanceId, life: Option<Incarnation>) -> Option<NodeId> {
        let i = self.s.roster.instances().get(who)?;
        let same = life.is_none_or(|life| i.incarnation() == life);
        i.slot().filter(|_| same).map(|slot| slot.node)
    }

    fn count(&mut self, found: Found) {
        let Found {
            node,
            incident,
            cause,
            what,
        } = found;
        let fault = NodeFault {
            at: self.now,
            incident,
            cause,
            common: false,
        };
        if self.s.roster.nodes_mut().count_fault(node, fault) {
            self.cordon_lemon(node, &what);
        }
    }

    /// Cordons a node that has too many faults, and more than others, if nobody is left without a place.
    fn cordon_lemon(&mut self, node: NodeId, last: &str) {
        let half_life = self.config.cordon_half_life;
        let weight = |id| self.s.roster.nodes().fault_weight(id, self.now, half_life);
        let (own, after) = (weight(node), self.config.cordon_after);
        let early = self.config.mutant(Mutation::CordonEarly);
        let Some(known) = self.s.roster.nodes().get(node).filter(|n| !n.cordoned) else {
            return;
        };
        if after == 0 || (whole(own) < after && !early) {
            return;
        }
        let name = known.spec.name.clone();
        let many = match whole(own) {
            1 => "a fault".to_owned(),
            count => format!("{count} faults"),
        };
        let of_its_own = format!("node {name} has {many} of its own, the last {last}");
        let others = self.s.roster.nodes().ids().filter(|id| *id != node);
        let pools = known.spec.pools.clone();
        let is_alike = |id: &NodeId| {
            let other = self.s.roster.nodes().get(*id);
            let has = |n: &Node, pool: &str| n.spec.pools.get(pool).is_some_and(|n| *n > 0);
            let mut shared = pools.iter().filter(|(_, slots)| **slots > 0);
            other
                .is_some_and(|n| n.state == NodeState::Here && shared.any(|(pool, _)| has(n, pool)))
        };
        let mut others: Vec<u64> = others.filter(is_alike).map(weight).collect();
        others.sort_unstable();
        let Some(middle) = others.get(others.len() / 2) else {
            // The job has no other one for the same.
            return;
        };
        if own < STANDS_OUT * middle {
            let text = format!("{of_its_own}; it is not cordoned: others have as many");
            return self.event(Severity::Warn, "lemon", None, text);
        }
        self.derive();
        let left = self.left_without_place(node);
        if let Some(who) = left.filter(|_| !self.config.mutant(Mutation::CordonLastPlace)) {
            let text = format!("{of_its_own}; it is not cordoned: {who} would have no other place");
            return self.event(Severity::Warn, "lemon", None, text);
        }
        self.s.roster.nodes_mut().cordon_for_faults(node, true);
        let text = format!(
            "{of_its_own}: it is cordoned, nothing new is started there; `robustctl uncordon {name}` lets it \
             in again and forgets them"
        );
        self.event(Severity::Fault, "lemon", None, text);
    }

    /// Somebody who lives on a node and would have no free slot if that were cordoned.
    fn left_without_place(&self, node: NodeId) -> Option<InstanceId> {
        let (nodes, slots) = self.s.roster.supposing(&self.config, node, true);
        let placement = Placement {
            nodes: &nodes,
            slots: &slots,
            ..self.s.placement(self.now, &self.config)
        };
        let stays = |id: &InstanceId| {
            let i = self.s.roster.instances().get(*id);
            // Engines go with their ranks.
            id.role != Role::Hybrid && i.is_some_and(|i| !i.retiring())
        };
        let there = self.s.roster.on_node(node).into_iter().filter(stays);
        let moves = placement.moves(&there.collect::<Vec<_>>(), &mut Given::default());
        let left = moves.iter().find(|m| !matches!(m.home, Home::Moves(_)));
        left.map(|m| m.who)
    }

    /// A slot of a node that was cordoned for its faults, for somebody who has no other: the node is used
    /// again.
    pub(in crate::core) fn reopen_for(&mut self, id: InstanceId) -> Option<SlotRef> {
        let out: Vec<_> = self.s.roster.nodes().cordoned_for_faults().collect();
        if out.is_empty()
            || id.role == Role::Hybrid
            || self.config.mutant(Mutation::CordonLastPlace)
        {
            return None;
        }
        let half_life = self.config.cordon_half_life;
        let weight = |node: &NodeId| {
            self.s
                .roster
                .nodes()
                .fault_weight(*node, self.now, half_life)
        };
        let has = |node: NodeId| Some((node, self.slot_if_open(id, node)?));
        let (node, slot) = out
            .into_iter()
            .filter_map(has)
            .min_by_key(|(node, _)| weight(node))?;
        self.s.roster.nodes_mut().cordon_for_faults(node, false);
        let name = self.node(node).map_or("?", |n| n.name.as_str());
        let text =
            format!("node {name} is used again in spite of its faults: {id} has no other place");
        self.event(Severity::Warn, "lemon", Some(id), text);
        self.derive();
        Some(slot)
    }

    /// Sees to it that an instance would have a slot if it were started anew, if need be one of a node that was
    /// cordoned for its faults and is used again for it; whether it has.
    pub(in crate::core) fn ensure_housed(&mut self, id: InstanceId) -> bool {
        let housed = |core: &Self| core.s.placement(core.now, &core.config).is_housed(id);
        housed(self) || self.reopen_for(id).is_some() && housed(self)
    }

    /// Where an instance would run if a node were not cordoned.
    fn slot_if_open(&self, id: InstanceId, node: NodeId) -> Option<SlotRef> {
        let (nodes, slots) = self.s.roster.supposing(&self.config, node, false);
        let placement = Placement {
            nodes: &nodes,
            slots: &slots,
            ..self.s.placement(self.now, &self.config)
        };
        match placement.home(id, &Given::default()) {
            Home::Stays => self.s.roster.instances().get(id)?.slot().cloned(),
            Home::Moves(slot) => Some(slot),
            Home::Takes { .. } | Home::Waits(_) => None,
        }
    }
}
