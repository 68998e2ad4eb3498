//! The job's other nodes, as the driver knows them.
//!
//! ```text
//!  away ── NodeJoined: what ended there is told, what waits is ordered again ──► linked
//!    ▲                                                                             │
//!    └──── its stream ended, it left, or the core gave it up (it joins anew) ──────┘
//! ```
//! Whether a node is lost is the core's to decide; a broken stream alone decides nothing.
mod arrivals;

use super::hands::{Collect, Hands, SpawnOrder};
use super::inspect::InspectError;
use crate::links::LinkId;
use crate::nodes::Orders;
use crate::spares::Wanted;
use robust_proto::v1;
use robust_proto::v1::leader_message::Body as Down;
use robust_shared::fault::Fault;
use robust_shared::ids::{Incarnation, NodeId};
use std::collections::{BTreeMap, HashMap};

/// Hands on another node's processes.
#[derive(Debug, Default)]
pub(super) struct Remote {
    /// Random, of its state directory.
    identity: String,
    /// Where its roles are reached.
    pub address: String,
    /// Where other nodes read the shards that it holds; empty: nowhere.
    pub shards: String,
    /// Whether it can put shards into the object store.
    pub puts_shards: bool,
    /// Whether it can look at what its processes do.
    pub inspects: bool,
    /// Whether it can have spares.
    pub keeps_spares: bool,
    link: Option<(LinkId, Orders)>,
    /// Whether it can be told to have another certificate made, and by which authority it was told over this link.
    renews: bool,
    told: String,
    /// Ordered, and no word of them yet: ordered again when it joins again.
    pending: BTreeMap<Incarnation, SpawnOrder>,
    /// The spares that it was told to have, since it joined and since it was told to start anything.
    keeps: Option<(u32, Wanted)>,
    /// Those that it has.
    spares: Vec<v1::SpareStatus>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    remotes: HashMap<NodeId, Remote>,
    /// Whose the open links are: it is asked of everything that nodes say.
    linked: HashMap<LinkId, NodeId>,
}

impl Nodes {
    /// A node, known from now on.
    pub fn remote(&mut self, node: NodeId) -> &mut Remote {
        self.remotes.entry(node).or_default()
    }

    /// A node that is known.
    pub fn get(&self, node: NodeId) -> Option<&Remote> {
        self.remotes.get(&node)
    }

    /// Whose link this is now.
    fn by_link(&self, link: LinkId) -> Option<NodeId> {
        self.linked.get(&link).copied()
    }

    /// A node is reached over this link from now on, and over no other.
    fn link(&mut self, node: NodeId, link: LinkId, orders: Orders) {
        self.unlink(node);
        self.linked.insert(link, node);
        self.remote(node).link = Some((link, orders));
    }

    /// A node's stream is ended; whether it was open.
    fn unlink(&mut self, node: NodeId) -> bool {
        let remote = self.remote(node);
        // They end with its daemon, or are told of when it joins again.
        (remote.keeps, remote.spares) = Default::default();
        let Some((link, _)) = remote.link.take() else {
            return false;
        };
        self.linked.remove(&link);
        true
    }

    /// All that ever joined.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<'_> {
        self.remotes.keys().copied()
    }

    /// Tells every linked node.
    pub fn tell_all(&self, body: &Down) {
        for remote in self.remotes.values() {
            remote.order(body.clone());
        }
    }

    /// Tells every linked node, once over each link, to have a certificate by this authority.
    pub fn renew_all(&mut self, authority: &str) {
        let can = |remote: &&mut Remote| remote.is_linked() && remote.renews;
        for remote in self.remotes.values_mut().filter(can) {
            if remote.told != authority {
                remote.told = authority.to_owned();
                let authority = authority.to_owned();
                remote.order(Down::Renew(v1::RenewCertificate { authority }));
            }
        }
    }

    /// The spares of all nodes.
    pub fn spares(&self) -> impl Iterator<Item = (NodeId, v1::SpareStatus)> + '_ {
        let all = self.remotes.iter();
        all.flat_map(|(node, remote)| remote.spares.iter().map(|spare| (*node, spare.clone())))
    }

    /// Whether any node is linked.
    pub fn any_linked(&self) -> bool {
        self.remotes.values().any(|r| r.link.is_some())
    }
}

impl Remote {
    /// Whether its stream is open.
    pub fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// A process there is no more.
    pub fn forget(&mut self, incarnation: Incarnation) {
        self.pending.remove(&incarnation);
    }

    /// Whether the node of this name can be asked what its processes do, or why not. One of an earlier build would take
    /// the question for the end of its stream.
    pub fn can_look(&self, node: String) -> Result<(), InspectError> {
        match (self.is_linked(), self.inspects) {
            (true, true) => Ok(()),
            (true, false) => Err(InspectError::Former { node }),
            (false, _) => Err(InspectError::Away { node }),
        }
    }

    /// Tells it to have these spares, once. One of an earlier build has none: it would take the order for the end of its
    /// stream.
    pub fn keep_spares(&mut self, revision: u32, wanted: Wanted) {
        let keeps = Some((revision, wanted));
        if self.keeps == keeps || !self.is_linked() || !self.keeps_spares {
            return;
        }
        let each = keeps.iter().flat_map(|(_, wanted)| wanted);
        let each = each.map(|(role, count)| v1::WantedSpares {
            role: role.name().to_owned(),
            count: *count,
        });
        let wanted = each.collect();
        self.order(Down::KeepSpares(v1::KeepSpares { revision, wanted }));
        self.keeps = keeps;
    }

    /// It has these.
    pub fn has_spares(&mut self, spares: v1::NodeSpares) {
        self.spares = spares.spares;
    }

    /// The way to it, while its stream is open.
    pub fn orders(&self) -> Option<&Orders> {
        self.link.as_ref().map(|(_, orders)| orders)
    }

    /// Tells it.
    pub fn order(&self, body: Down) {
        if let Some((_, orders)) = &self.link {
            // A stream that just broke is reported by itself.
            let _ = orders.send(v1::LeaderMessage { body: Some(body) });
        }
    }
}

fn spawn_order(order: &SpawnOrder) -> Down {
    let life = &order.life;
    Down::Spawn(v1::SpawnRole {
        role: life.id.role.name().to_owned(),
        index: life.id.index,
        incarnation: life.incarnation.0,
        generation: life.generation.0,
        revision: life.revision,
        pool: life.pool.clone(),
        place: life.place,
        job: order.job.as_deref().unwrap_or_default().to_owned(),
        identity: order.identity.clone().unwrap_or_default(),
    })
}

impl Hands for Remote {
    fn spawn(&mut self, order: SpawnOrder) {
        self.keeps = None;
        self.order(spawn_order(&order));
        self.pending.insert(order.life.incarnation, order);
    }

    /// Unsaid while the node is away: when it joins again, what is over there is fenced.
    fn kill(&mut self, incarnation: Incarnation) {
        self.pending.remove(&incarnation);
        self.order(Down::Kill(v1::KillRole {
            incarnation: incarnation.0,
        }));
    }

    fn strike(&mut self, incarnation: Incarnation, fault: &Fault) -> Result<(), String> {
        self.order(Down::Strike(v1::StrikeRole {
            incarnation: incarnation.0,
            fault: fault.to_string(),
        }));
        match self.is_linked() {
            true => Ok(()),
            false => Err("its node is away".to_owned()),
        }
    }

    fn collect(&mut self, incarnation: Incarnation, _pid: u32, how: Collect) {
        self.order(Down::Collect(v1::CollectEvidence {
            incarnation: incarnation.0,
            limit_ms: u32::try_from(how.limit.as_millis()).unwrap_or(u32::MAX),
            gently: how.gently,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use robust_shared::ids::Role;
    use tokio::sync::mpsc::unbounded_channel;

    #[test]
    fn a_link_is_its_nodes_until_it_ends_or_another_one_takes_its_place() {
        let (mut nodes, orders) = (Nodes::default(), || unbounded_channel().0);
        nodes.link(NodeId(1), LinkId(10), orders());
        nodes.link(NodeId(2), LinkId(20), orders());
        let of = |nodes: &Nodes| [10, 11, 20].map(|link| nodes.by_link(LinkId(link)));
        assert_eq!(of(&nodes), [Some(NodeId(1)), None, Some(NodeId(2))]);
        nodes.link(NodeId(1), LinkId(11), orders());
        assert_eq!(of(&nodes), [None, Some(NodeId(1)), Some(NodeId(2))]);
        assert!(nodes.unlink(NodeId(2)) && !nodes.unlink(NodeId(2)));
        assert_eq!(of(&nodes), [None, Some(NodeId(1)), None]);
        assert!(nodes.get(NodeId(2)).is_some_and(|node| !node.is_linked()));
    }

    #[test]
    fn a_node_is_asked_to_look_while_it_is_linked_and_if_it_says_that_it_knows_how() {
        let mut nodes = Nodes::default();
        let asked = |nodes: &mut Nodes| nodes.remote(NodeId(1)).can_look("b".to_owned());
        let node = || "b".to_owned();
        let away = InspectError::Away { node: node() };
        assert_eq!(asked(&mut nodes), Err(away));
        nodes.link(NodeId(1), LinkId(10), unbounded_channel().0);
        let former = InspectError::Former { node: node() };
        assert_eq!(asked(&mut nodes), Err(former));
        nodes.remote(NodeId(1)).inspects = true;
        assert_eq!(asked(&mut nodes), Ok(()));
    }

    #[test]
    fn a_node_is_told_once_of_its_spares_if_it_says_that_it_knows_them() {
        let mut nodes = Nodes::default();
        let (orders, mut told) = unbounded_channel();
        nodes.link(NodeId(1), LinkId(10), orders);
        let mut keep = |nodes: &mut Nodes, revision| {
            let wanted = vec![(Role::Trainer, 2)];
            nodes.remote(NodeId(1)).keep_spares(revision, wanted);
            told.try_recv().is_ok()
        };
        assert!(!keep(&mut nodes, 1), "it is of an earlier build");
        nodes.remote(NodeId(1)).keeps_spares = true;
        assert!(keep(&mut nodes, 1));
        assert!(!keep(&mut nodes, 1), "it knows");
        assert!(keep(&mut nodes, 2), "the program may be another one");
    }
}
