//! Copies of snapshots on other nodes.
//!
//! ```text
//!  snapshot complete ─► replicas::Table ─┬► Hold, and from whom, to a node ─► it reads there ─► Held ─┬► safety.rs
//!                                        └► the leader's own machine, where it is a node: brought ────┘
//!                                             the node of its rank, when it was read there: ShardSent ─► its digests
//! ```
//! [`robust_shared::replicas`] decides who holds what; this carries it out. No shard passes through the leader on its way
//! from one node to another.
use super::Driver;
use super::early::{Digests, Early};
use crate::control::{GangWorkEvent, Needed, PeerHolder, PeerMemory, PeerView, Peers};
use crate::nodes::{ShardDigests, key_of};
use crate::tell::Tell;
use robust_proto::v1;
use robust_proto::v1::leader_message::Body as Down;
use robust_shared::core::NodeState;
use robust_shared::ids::{NodeId, Step, TrajectoryId};
use robust_shared::replicas::{Content, Place, Safety, ShardKey, Table};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::watch;

/// See the module's doc.
#[derive(Debug, Default)]
pub(super) struct Replicas {
    /// None before the driver begins.
    table: Option<Table>,
    /// Digests that nodes told with what they hold.
    digests: HashMap<(String, ShardKey), u64>,
    /// The same of shards of which nobody who knows has said yet what they have.
    unproven: HashMap<(String, ShardKey), u64>,
    /// What homes said of shards of steps that are not known yet.
    early: Early,
    view: watch::Sender<Arc<PeerView>>,
    /// What the step under way consumes.
    consumes: Option<(Step, Vec<TrajectoryId>)>,
    /// Steps were committed of which a second machine could not be had.
    pub given_up: bool,
}

impl Replicas {
    /// A step is being trained on these.
    pub fn trains(&mut self, step: Step, trajectories: Vec<TrajectoryId>) {
        self.consumes = Some((step, trajectories));
    }

    /// A node says that it holds a shard with this digest; whether it does, by the one that is known.
    fn holds(&mut self, name: &str, key: ShardKey, said: u64, known: u64) -> bool {
        if known != said {
            self.does_not_hold(name, key);
            return false;
        }
        self.digests.insert((name.to_owned(), key), said);
        if let Some(table) = &mut self.table {
            table.held(name, key, said);
        }
        true
    }

    fn does_not_hold(&mut self, name: &str, key: ShardKey) {
        self.unproven.remove(&(name.to_owned(), key));
        self.digests.remove(&(name.to_owned(), key));
        if let Some(table) = &mut self.table {
            table.not_held(name, key);
        }
    }

    /// Nodes that said they hold a shard before it was known what that has, with what they said.
    fn take_unproven(&mut self, key: ShardKey) -> Vec<(String, u64)> {
        let of = self.unproven.extract_if(|(_, of), _| *of == key);
        of.map(|((name, _), said)| (name, said)).collect()
    }

    /// How many nodes hold a shard.
    pub fn copies(&self, key: ShardKey) -> usize {
        let table = self.table.as_ref();
        table.map_or(0, |table| table.holders(key).count())
    }

    /// Whether there is more than one node.
    pub fn has_others(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.nodes() > 1)
    }

    /// Nodes that said they hold a shard with another digest than this.
    fn others_than(&self, key: ShardKey, xxh3: u64) -> Vec<String> {
        let of = self.digests.iter().filter(|((_, of), _)| *of == key);
        let others = of.filter(|(_, said)| **said != xxh3);
        others.map(|((name, _), _)| name.clone()).collect()
    }

    /// What a step consumes, if it is the one that is being trained.
    pub fn consumed(&self, step: Step) -> Vec<TrajectoryId> {
        let of = self.consumes.as_ref().filter(|(of, _)| *of == step);
        of.map(|(_, all)| all.clone()).unwrap_or_default()
    }

    /// The newest step of which there is a snapshot.
    pub fn newest(&self) -> Option<Step> {
        self.table.as_ref().and_then(Table::newest)
    }

    /// Whether a copy of a shard is on its way.
    pub fn is_on_its_way(&self, key: ShardKey) -> bool {
        let table = self.table.as_ref();
        table.is_some_and(|table| table.is_on_its_way(key))
    }

    /// How safe a step's snapshot is.
    pub fn safety(&self, step: Step) -> Safety {
        let table = self.table.as_ref();
        table.map_or(Safety::Nothing, |t| t.safety(step))
    }
}

/// What came of an order.
enum Ordered {
    Now,
    /// Nobody can give it at this moment.
    Later,
    /// That node can be given it by nobody.
    ByNobody,
}

impl Driver {
    /// What an earlier life knew of snapshots: those that are still in memory here count, and nodes say what is in theirs
    /// when they join.
    pub(super) fn begin_replicas(&mut self) {
        let table = self.leaders_place().map(Table::led_by);
        self.replicas.table = Some(table.unwrap_or_default());
        let steps: Vec<Step> = self.snapshots.all().keys().copied().collect();
        for step in steps {
            self.replicate(step);
        }
        self.show_holders();
    }

    /// This machine, where it is a node of the job: of several controllers none is, as another one leads when it dies.
    fn leaders_place(&self) -> Option<Place> {
        if self.parts.job.ha.is_some() {
            return None;
        }
        let unnamed = || Place {
            name: self.parts.feeds.node().to_owned(),
            labels: Default::default(),
        };
        Some(self.place_of(NodeId::LEADER).unwrap_or_else(unnamed))
    }

    fn place_of(&self, node: NodeId) -> Option<Place> {
        let spec = self.core.node(node)?;
        Some(Place {
            name: spec.name.clone(),
            labels: spec.labels.clone(),
        })
    }

    /// A snapshot is complete: copies are ordered where they make it safer.
    pub(super) fn replicate(&mut self, step: Step) {
        let Some(snapshot) = self.snapshots.get(step).cloned() else {
            return;
        };
        let home = |rank: usize| snapshot.homes.get(rank).filter(|home| !home.is_empty());
        let leader = self.leaders_place().map(|place| place.name);
        let shards = snapshot.shards.iter().enumerate().map(|(rank, shard)| {
            let content = Content {
                bytes: shard.bytes,
                xxh3: shard.xxh3,
            };
            // Paths of a leader before, on another machine or in its own folder on this one, are no copies.
            let here = leader
                .clone()
                .filter(|_| self.parts.shards.has(&shard.path));
            (
                home(rank).cloned().into_iter().chain(here).collect(),
                content,
            )
        });
        let shards: Vec<_> = shards.collect();
        if let Some(table) = &mut self.replicas.table {
            table.snapshot(step, snapshot.generation, shards);
        }
        for (name, key, digests) in self.replicas.early.take(step, snapshot.generation) {
            self.count_sent(name, key, digests);
        }
        self.show_holders();
        self.order_copies();
    }

    pub(super) fn on_holder_joined(&mut self, node: NodeId, held: &[v1::HeldShard]) {
        let Some(place) = self.place_of(node) else {
            return;
        };
        self.replicas
            .digests
            .retain(|(name, _), _| *name != place.name);
        // What it says of itself counts where it is known to be so: a slot, of the node whose rank wrote it; a copy, of
        // what has its digest.
        let counts = |shard: &&v1::HeldShard| {
            let key = key_of(shard);
            match (shard.xxh3, self.digest_of(key)) {
                (None, _) => self.is_home(key, &place.name),
                (Some(said), known) => known == Some(said),
            }
        };
        let held: Vec<&v1::HeldShard> = held.iter().filter(counts).collect();
        for shard in &held {
            if let Some(xxh3) = shard.xxh3 {
                let of = (place.name.clone(), key_of(shard));
                self.replicas.digests.insert(of, xxh3);
            }
        }
        if let Some(table) = &mut self.replicas.table {
            table.joined(place, held.into_iter().map(key_of));
        }
        self.show_holders();
        self.order_copies();
    }

    /// Whether the rank of a shard ran on this node when it took it.
    fn is_home(&self, key: ShardKey, name: &str) -> bool {
        let snapshot = self.snapshots.get(key.step);
        let snapshot = snapshot.filter(|s| s.generation == key.generation);
        let home = snapshot.map(|s| s.homes.get(key.rank as usize));
        // Of a snapshot of an earlier build nobody noted it.
        home.is_some_and(|home| home.is_none_or(|home| home.is_empty() || home == name))
    }

    pub(super) fn on_holder_left(&mut self, node: NodeId) {
        let Some(place) = self.place_of(node) else {
            return;
        };
        // What the node of a rank did not say any more its readers say.
        let orphans = self.replicas.unproven.keys().map(|(_, key)| *key);
        let orphans: Vec<ShardKey> = orphans
            .filter(|key| self.is_home(*key, &place.name))
            .collect();
        for key in orphans {
            for (name, said) in self.replicas.take_unproven(key) {
                let known = self.digest_of(key).unwrap_or(said);
                let of = (key.step, key.generation, key.rank);
                self.snapshots.hashed(of, known, None);
                self.count_held(&name, key, (said, known));
            }
        }
        self.replicas
            .digests
            .retain(|(name, _), _| *name != place.name);
        if let Some(table) = &mut self.replicas.table {
            table.left(&place.name);
        }
        self.show_holders();
        self.order_copies();
    }

    pub(super) fn on_held(&mut self, node: NodeId, held: &v1::HeldShard) {
        let (Some(place), Some(xxh3)) = (self.place_of(node), held.xxh3) else {
            return;
        };
        let key = key_of(held);
        let asked = self.replicas.table.as_ref();
        if !asked.is_some_and(|table| table.was_asked(&place.name, key)) {
            return;
        }
        match self.digest_of(key) {
            Some(known) => self.count_held(&place.name, key, (xxh3, known)),
            // The node of the rank says what it gave: it comes over another stream.
            None => drop(self.replicas.unproven.insert((place.name, key), xxh3)),
        }
    }

    /// A node that was asked says that it holds a shard, of which it is known what it has.
    fn count_held(&mut self, name: &str, key: ShardKey, (said, known): (u64, u64)) {
        if !self.replicas.holds(name, key, said, known) {
            tracing::warn!(
                "{name} says that it holds the shard of rank {} at step {} with the digest {said:016x}, and it has \
                 {known:016x}: its copy is not counted on",
                key.rank,
                key.step
            );
        } else if let Some(read) = self.read_of(key) {
            let of = (key.step, key.generation, key.rank);
            self.snapshots.hashed(of, read.xxh3, Some(read.blake3));
        }
        self.show_holders_of(key);
        self.order_copies();
    }

    /// A node gave a shard to another one. Of a rank that ran there it knows best what that is.
    pub(super) fn on_sent(&mut self, node: NodeId, sent: &v1::ShardSent) {
        let Some((shard, xxh3)) = sent.shard.as_ref().and_then(|s| Some((s, s.xxh3?))) else {
            return;
        };
        let Some(place) = self.place_of(node) else {
            return;
        };
        let blake3 = <[u8; 32]>::try_from(sent.blake3.as_slice()).ok();
        self.count_sent(place.name, key_of(shard), (xxh3, blake3));
    }

    fn count_sent(&mut self, name: String, key: ShardKey, (xxh3, blake3): Digests) {
        let Some(shard) = self.shard_of(key) else {
            return self.replicas.early.note(name, key, (xxh3, blake3));
        };
        let is_elsewhere = shard.path.is_empty();
        if !self.is_home(key, &name) {
            return;
        }
        if is_elsewhere {
            let of = (key.step, key.generation, key.rank);
            self.snapshots.named(of, (xxh3, blake3));
        }
        // Of what was brought here it is known what it has.
        self.count_unproven(key, self.digest_of(key).unwrap_or(xxh3));
    }

    /// It is known now what a shard has: who said to hold it before is judged by that.
    fn count_unproven(&mut self, key: ShardKey, known: u64) {
        for name in self.replicas.others_than(key, known) {
            self.replicas.does_not_hold(&name, key);
        }
        for (name, said) in self.replicas.take_unproven(key) {
            self.count_held(&name, key, (said, known));
        }
        self.show_holders_of(key);
        self.order_copies();
    }

    /// What is known here of a shard's content: by its snapshot, or by what was read of it.
    fn digest_of(&self, key: ShardKey) -> Option<u64> {
        let known = self.shard_of(key)?.xxh3;
        known.or_else(|| Some(self.read_of(key)?.xxh3))
    }

    /// What a node was sent that read it from here.
    fn read_of(&self, key: ShardKey) -> Option<ShardDigests> {
        self.parts.shards.digest_read(self.shard_of(key)?)
    }

    fn shard_of(&self, key: ShardKey) -> Option<&v1::SnapshotReply> {
        let snapshot = self.snapshots.get(key.step);
        let snapshot = snapshot.filter(|s| s.generation == key.generation)?;
        snapshot.shards.get(key.rank as usize)
    }

    pub(super) fn on_not_held(&mut self, node: NodeId, said: v1::ShardNotHeld) {
        let (Some(place), Some(shard)) = (self.place_of(node), said.shard) else {
            return;
        };
        let key = key_of(&shard);
        tracing::warn!(
            "{} does not hold the shard of rank {} at step {}: {}",
            place.name,
            key.rank,
            key.step,
            said.reason
        );
        self.replicas.does_not_hold(&place.name, key);
        self.show_holders_of(key);
        self.order_copies();
    }

    /// A shard is in this machine's memory, too.
    pub(super) fn on_brought(&mut self, key: ShardKey, shard: v1::SnapshotReply) {
        let xxh3 = shard.xxh3;
        let of = (key.step, key.generation, key.rank);
        if !self.snapshots.moved(of, shard) {
            return self.on_not_brought(key, "it is not what was taken");
        }
        if let (Some(leader), Some(xxh3)) = (self.leaders_place(), xxh3) {
            self.replicas.holds(&leader.name, key, xxh3, xxh3);
        }
        match xxh3 {
            Some(known) => self.count_unproven(key, known),
            None => self.order_copies(),
        }
    }

    /// A shard could not be brought to this machine.
    pub(super) fn on_not_brought(&mut self, key: ShardKey, reason: &str) {
        tracing::warn!(
            "this machine does not hold the shard of rank {} at step {}: {reason}",
            key.rank,
            key.step
        );
        if let Some(leader) = self.leaders_place() {
            self.replicas.does_not_hold(&leader.name, key);
        }
        self.show_holders_of(key);
        self.order_copies();
    }

    /// Carries out what the table wants now.
    fn order_copies(&mut self) {
        let leader = self.leaders_place().map(|place| place.name);
        loop {
            let table = self.replicas.table.as_mut();
            let orders = table.map(Table::take_orders).unwrap_or_default();
            if orders.is_empty() {
                break;
            }
            for order in orders {
                let ordered = match leader.as_ref() == Some(&order.node) {
                    true => self.bring_here(order.key),
                    false => self.order_copy(&order.node, order.key),
                };
                match (ordered, &mut self.replicas.table) {
                    (Ordered::Later, Some(table)) => table.postponed(&order.node, order.key),
                    (Ordered::ByNobody, Some(table)) => table.cannot(&order.node, order.key),
                    _ => {}
                }
            }
        }
        let newest = self.replicas.table.as_ref().and_then(Table::oldest);
        if let Some(oldest) = newest {
            let is_of_use = |(_, key): &(String, ShardKey), _: &mut u64| key.step >= oldest;
            self.replicas.digests.retain(is_of_use);
            self.replicas.unproven.retain(is_of_use);
            self.replicas.early.forget_before(oldest);
        }
        self.say_what_is_safe();
    }

    /// Asks again for what could not be copied of a step.
    pub(super) fn copy_again(&mut self, step: Step) {
        if let Some(table) = &mut self.replicas.table {
            table.again(step);
        }
        self.order_copies();
    }

    /// Has a node hold a shard that this machine has, or that it reads from another one.
    fn order_copy(&self, to: &str, key: ShardKey) -> Ordered {
        let (Some(shard), Some(node)) = (self.shard_of(key), self.core.node_id(to)) else {
            return Ordered::Later;
        };
        let from = match self.parts.shards.has(&shard.path) {
            true => None,
            // A node of an earlier build knows nobody but the leader.
            false
                if self
                    .nodes
                    .get(node)
                    .is_none_or(|remote| remote.shards.is_empty()) =>
            {
                return Ordered::ByNobody;
            }
            false => match self.places_of(key).into_iter().find(|p| p.node != to) {
                Some(place) => Some(place),
                None => return Ordered::Later,
            },
        };
        let oldest = self.replicas.table.as_ref().and_then(Table::oldest);
        let Some(remote) = self.nodes.get(node) else {
            return Ordered::Later;
        };
        remote.order(Down::Hold(v1::HoldShard {
            rank: key.rank,
            // What comes back is known by it: nobody else has to.
            shard: Some(v1::SnapshotReply {
                blake3: None,
                ..shard.clone()
            }),
            oldest: oldest.map_or(0, |step| step.0),
            from,
            kept_steps: self.parts.shards.pinned_steps(),
        }));
        Ordered::Now
    }

    /// Has a shard of another node held on this machine, too.
    fn bring_here(&mut self, key: ShardKey) -> Ordered {
        let ShardKey { step, rank, .. } = key;
        let snapshot = self.snapshots.get(step).cloned();
        let Some(snapshot) = snapshot.filter(|s| s.generation == key.generation) else {
            return Ordered::Later;
        };
        let peers = self.peer_memory();
        let events = peers.events.clone();
        let memory = PeerMemory::new([(step, snapshot)].into(), peers, Needed::Of(vec![rank]));
        tokio::spawn(async move {
            if let Err(reason) = memory.bring_rank(step, rank).await {
                // When the driver is gone nobody wants to know.
                let _ = events.tell(GangWorkEvent::NotBrought { key, reason });
            }
        });
        Ordered::Now
    }

    /// The nodes that others can read a shard from, that of its rank first.
    fn places_of(&self, key: ShardKey) -> Vec<v1::ShardPlace> {
        let table = self.replicas.table.as_ref();
        let names = table.into_iter().flat_map(|table| table.holders(key));
        let places = names.filter_map(|name| {
            let remote = self.nodes.get(self.core.node_id(name)?)?;
            let reached = remote.is_linked() && !remote.shards.is_empty();
            reached.then(|| v1::ShardPlace {
                node: name.to_owned(),
                address: remote.shards.clone(),
            })
        });
        let mut places: Vec<_> = places.collect();
        // A copy has a digest; the slot of its rank has none.
        places.sort_by_key(|place| {
            let of = (place.node.clone(), key);
            self.replicas.digests.contains_key(&of)
        });
        places
    }

    /// Tells restores, and nodes that ask, who holds a shard now.
    fn show_holders_of(&mut self, key: ShardKey) {
        let places = self.shown_places(key);
        self.parts.shards.places().show_one(key, places);
        let holders = self.peer_holders(key);
        self.replicas.view.send_modify(|view| {
            let held = &mut Arc::make_mut(view).held;
            match holders.is_empty() {
                true => drop(held.remove(&key)),
                false => drop(held.insert(key, holders)),
            }
        });
    }

    /// The nodes that hold a shard and can be told to give it.
    pub(super) fn peer_holders(&self, key: ShardKey) -> Vec<PeerHolder> {
        let table = self.replicas.table.as_ref();
        let names = table.into_iter().flat_map(|table| table.holders(key));
        let holders = names.filter_map(|name| {
            let node = self.core.node_id(name)?;
            if self.core.node_state(node) == Some(NodeState::Left) {
                return None;
            }
            let orders = self.nodes.get(node)?.orders()?.clone();
            let of = (name.to_owned(), key);
            Some(PeerHolder {
                xxh3: self.replicas.digests.get(&of).copied(),
                orders,
                name: of.0,
            })
        });
        holders.collect()
    }

    fn shown_places(&self, key: ShardKey) -> v1::ShardPlaces {
        let shard = self.shard_of(key);
        v1::ShardPlaces {
            places: self.places_of(key),
            xxh3: self.digest_of(key),
            blake3: shard.and_then(|shard| shard.blake3.clone()),
        }
    }

    /// The same of all shards.
    fn show_holders(&mut self) {
        let (mut nodes, mut away) = (0, 0);
        for node in (1..).map(NodeId) {
            if self.core.node(node).is_none() {
                break;
            }
            if self.core.node_state(node) == Some(NodeState::Left) {
                continue;
            }
            nodes += 1;
            if self
                .nodes
                .get(node)
                .is_none_or(|remote| !remote.is_linked())
            {
                away += 1;
            }
        }
        let table = self.replicas.table.as_ref();
        let keys: Vec<ShardKey> = table.into_iter().flat_map(Table::known).collect();
        let places = keys.iter().map(|key| (*key, self.shown_places(*key)));
        self.parts.shards.places().show(places.collect());
        let held = keys.iter().map(|key| (*key, self.peer_holders(*key)));
        let held: BTreeMap<_, _> = held.filter(|(_, holders)| !holders.is_empty()).collect();
        let view = PeerView { held, away, nodes };
        self.replicas.view.send_replace(Arc::new(view));
    }

    /// What a restore may ask other nodes for.
    pub(super) fn peer_memory(&mut self) -> Peers {
        self.show_holders();
        Peers {
            view: self.replicas.view.subscribe(),
            shards: self.parts.shards.clone(),
            events: Tell::into_channel(&self.parts.events),
        }
    }
}

#[cfg(test)]
#[path = "replicas_tests.rs"]
mod tests;
