//! The planner of pulls: who is told to pull from whom, in sentences.
mod faults;
mod stored;

use super::*;
use crate::core::weights::{Holder, Supply};

/// A job whose processes do nothing but what a test says, and the orders its controller gave.
struct Fleet {
    core: Core,
    now: Time,
    lives: std::collections::BTreeMap<InstanceId, Incarnation>,
    orders: Vec<String>,
    /// The number of the order that each life was given last.
    numbers: std::collections::BTreeMap<Incarnation, u64>,
    published: u64,
}

fn rollout(index: u32) -> InstanceId {
    id(Role::Rollout, index)
}

/// Nodes of two rollouts each, in these racks; the first has the trainer and the agent worker too.
fn in_racks(racks: &[&str]) -> Vec<NodeSpec> {
    let node = |(at, rack): (usize, &&str)| {
        let mut pools = vec![("rollout".to_owned(), 2)];
        if at == 0 {
            pools.extend([("train".to_owned(), 1), ("agent".to_owned(), 1)]);
        }
        NodeSpec {
            name: format!("node-{at}"),
            labels: Labels {
                rack: (*rack).to_owned(),
                ..Labels::default()
            },
            pools: pools.into_iter().collect(),
        }
    };
    racks.iter().enumerate().map(node).collect()
}

impl Fleet {
    /// All processes are linked, and nothing is published yet.
    fn new(rollouts: u32, nodes: Vec<NodeSpec>) -> Self {
        let config = CoreConfig {
            ranks: 1,
            rollouts,
            agents: 1,
            nodes: nodes.clone(),
            rules: quick_rules().with(|r| r.attach_overdue.window.set(ms(600_000))),
            ..small(Mode::Async, 9)
        };
        let mut core = Core::new(config);
        // As if a step had been committed: a fault of the trainer in a job's first one restarts everything.
        core.s.gang.pretend_stepped();
        let mut fleet = Self {
            core,
            now: Time(1_000_000_000),
            lives: Default::default(),
            orders: Vec::new(),
            numbers: Default::default(),
            published: 0,
        };
        for node in nodes.into_iter().skip(1) {
            let running = Vec::new();
            fleet.feed(Input::NodeJoined { node, running });
        }
        fleet.feed(Input::Start);
        let all: Vec<_> = fleet.lives.keys().copied().collect();
        all.into_iter().for_each(|id| fleet.attach(id));
        fleet.restore();
        fleet
    }

    /// The first version is there for this many rollouts on one node.
    fn publishing(rollouts: u32) -> Self {
        let mut fleet = Self::new(rollouts, Vec::new());
        fleet.publish();
        fleet
    }

    fn feed(&mut self, input: Input) {
        self.core.handle(self.now, input);
        self.core.check().unwrap();
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Spawn {
                    id, incarnation, ..
                } => drop(self.lives.insert(id, incarnation)),
                Output::AssignPull {
                    puller,
                    version,
                    order,
                    sources,
                    ..
                } => {
                    self.numbers.insert(puller, order);
                    let (puller, from) = (self.name(puller), self.name(sources[0]));
                    self.orders.push(format!("{version}: {puller} from {from}"));
                }
                _ => {}
            }
        }
    }

    fn name(&self, life: Incarnation) -> InstanceId {
        *self.lives.iter().find(|(_, l)| **l == life).unwrap().0
    }

    /// What was ordered since it was last asked.
    fn orders(&mut self) -> Vec<String> {
        std::mem::take(&mut self.orders)
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.core.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.feed(Input::Timeout);
        }
        self.now = end;
    }

    fn attach(&mut self, id: InstanceId) {
        let incarnation = self.lives[&id];
        let hello = Hello::default();
        self.feed(Input::Role(incarnation, RoleEvent::Attached { hello }));
    }

    fn restore(&mut self) {
        let (generation, step) = (self.core.s.gang.generation(), self.core.s.committed);
        self.feed(Input::Gang(generation, GangEvent::Restored { step }));
    }

    /// The trainer publishes the version of the last committed step.
    fn publish(&mut self) {
        self.feed(Input::Gang(
            self.core.s.gang.generation(),
            GangEvent::Published {
                version: WeightVersion(self.published),
                bytes: 100,
                digest: String::new(),
            },
        ));
    }

    fn publish_next(&mut self) {
        self.published += 1;
        self.core.s.committed = Step(self.published);
        self.feed(Input::Timeout);
        self.publish();
    }

    fn starts(&mut self, puller: u32) {
        let (incarnation, version) = (self.lives[&rollout(puller)], self.version());
        let order = self.number(puller);
        let started = RoleEvent::PullStarted { version, order };
        self.feed(Input::Role(incarnation, started));
    }

    fn moves(&mut self, puller: u32, bytes: u64) {
        let (incarnation, version) = (self.lives[&rollout(puller)], self.version());
        self.feed(Input::Role(
            incarnation,
            RoleEvent::PullProgress {
                version,
                bytes,
                total: 100,
            },
        ));
    }

    fn ends(&mut self, puller: u32, result: Result<(), PullFailure>) {
        self.ends_pull_of(self.version(), puller, result);
    }

    fn ends_pull_of(
        &mut self,
        version: WeightVersion,
        puller: u32,
        result: Result<(), PullFailure>,
    ) {
        let order = self.number(puller);
        self.answers((version, order), puller, result);
    }

    /// The number of the order that it was given last.
    fn number(&self, puller: u32) -> u64 {
        let life = self.lives[&rollout(puller)];
        self.numbers.get(&life).copied().unwrap_or_default()
    }

    fn answers(
        &mut self,
        (version, order): (WeightVersion, u64),
        puller: u32,
        result: Result<(), PullFailure>,
    ) {
        let ended = RoleEvent::Pulled {
            version,
            order,
            result,
        };
        self.feed(Input::Role(self.lives[&rollout(puller)], ended));
    }

    fn version(&self) -> WeightVersion {
        WeightVersion(self.published)
    }

    fn dies(&mut self, who: InstanceId) {
        self.feed(Input::Role(
            self.lives[&who],
            RoleEvent::Exited {
                at: None,
                exit: Exit::Signal(9),
                detail: String::new(),
            },
        ));
    }

    /// A chain in which everybody reads along with the one before.
    fn chain(rollouts: u32) -> Self {
        let mut fleet = Self::publishing(rollouts);
        (0..rollouts).for_each(|n| fleet.starts(n));
        fleet.orders();
        fleet
    }

    fn sources(&self, puller: u32) -> Vec<Incarnation> {
        let pull = self.holder(puller).pull();
        pull.map_or_else(Vec::new, |p| p.sources.clone())
    }

    fn supply(&self, puller: u32) -> Option<Supply> {
        self.holder(puller).pull().map(|p| p.supply)
    }

    fn holder(&self, engine: u32) -> &Holder {
        self.core.s.weights.of(rollout(engine))
    }
}

#[test]
fn a_version_runs_down_a_chain_of_rollouts_and_leaves_the_trainer_once() {
    let mut fleet = Fleet::publishing(3);
    assert_eq!(fleet.orders(), ["v0: rollout-0 from trainer-0"]);
    fleet.moves(0, 50);
    assert!(
        fleet.orders().is_empty(),
        "nobody can read it before it says so"
    );
    fleet.starts(0);
    assert_eq!(fleet.orders(), ["v0: rollout-1 from rollout-0"]);
    fleet.starts(1);
    assert_eq!(fleet.orders(), ["v0: rollout-2 from rollout-1"]);
}

#[test]
fn the_trainer_gives_no_second_copy_while_a_relay_has_or_gets_the_version() {
    let mut fleet = Fleet::publishing(3);
    fleet.starts(0);
    fleet.ends(0, Ok(()));
    assert_eq!(
        fleet.orders().len(),
        2,
        "to the first, and on to the second"
    );
    fleet.starts(1);
    assert_eq!(fleet.orders(), ["v0: rollout-2 from rollout-1"]);
}

#[test]
fn a_late_joiner_pulls_from_its_node_then_from_its_rack_and_from_whoever_has_everything() {
    let mut fleet = Fleet::new(6, in_racks(&["a", "b", "b"]));
    let slot = |n| {
        fleet
            .core
            .s
            .roster
            .instances()
            .get(rollout(n))
            .unwrap()
            .slot()
            .cloned()
    };
    let nodes: Vec<u32> = (0..6).map(|n| slot(n).unwrap().node.0).collect();
    let here = |node: u32| {
        (0..6)
            .filter(|n| nodes[*n as usize] == node)
            .collect::<Vec<u32>>()
    };
    let (near, last) = (here(1), here(2));
    fleet.publish();
    for _ in 0..6 {
        (0..6).for_each(|n| fleet.starts(n));
    }
    (0..6).for_each(|n| fleet.ends(n, Ok(())));
    fleet.orders();

    let mut rejoin = |gone: &[u32]| {
        let ids: Vec<_> = gone.iter().map(|n| rollout(*n)).collect();
        ids.iter().for_each(|id| fleet.dies(*id));
        fleet.pass(Duration::from_secs(1));
        fleet.attach(ids[0]);
        fleet.orders().pop().unwrap()
    };
    let (a, b, c) = (last[0], last[1], near[0]);
    assert_eq!(
        rejoin(&[a]),
        format!("v0: rollout-{a} from rollout-{b}"),
        "its node"
    );
    assert_eq!(
        rejoin(&[b, a]),
        format!("v0: rollout-{b} from rollout-{c}"),
        "its rack"
    );
}

#[test]
fn a_chain_leaves_a_node_and_a_rack_only_when_all_there_are_served() {
    let mut fleet = Fleet::new(6, in_racks(&["a", "b", "a"]));
    let node = |n| {
        let slot = fleet
            .core
            .s
            .roster
            .instances()
            .get(rollout(n))
            .unwrap()
            .slot()
            .cloned();
        slot.unwrap().node.0
    };
    let nodes: Vec<u32> = (0..6).map(node).collect();
    fleet.publish();
    let mut chain = Vec::new();
    while let Some(order) = fleet.orders().pop() {
        let puller = order.strip_prefix("v0: rollout-").unwrap()[..1]
            .parse()
            .unwrap();
        chain.push(nodes[puller as usize]);
        fleet.starts(puller);
    }
    assert_eq!(chain, [0, 0, 2, 2, 1, 1]);
}
