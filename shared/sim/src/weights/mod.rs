//! How long a new version takes to all rollouts, on machines like the paper's: 8 GPUs and four links
//! of 200 Gb/s each, a model of 470 GB, a trainer of 64 GPUs, rollouts of 8.
//!
//! ```text
//!  Core ── AssignPull ──► pullers ── chunks over links (`robust_ahead::wire`) ──► PullStarted, Pulled
//! ```
//! The controller that decides is the real one; which bytes leave which rank is the real plan from
//! 64 flat shards to 8 tensor-parallel ranks. Links, latencies and digests are a model
//! ([`Machines`]). In the same network:
//! - *ideal*: the bytes of a version through all links of one machine at line rate, and nothing else;
//! - *store and forward*: the same controller, but rollouts serve only what they have completely;
//! - *gather and broadcast*: one trainer rank collects everything and sends it down a chain through
//!   its own link, both at once; kinder than frameworks that do the one after the other;
//! - *paper*: 6 s for one rollout; its cost grows linearly while the rollouts double, which is drawn
//!   here as another 6 s for each doubling.
mod machines;
pub mod model;

pub use machines::{Assumption, Machines};

use machines::TIMING;
use model::Widths;
use robust_ahead::cluster::{Cluster, Plan, Wires};
use robust_ahead::wire::cut::Cut;
use robust_ahead::wire::fabric::{Fabric, Port, Source};
use robust_ahead::wire::net::Net;
use robust_shared::ids::{InstanceId, Role};
use robust_shared::time::Time;
use robust_shared::weights::{LayoutError, ReshardError, ReshardPlan};
use std::time::Duration;

/// Nothing takes longer.
const LATEST: Duration = Duration::from_secs(3600);
/// The paper's time for one rollout of 235B.
pub const PAPER_S: f64 = 6.0;

/// How a version is brought to the rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Rollouts serve each chunk as soon as they have verified it.
    Pipelined,
    /// Rollouts serve a version that they have completely.
    StoreAndForward,
    /// One trainer rank collects everything and sends it down a chain.
    GatherAndBroadcast,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Rollouts that were to get it.
    pub rollouts: usize,
    /// Rollouts that got it.
    pub served: usize,
    /// Seconds from the version's being published to the last rollout's having verified it.
    pub seconds: f64,
    /// Seconds to the first rollout's having verified it.
    pub first_s: f64,
    /// Copies of the weights that left the trainer.
    pub trainer_copies: f64,
}

/// A model on machines, with the plan from trainer to rollout.
#[derive(Clone, Debug)]
pub struct Experiment {
    machines: Machines,
    /// Bytes of the model.
    bytes: u64,
    /// By rollout rank, then trainer rank.
    shares: Vec<Vec<u64>>,
}

/// The paper's time, where it is stated for one rollout and said to grow linearly while the rollouts
/// double.
pub fn paper_s(rollouts: usize) -> f64 {
    PAPER_S * (1.0 + (rollouts.max(1) as f64).log2())
}

/// Why there is nothing to simulate.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SimError {
    /// The model cannot be cut so.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// There is no plan between the layouts.
    #[error(transparent)]
    Plan(#[from] ReshardError),
}

impl Experiment {
    /// Makes the plan.
    pub fn new(model: &Widths, machines: Machines) -> Result<Self, SimError> {
        let trainer = model.trainer(machines.trainer_ranks)?;
        let rollout = model.rollout(machines.gpus)?.cut_at(machines.chunk_bytes);
        let plan = ReshardPlan::between(&trainer, &rollout)?;
        let of = |rank| {
            (0..plan.sources())
                .map(|from| plan.bytes(from, rank))
                .collect()
        };
        Ok(Self {
            machines,
            bytes: trainer.tensors().iter().map(|t| t.bytes).sum(),
            shares: (0..plan.targets()).map(of).collect(),
        })
    }

    /// Bytes of the model.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The model's bytes through all links of one machine.
    pub fn ideal_s(&self) -> f64 {
        let machine = self.machines.nics as f64 * self.machines.nic_bytes_per_s;
        self.bytes as f64 / machine
    }

    /// Brings a version to so many rollouts.
    pub fn run(&self, rollouts: usize, method: Method) -> Outcome {
        match method {
            Method::Pipelined => self.controlled(rollouts, true),
            Method::StoreAndForward => self.controlled(rollouts, false),
            Method::GatherAndBroadcast => self.broadcast(rollouts),
        }
    }

    /// The controller decides.
    fn controlled(&self, rollouts: usize, relays_in_progress: bool) -> Outcome {
        let cluster = self.cluster(rollouts, relays_in_progress, None);
        self.served(cluster, rollouts)
    }

    /// Of so many rollouts the one in the middle has links that are slower by this factor: all that
    /// come after it in the chain get no more than it does.
    pub fn slow_machine(&self, rollouts: usize, factor: f64) -> Outcome {
        let slow = Some((rollouts / 2, factor));
        self.served(self.cluster(rollouts, true, slow), rollouts)
    }

    /// Of so many rollouts one in the middle dies when it has half of the version: seconds until all
    /// others have it, and until the one that takes its place has it too.
    pub fn relay_dies(&self, rollouts: usize) -> (f64, f64) {
        let (mut cluster, victim) = (self.cluster(rollouts, true, None), rollouts / 2);
        let half = self.version_bytes() / 2;
        cluster.run_until_fetched(victim, half, LATEST);
        let id = InstanceId {
            role: Role::Rollout,
            index: u32::try_from(victim).unwrap_or(u32::MAX),
        };
        cluster.lose_process(id);
        cluster.run_until_served(rollouts - 1, LATEST);
        let others = Self::last(&cluster);
        cluster.run_until_served(rollouts, LATEST);
        let message = self.machines.message.as_secs_f64();
        (others + message, Self::last(&cluster) + message)
    }

    /// Seconds from the version's being published to the last rollout's having it.
    fn last(cluster: &Cluster) -> f64 {
        let wires = cluster.wires();
        let published = wires.and_then(|wires| wires.published).unwrap_or_default();
        let ends = wires.and_then(|wires| wires.served.iter().map(|(_, at)| *at).max());
        ends.map_or(f64::INFINITY, |at| at.since(published).as_secs_f64())
    }

    fn cluster(
        &self,
        rollouts: usize,
        relays_in_progress: bool,
        slow: Option<(usize, f64)>,
    ) -> Cluster {
        let wires = Wires {
            fabric: self.fabric(rollouts, slow),
            message: self.machines.message,
            connect: self.machines.connect,
            relays_in_progress,
            published: None,
            served: Vec::new(),
        };
        let plan = Plan {
            config: self.machines.job(rollouts),
            timing: TIMING,
            seed: 1,
            samples: Duration::ZERO,
            beats: Duration::ZERO,
            journal: false,
            records: false,
            guard: false,
        };
        Cluster::new(plan).wired(wires)
    }

    fn served(&self, mut cluster: Cluster, rollouts: usize) -> Outcome {
        cluster.run_until_served(rollouts, LATEST);
        let wires = cluster.wires();
        let published = wires.and_then(|wires| wires.published).unwrap_or_default();
        let served = wires.map_or(&[][..], |wires| &wires.served);
        // The ranks' message that it is published is on its way first.
        let after = |at: Time| (at.since(published) + self.machines.message).as_secs_f64();
        let sent = wires.map_or(0, |wires| wires.fabric.sent_by_trainer());
        let ends = || served.iter().map(|(_, at)| *at);
        Outcome {
            rollouts,
            served: served.len(),
            seconds: ends().max().map_or(f64::INFINITY, after),
            first_s: ends().min().map_or(f64::INFINITY, after),
            trainer_copies: sent as f64 / self.version_bytes() as f64,
        }
    }

    /// Bytes of all ranks of a rollout: a few more than the model's.
    fn version_bytes(&self) -> u64 {
        self.shares.iter().flatten().sum()
    }

    fn fabric(&self, rollouts: usize, slow: Option<(usize, f64)>) -> Fabric {
        let mut net = Net::new(self.machines.latency);
        let trainer =
            (0..self.machines.trainers()).flat_map(|_| self.machines.ports(&mut net, 1.0));
        let trainer = trainer.map(|port| port.out).collect();
        let cut = |shares: &Vec<u64>| Cut::of(shares, self.machines.chunk_bytes);
        let cuts = self.shares.iter().map(cut).collect();
        let factor = |host| {
            slow.filter(|(slow, _)| *slow == host)
                .map_or(1.0, |(_, by)| by)
        };
        let mut host = |host| self.machines.ports(&mut net, factor(host));
        let hosts = (0..rollouts).map(&mut host).collect();
        Fabric::new(net, self.machines.window, trainer, cuts, hosts)
    }

    /// The first trainer rank pulls from all, the first rollout from it, the next from that, and all
    /// through one link each.
    fn broadcast(&self, rollouts: usize) -> Outcome {
        let mut net = Net::new(self.machines.latency);
        let trainer =
            (0..self.machines.trainers()).flat_map(|_| self.machines.ports(&mut net, 1.0));
        let trainer: Vec<Port> = trainer.collect();
        let collector = Port {
            digest: net.link(f64::INFINITY),
            ..trainer[0]
        };
        let mut hosts = vec![vec![collector]];
        for _ in 0..rollouts {
            let [out, into] = [0, 1].map(|_| net.link(self.machines.rate()));
            let digest = net.link(f64::INFINITY);
            hosts.push(vec![Port { out, into, digest }]);
        }
        let ranks = trainer.len() as u64;
        let shares: Vec<_> = (0..ranks).map(|_| self.bytes / ranks).collect();
        let cuts = vec![Cut::of(&shares, self.machines.chunk_bytes)];
        let out = trainer.iter().map(|port| port.out).collect();
        let window = self.machines.window;
        let mut fabric = Fabric::new(net, window, out, cuts, hosts);
        fabric.pull(Duration::ZERO, 0, Source::Trainer);
        for host in 1..=rollouts {
            fabric.pull(Duration::ZERO, host, Source::Rollout(host - 1));
        }
        let mut ends = Vec::new();
        while let Some(at) = fabric.next_at() {
            if fabric.step().is_some_and(|host| host > 0) {
                ends.push(at.as_secs_f64());
            }
        }
        Outcome {
            rollouts,
            served: ends.len(),
            seconds: ends.last().copied().unwrap_or(f64::INFINITY),
            first_s: ends.first().copied().unwrap_or(f64::INFINITY),
            trainer_copies: fabric.sent_by(0) as f64 / self.bytes as f64,
        }
    }
}

#[cfg(test)]
mod tests;
