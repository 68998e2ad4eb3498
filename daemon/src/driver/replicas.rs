//! Copies of snapshots on other nodes, and steps that wait until they are safe.
//!
//! ```text
//!  snapshot complete ─► replicas::Table ─► Hold to nodes ─► Held ─┐
//!                                                                 ▼
//!  the step is done ── publish_after ──► safe already, or waits ─► said to the core: committed,
//!                                          │        ▲               published
//!                                          │        └── Held, Written, or nobody can hold it
//!                                          └── its gang died: forgotten with its task
//! ```
//! [`robust_shared::replicas`] decides who holds what; this carries it out.
use super::Driver;
use super::alarms::Alarm;
use super::gang::GangTask;
use crate::control::{PeerHolder, PeerView, Peers};
use crate::nodes::{ShardDigests, Shards};
use crate::snapshots::SnapshotShards;
use crate::tell::Tell;
use robust_proto::v1;
use robust_proto::v1::leader_message::Body as Down;
use robust_shared::core::{GangEvent, Input, NodeState, Severity, StepMetrics};
use robust_shared::ids::{Generation, NodeId, Step, TrajectoryId};
use robust_shared::job::PublishAfter;
use robust_shared::replicas::{Content, Place, Safety, ShardKey, Table};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How often a checkpoint that a step waits for is offered again, when the disk is full, say.
const PRESS: Duration = Duration::from_secs(1);

/// A step that is done and not yet said to be.
#[derive(Debug)]
pub(super) struct Done {
    step: Step,
    input: Input,
}

/// See the module's doc.
#[derive(Debug, Default)]
pub(super) struct Replicas {
    /// None before the driver begins.
    table: Option<Table>,
    /// Digests that nodes told with what they hold.
    digests: HashMap<(String, ShardKey), u64>,
    view: watch::Sender<Arc<PeerView>>,
    /// What the step under way consumes.
    consumes: Option<(Step, Vec<TrajectoryId>)>,
}

impl Replicas {
    /// A step is being trained on these.
    pub fn trains(&mut self, step: Step, trajectories: Vec<TrajectoryId>) {
        self.consumes = Some((step, trajectories));
    }

    /// A node says that it holds a shard with this digest; whether it does, by the one that is known here.
    fn holds(&mut self, name: &str, key: ShardKey, said: u64, known: Option<u64>) -> bool {
        if known.is_some_and(|known| known != said) {
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
        self.digests.remove(&(name.to_owned(), key));
        if let Some(table) = &mut self.table {
            table.not_held(name, key);
        }
    }

    fn safety(&self, step: Step) -> Safety {
        let table = self.table.as_ref();
        table.map_or(Safety::Nothing, |t| t.safety(step))
    }
}

/// Whether all of a snapshot can be read from here. Paths of a leader before, on another machine or in its own folder on this one,
/// are none to send nodes to: who holds copies of those says so when it joins.
fn is_here(shards: &Shards, snapshot: &SnapshotShards) -> bool {
    let mut paths = snapshot.shards.iter().map(|shard| &shard.path);
    paths.all(|path| shards.has(path))
}

fn key(held: &v1::HeldShard) -> ShardKey {
    ShardKey {
        step: Step(held.step),
        generation: Generation(held.generation),
        rank: held.rank,
    }
}

impl Driver {
    /// What an earlier life knew of snapshots that are still in memory.
    pub(super) fn begin_replicas(&mut self) {
        let leader = || {
            self.place_of(NodeId::LEADER).unwrap_or(Place {
                name: self.parts.feeds.node().to_owned(),
                labels: Default::default(),
            })
        };
        let table = match self.parts.job.ha {
            Some(_) => Table::of_several_controllers(),
            None => Table::new(leader()),
        };
        self.replicas.table = Some(table);
        let steps: Vec<Step> = self.snapshots.all().keys().copied().collect();
        for step in steps {
            let snapshot = self.snapshots.get(step);
            if snapshot.is_some_and(|snapshot| is_here(&self.parts.shards, snapshot)) {
                self.replicate(step);
            }
        }
        self.show_holders();
    }

    fn place_of(&self, node: NodeId) -> Option<Place> {
        let spec = self.core.node(node)?;
        Some(Place {
            name: spec.name.clone(),
            labels: spec.labels.clone(),
        })
    }

    /// A snapshot is complete here: copies are ordered where they make it safer.
    pub(super) fn replicate(&mut self, step: Step) {
        let Some(snapshot) = self.snapshots.get(step).cloned() else {
            return;
        };
        let ranks = self.gang.as_ref().map(|task| task.ranks.as_slice());
        let home = |rank: usize| {
            let life = ranks.and_then(|ranks| ranks.get(rank))?;
            let node = self.processes.get(life)?.node;
            Some(self.core.node(node)?.name.clone())
        };
        let shards = snapshot.shards.iter().enumerate().map(|(rank, shard)| {
            let content = Content {
                bytes: shard.bytes,
                xxh3: shard.xxh3,
            };
            (home(rank).unwrap_or_default(), content)
        });
        let shards: Vec<_> = shards.collect();
        if let Some(table) = &mut self.replicas.table {
            table.snapshot(step, snapshot.generation, shards);
        }
        self.order_copies();
    }

    pub(super) fn on_holder_joined(&mut self, node: NodeId, held: &[v1::HeldShard]) {
        let Some(place) = self.place_of(node) else {
            return;
        };
        self.replicas
            .digests
            .retain(|(name, _), _| *name != place.name);
        let is_another = |shard: &&v1::HeldShard| {
            let known = self.digest_of(key(shard));
            matches!((known, shard.xxh3), (Some(known), Some(said)) if known != said)
        };
        let (others, held): (Vec<_>, Vec<_>) = held.iter().partition(is_another);
        for shard in others {
            let ShardKey { step, rank, .. } = key(shard);
            tracing::warn!(
                "{} joined with a shard of rank {rank} at step {step} that is another than the one that was taken: \
                 it is not counted on",
                place.name
            );
        }
        for shard in &held {
            if let Some(xxh3) = shard.xxh3 {
                let of = (place.name.clone(), key(shard));
                self.replicas.digests.insert(of, xxh3);
            }
        }
        if let Some(table) = &mut self.replicas.table {
            table.joined(place, held.into_iter().map(key));
        }
        self.order_copies();
    }

    pub(super) fn on_holder_left(&mut self, node: NodeId) {
        let Some(place) = self.place_of(node) else {
            return;
        };
        self.replicas
            .digests
            .retain(|(name, _), _| *name != place.name);
        if let Some(table) = &mut self.replicas.table {
            table.left(&place.name);
        }
        self.order_copies();
    }

    pub(super) fn on_held(&mut self, node: NodeId, held: &v1::HeldShard) {
        let (Some(place), Some(xxh3)) = (self.place_of(node), held.xxh3) else {
            return;
        };
        let key = key(held);
        let known = self.digest_of(key);
        if !self.replicas.holds(&place.name, key, xxh3, known) {
            tracing::warn!(
                "{} says that it holds the shard of rank {} at step {} with the digest {xxh3:016x}, and it has \
                 {:016x}: its copy is not counted on",
                place.name,
                key.rank,
                key.step,
                known.unwrap_or_default()
            );
            return self.order_copies();
        }
        let blake3 = self.read_of(key).map(|read| read.blake3);
        self.snapshots
            .hashed((key.step, key.generation, key.rank), xxh3, blake3);
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
        let key = key(&shard);
        tracing::warn!(
            "{} does not hold the shard of rank {} at step {}: {}",
            place.name,
            key.rank,
            key.step,
            said.reason
        );
        self.replicas.does_not_hold(&place.name, key);
        self.order_copies();
    }

    /// Carries out what the table wants now.
    fn order_copies(&mut self) {
        let Some(table) = &mut self.replicas.table else {
            return;
        };
        let oldest = table.oldest().map_or(0, |step| step.0);
        for order in table.take_orders() {
            let of = order.key;
            let snapshot = self.snapshots.get(of.step);
            let snapshot = snapshot.filter(|s| s.generation == of.generation);
            let shard = snapshot.and_then(|s| s.shards.get(of.rank as usize));
            let node = self.core.node_id(&order.node);
            if let (Some(shard), Some(node)) = (shard.cloned(), node) {
                self.nodes.remote(node).order(Down::Hold(v1::HoldShard {
                    rank: of.rank,
                    // What comes back is known by it: nobody else has to.
                    shard: Some(v1::SnapshotReply {
                        blake3: None,
                        ..shard
                    }),
                    oldest,
                }));
            }
        }
        let newest = self.replicas.table.as_ref().and_then(Table::oldest);
        if let Some(oldest) = newest {
            self.replicas
                .digests
                .retain(|(_, key), _| key.step >= oldest);
        }
        self.show_holders();
        self.say_what_is_safe();
    }

    /// Tells restores who holds what.
    fn show_holders(&mut self) {
        let mut held: BTreeMap<ShardKey, Vec<PeerHolder>> = BTreeMap::new();
        let (mut nodes, mut away) = (0, 0);
        for node in (1..).map(NodeId) {
            let Some(spec) = self.core.node(node) else {
                break;
            };
            if self.core.node_state(node) == Some(NodeState::Left) {
                continue;
            }
            nodes += 1;
            let Some(orders) = self.nodes.get(node).and_then(|remote| remote.orders()) else {
                away += 1;
                continue;
            };
            let table = self.replicas.table.as_ref();
            for key in table.into_iter().flat_map(|t| t.held_by(&spec.name)) {
                let of = (spec.name.clone(), key);
                held.entry(key).or_default().push(PeerHolder {
                    xxh3: self.replicas.digests.get(&of).copied(),
                    orders: orders.clone(),
                    name: of.0,
                });
            }
        }
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

    /// The step's result is there. It is said to the core when it is as safe as the job wants it;
    /// until then its task stays, and dies with its gang.
    pub(super) fn on_done(&mut self, mut task: GangTask, step: Step, input: Input) {
        task.done = Some(Done { step, input });
        self.gang = Some(task);
        self.pressed = None;
        self.press_checkpoint();
        self.say_what_is_safe();
    }

    /// Says to the core what was held back and is safe by now.
    pub(super) fn say_what_is_safe(&mut self) {
        let Some(task) = &self.gang else { return };
        let Some(Done { step, .. }) = &task.done else {
            return;
        };
        if !self.is_safe(*step, task.generation) {
            return;
        }
        if let Some(Done { input, .. }) = self.gang.take().and_then(|mut t| t.done.take()) {
            self.inputs.push_back(input);
        }
    }

    fn is_safe(&self, step: Step, generation: Generation) -> bool {
        match self.parts.job.checkpoint.publish_after {
            PublishAfter::Snapshot => true,
            PublishAfter::Disk => self.written == Some((step, generation)),
            PublishAfter::Replica => match self.replicas.safety(step) {
                Safety::Copying => false,
                safety => {
                    self.note_safety(step, safety);
                    true
                }
            },
        }
    }

    /// Steps go on that no other node holds: an alarm for as long as it is so.
    fn note_safety(&self, step: Step, safety: Safety) {
        let text = match safety {
            Safety::Copying => return,
            Safety::Alone => {
                format!("step {step} is committed on this node alone: no other node has joined")
            }
            Safety::Short | Safety::Nothing => {
                format!("step {step} is committed though no other node could hold all of it")
            }
            Safety::Safe(spread) => {
                let spread = spread.word();
                format!("from step {step} on other nodes hold every shard: two {spread}")
            }
        };
        let (now, feeds) = (self.parts.clock.now(), &self.parts.feeds);
        match safety {
            Safety::Safe(_) => feeds.lower(now, Alarm::NoReplica, "replica", text),
            _ => feeds.raise(now, Alarm::NoReplica, Severity::Warn, "replica", text),
        }
    }

    /// Offers the checkpoint that a step waits for, and offers it again while it is not written.
    pub(super) fn press_checkpoint(&mut self) {
        let waits = self.parts.job.checkpoint.publish_after == PublishAfter::Disk;
        let Some(task) = self.gang.as_ref().filter(|_| waits) else {
            return;
        };
        let Some(Done { step, input }) = &task.done else {
            return;
        };
        let soon = self.pressed.is_some_and(|at| at.elapsed() < PRESS);
        if soon || self.written == Some((*step, task.generation)) {
            return;
        }
        let (step, generation, reward) = (*step, task.generation, reward(input));
        let consumes = self.replicas.consumes.clone();
        let consumed = consumes.filter(|(of, _)| *of == step).map(|(_, all)| all);
        // One that is behind is offered again; the writer never queues.
        self.offer_checkpoint(step, generation, consumed.unwrap_or_default(), reward);
        self.pressed = Some(Instant::now());
    }

    pub(super) fn replica_status(&self) -> v1::ReplicaStatus {
        let newest = self.replicas.table.as_ref().and_then(Table::newest);
        let safety = newest.map_or(Safety::Nothing, |step| self.replicas.safety(step));
        let (state, spread) = match safety {
            Safety::Nothing => ("none yet", ""),
            Safety::Alone => ("alone", ""),
            Safety::Copying => ("copying", ""),
            Safety::Short => ("short", ""),
            Safety::Safe(spread) => ("safe", spread.word()),
        };
        let done = self.gang.as_ref().and_then(|task| task.done.as_ref());
        let waiting = done.map(|done| {
            let what = match self.parts.job.checkpoint.publish_after {
                PublishAfter::Disk => "its checkpoint on disk",
                _ => "its copies on other nodes",
            };
            format!("step {} waits for {what}", done.step)
        });
        v1::ReplicaStatus {
            step: newest.map_or(0, |step| step.0),
            state: state.to_owned(),
            spread: spread.to_owned(),
            waiting: waiting.unwrap_or_default(),
        }
    }

    pub(super) fn remote_status(&self) -> Option<v1::RemoteStatus> {
        let uploader = self.parts.uploader.as_ref()?;
        let standing = uploader.standing();
        Some(v1::RemoteStatus {
            url: uploader.url().to_owned(),
            step: standing.step.map(|step| step.0),
            sent_bytes: standing.sent_bytes,
            skipped: standing.skipped,
            failed: standing.failed,
            failing: standing.failing.unwrap_or_default(),
        })
    }
}

fn reward(input: &Input) -> Option<f64> {
    match input {
        Input::Gang(
            _,
            GangEvent::StepDone {
                metrics: StepMetrics { reward, .. },
                ..
            },
        ) => Some(*reward),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nodes_are_not_sent_to_what_a_leader_before_kept_in_its_own_folder() {
        let temp = tempfile::tempdir().unwrap();
        let folder = |name: &str| temp.path().join(name);
        for name in ["before", "now", "ckpt"] {
            std::fs::create_dir(folder(name)).unwrap();
        }
        let shards = Shards::new(folder("now"), folder("ckpt"));
        let snapshot = |of: &[&str]| {
            let shards = of.iter().enumerate().map(|(rank, name)| {
                let path = folder(name).join(format!("rank-{rank}"));
                std::fs::write(&path, "weights").unwrap();
                v1::SnapshotReply {
                    path: path.display().to_string(),
                    ..Default::default()
                }
            });
            SnapshotShards {
                generation: Generation(1),
                shards: shards.collect(),
            }
        };
        assert!(is_here(&shards, &snapshot(&["now", "now"])));
        assert!(!is_here(&shards, &snapshot(&["before", "before"])));
        assert!(!is_here(&shards, &snapshot(&["now", "before"])));
    }

    #[test]
    fn a_node_that_claims_another_digest_for_its_copy_does_not_hold_the_shard() {
        let place = |name: &str| Place {
            name: name.to_owned(),
            labels: Default::default(),
        };
        let mut table = Table::new(place("leader"));
        table.joined(place("b"), []);
        let content = Content {
            bytes: 5,
            xxh3: None,
        };
        table.snapshot(Step(3), Generation(1), [("leader".to_owned(), content)]);
        let key = table.take_orders().pop().unwrap().key;
        let mut replicas = Replicas {
            table: Some(table),
            ..Replicas::default()
        };
        let held = |replicas: &Replicas| {
            let table = replicas.table.as_ref().unwrap();
            (table.held_by("b").count(), replicas.digests.len())
        };
        let sent = Some(9);
        assert!(!replicas.holds("b", key, 8, sent));
        assert_eq!(held(&replicas), (0, 0));
        assert!(!matches!(replicas.safety(Step(3)), Safety::Safe(_)));
        assert!(replicas.holds("b", key, 9, sent));
        assert_eq!(held(&replicas), (1, 1));
        // It said the right one, and says another one now.
        assert!(!replicas.holds("b", key, 8, sent));
        assert_eq!(held(&replicas), (0, 0));
    }
}
