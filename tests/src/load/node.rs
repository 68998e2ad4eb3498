//! A light node: it keeps the protocol of nodes, and starts no process.
use super::instance::Instance;
use super::ledger::{Ledger, one_more};
use super::session::{Door, Session, Stream, next, say};
use super::shape::{Shape, TICK, name};
use robust_proto::v1;
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::role_exited::Exit;
use robustd::nodes::JoinToken;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tonic::Status;

/// Before a node whose stream ended joins again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What a node is played with.
pub(super) struct Node {
    pub number: u32,
    pub shape: Shape,
    pub addr: String,
    pub token: Arc<JoinToken>,
    pub ledger: Arc<Ledger>,
    /// So many make connections at a time: the leader has few places for callers of one address that have proven nothing.
    pub doors: Arc<Semaphore>,
    /// A number for each instance of this node that is to end.
    pub strikes: mpsc::UnboundedReceiver<usize>,
}

/// What goes on while it is joined.
struct Joined<'a> {
    node: &'a mut Node,
    session: Session,
    stream: Stream,
    instances: &'a mut BTreeMap<u64, Instance>,
}

impl Node {
    /// Joins, and joins again after every break, for as long as it is let.
    pub async fn run(mut self) {
        let mut instances = BTreeMap::new();
        let mut door = None;
        loop {
            if let Err(status) = self.once(&mut door, &mut instances).await {
                self.ledger.refused(&name(self.number), &status);
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    async fn once(
        &mut self,
        door: &mut Option<Door>,
        instances: &mut BTreeMap<u64, Instance>,
    ) -> Result<(), Status> {
        let place = Arc::clone(&self.doors);
        let place = place.acquire_owned().await;
        let name = name(self.number);
        let there = match door {
            Some(there) => there.clone(),
            None => {
                let enrolled = Door::enroll(&self.addr, &self.token, &name).await?;
                door.insert(enrolled).clone()
            }
        };
        let standing = v1::NodeStanding {
            identity: format!("identity of {name}"),
            advertise: "127.0.0.1".to_owned(),
            running: instances.keys().copied().collect(),
            renews: true,
            hears_beats: true,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        };
        let (session, stream) = there.join(standing).await?;
        drop(place);
        for instance in instances.values_mut() {
            instance.link(&session, &self.ledger, self.shape);
        }
        let ledger = Arc::clone(&self.ledger);
        one_more(&ledger.joined);
        let mut joined = Joined {
            node: self,
            session,
            stream,
            instances,
        };
        let ended = joined.talk().await;
        ledger.joined.fetch_sub(1, Ordering::Relaxed);
        one_more(&ledger.let_go);
        ended
    }
}

impl Joined<'_> {
    /// Until the stream ends.
    async fn talk(&mut self) -> Result<(), Status> {
        let Shape { nodes, .. } = self.node.shape;
        // Nodes are not in step with each other.
        let first = Instant::now() + TICK * self.node.number / nodes;
        let mut ticks = interval_at(first, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                due = ticks.tick() => self.tick(due),
                order = next(&mut self.stream.down) => match order? {
                    Some(order) => self.on_order(order),
                    None => return Ok(()),
                },
                Some(number) = self.node.strikes.recv() => self.strike(number),
            }
        }
    }

    /// What it says four times a second.
    fn tick(&mut self, due: Instant) {
        let ledger = &self.node.ledger;
        ledger.note(&ledger.late, due.into_std());
        let usages = self.instances.values_mut().map(Instance::tick).collect();
        let samples = v1::NodeSamples {
            roles: usages,
            devices: Vec::new(),
        };
        say(&self.stream.up, Up::Beat(v1::NodeBeat {}));
        say(&self.stream.up, Up::Samples(samples));
    }

    fn on_order(&mut self, order: Down) {
        match order {
            Down::Spawn(spawn) => self.start(&spawn),
            Down::Kill(kill) => self.end(kill.incarnation),
            Down::Collect(collect) => {
                let evidence = v1::RoleEvidence {
                    incarnation: collect.incarnation,
                    state: "lives".to_owned(),
                    ..Default::default()
                };
                say(&self.stream.up, Up::Evidence(evidence));
            }
            _ => {}
        }
    }

    fn start(&mut self, spawn: &v1::SpawnRole) {
        let ledger = &self.node.ledger;
        ledger.is_ordered(&(spawn.role.clone(), spawn.index));
        let incarnation = spawn.incarnation;
        // No process has it; the leader knows an instance by it, on this node.
        let pid = 1000 + u32::try_from(incarnation % 1_000_000).unwrap_or(0);
        say(
            &self.stream.up,
            Up::Spawned(v1::RoleSpawned { incarnation, pid }),
        );
        let instance = self.instances.entry(incarnation);
        let instance = instance.or_insert_with(|| Instance::new(spawn, pid));
        instance.link(&self.session, ledger, self.node.shape);
    }

    /// An instance of this node ends by itself: one that is linked, and no rank.
    fn strike(&mut self, number: usize) {
        let may = |i: &&Instance| i.is_linked() && i.place().0 != "trainer";
        let may: Vec<&Instance> = self.instances.values().filter(may).collect();
        let Some(one) = may.get(number % may.len().max(1)) else {
            return;
        };
        let (incarnation, place) = (one.incarnation, one.place().clone());
        self.node.ledger.ends(place);
        self.end(incarnation);
    }

    fn end(&mut self, incarnation: u64) {
        if let Some(mut ended) = self.instances.remove(&incarnation) {
            ended.unlink(&self.node.ledger);
        }
        let exited = v1::RoleExited {
            incarnation,
            exit: Some(Exit::Signal(9)),
            tail_of_log: String::new(),
        };
        say(&self.stream.up, Up::Exited(exited));
    }
}
