//! Checkpoints of which the machines that hold shards put them into the object store: who can put which, and how it stands.
use super::Driver;
use crate::ckpt::{ByNodes, Hand, Putting, Request, Turn};
use crate::control::{Needed, PeerMemory};
use crate::snapshots::SnapshotShards;
use robust_proto::v1;
use robust_shared::ids::{NodeId, Step};
use robust_shared::replicas::ShardKey;
use std::path::PathBuf;

impl Driver {
    /// Has a committed step's shards put, in the background.
    pub(super) fn put_by_nodes(
        &mut self,
        by_nodes: ByNodes,
        turn: Turn,
        request: Request,
        snapshot: SnapshotShards,
    ) {
        let step = request.step;
        let key = |rank| ShardKey {
            step,
            generation: snapshot.generation,
            rank,
        };
        let home = |rank: usize| snapshot.homes.get(rank).map_or("", String::as_str);
        let shards = (0..).zip(snapshot.shards.iter().enumerate());
        let shards = shards.map(|(rank, (at, shard))| {
            let hands = self.hands_of(key(rank), shard, home(at));
            (shard.clone(), hands)
        });
        let shards = shards.collect();
        let known = [(step, snapshot)].into();
        let putting = Putting {
            request,
            shards,
            memory: PeerMemory::new(known, self.peer_memory(), Needed::All),
            puts: self.parts.puts.clone(),
        };
        // Copies of it stay meanwhile, here and on nodes.
        let pinned = self.parts.shards.pin(step.0);
        tokio::spawn(async move {
            by_nodes.put(turn, putting).await;
            drop(pinned);
        });
    }

    /// The most machines of which each can put some shard of a step.
    pub(super) fn most_hands(&self, step: Step) -> u32 {
        let Some(snapshot) = self.snapshots.get(step) else {
            return 0;
        };
        let holders = (0..).zip(&snapshot.shards).map(|(rank, _)| {
            let key = ShardKey {
                step,
                generation: snapshot.generation,
                rank,
            };
            self.peer_holders(key).len()
        });
        // And this machine, from its memory or once a shard was brought here.
        u32::try_from(holders.max().unwrap_or_default() + 1).unwrap_or(u32::MAX)
    }

    /// Who can put a shard: the machine of its rank first, then those with copies.
    fn hands_of(&self, key: ShardKey, shard: &v1::SnapshotReply, home: &str) -> Vec<Hand> {
        let mut holders = self.peer_holders(key);
        holders.sort_by_key(|holder| holder.name != home);
        let puts = |name: &str| {
            let node = self.core.node_id(name);
            let remote = node.and_then(|node| self.nodes.get(node));
            remote.is_some_and(|remote| remote.puts_shards)
        };
        let (can, cannot): (Vec<_>, Vec<_>) = holders.into_iter().partition(|h| puts(&h.name));
        let mut hands: Vec<Hand> = can.into_iter().map(Hand::Node).collect();
        if self.parts.shards.has(&shard.path) {
            let here = Hand::Here(PathBuf::from(&shard.path));
            let ran_here = self
                .core
                .node_id(home)
                .is_none_or(|node| node == NodeId::LEADER);
            hands.insert(if ran_here { 0 } else { hands.len() }, here);
        }
        if !cannot.is_empty() {
            hands.push(Hand::Brought);
        }
        hands
    }

    /// A node says what became of a shard that it was told to put.
    pub(super) fn on_put(&self, node: NodeId, put: v1::ShardPut) {
        if let Some(spec) = self.core.node(node) {
            self.parts.puts.answered(&spec.name, put);
        }
    }

    /// Whether a step's checkpoint comes too soon after the last one in the object store.
    pub(super) fn is_put_soon(&self, step: Step) -> bool {
        let by_nodes = self.parts.by_nodes.as_ref();
        by_nodes.is_some_and(|by_nodes| by_nodes.is_soon(step))
    }

    /// How the object store stands, whoever puts checkpoints there.
    pub(super) fn remote_status(&self) -> Option<v1::RemoteStatus> {
        let (url, standing) = match (&self.parts.uploader, &self.parts.by_nodes) {
            (Some(uploader), _) => (uploader.url(), uploader.standing()),
            (None, Some(by_nodes)) => (by_nodes.url(), by_nodes.standing()),
            (None, None) => return None,
        };
        Some(v1::RemoteStatus {
            url: url.to_owned(),
            step: standing.step.map(|step| step.0),
            sent_bytes: standing.sent_bytes,
            skipped: standing.skipped,
            failed: standing.failed,
            failing: standing.failing.unwrap_or_default(),
        })
    }
}
