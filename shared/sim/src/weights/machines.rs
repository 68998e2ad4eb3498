//! The machines of the simulation, and what is assumed of them.
use robust_ahead::cluster::{LongTail, Timing};
use robust_ahead::wire::fabric::{Chunk, Port};
use robust_ahead::wire::net::{Link, Net};
use robust_shared::core::{CoreConfig, LONGEST_S, Labels, NodeSpec, RuleSet};
use std::time::Duration;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machines {
    /// GPUs of a machine; a rollout has all of them, one rank each.
    pub gpus: usize,
    /// Links of a machine, which its GPUs share evenly.
    pub nics: usize,
    /// A link's line rate, in each direction.
    pub nic_bytes_per_s: f64,
    /// What is left of it for payload.
    pub goodput: f64,
    /// From one end of a link to another's.
    pub latency: Duration,
    /// Digests that a rank computes.
    pub digest_bytes_per_s: f64,
    /// Ranks of the trainer.
    pub trainer_ranks: usize,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks that a puller has asked for at a time in each flow.
    pub window: usize,
    /// From the controller to a process, or back.
    pub message: Duration,
    /// From a puller's order to its first request.
    pub connect: Duration,
}

impl Default for Machines {
    fn default() -> Self {
        Self {
            gpus: 8,
            nics: 4,
            nic_bytes_per_s: 25e9,
            goodput: 0.96,
            latency: Duration::from_micros(10),
            digest_bytes_per_s: 20e9,
            trainer_ranks: 64,
            chunk_bytes: 8 << 20,
            window: 3,
            message: Duration::from_micros(500),
            connect: Duration::from_millis(20),
        }
    }
}

/// A number of the model, and whose it is.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Assumption {
    /// What.
    pub name: &'static str,
    /// How much, with its unit.
    pub value: String,
    /// The paper's, or why this.
    pub why: &'static str,
}

impl Machines {
    /// Every number of the model.
    pub fn assumptions(&self) -> Vec<Assumption> {
        let gb = |bytes: f64| format!("{} GB/s", bytes / 1e9);
        let all = [
            (
                "machine",
                format!("{} GPUs, {} links", self.gpus, self.nics),
                "the paper's",
            ),
            (
                "link",
                gb(self.nic_bytes_per_s),
                "the paper's 200 Gb/s, in each direction",
            ),
            (
                "trainer",
                format!("{} ranks", self.trainer_ranks),
                "flat shards of equal size",
            ),
            (
                "rollout",
                format!("{} ranks", self.gpus),
                "tensor parallel on one machine",
            ),
            (
                "payload",
                format!("{} of the line rate", self.goodput),
                "headers, as RoCE has them",
            ),
            (
                "latency",
                format!("{:?}", self.latency),
                "a few switches and the transport",
            ),
            (
                "digest",
                gb(self.digest_bytes_per_s),
                "of a rank: XXH3 on one core",
            ),
            (
                "chunk",
                format!("{} MiB", self.chunk_bytes >> 20),
                "the option --chunk-mib",
            ),
            (
                "asked ahead",
                format!("{} chunks", self.window),
                "of each pair of ranks",
            ),
            (
                "message",
                format!("{:?}", self.message),
                "controller to process, or back",
            ),
            (
                "connect",
                format!("{:?}", self.connect),
                "from an order to the first request",
            ),
        ];
        let of = |(name, value, why)| Assumption { name, value, why };
        all.into_iter().map(of).collect()
    }

    /// What a link carries of payload.
    pub(super) fn rate(&self) -> f64 {
        self.nic_bytes_per_s * self.goodput
    }

    /// Machines of the trainer.
    pub(super) fn trainers(&self) -> usize {
        self.trainer_ranks.div_ceil(self.gpus)
    }

    /// The ports of a machine's GPUs, which share its links; those may be slower by a factor.
    pub(super) fn ports(&self, net: &mut Net<Chunk>, slower: f64) -> Vec<Port> {
        let rate = self.rate() / slower;
        let Self { gpus, nics, .. } = *self;
        let mut pair = |_| (net.link(rate), net.link(rate));
        let links: Vec<(Link, Link)> = (0..nics).map(&mut pair).collect();
        let port = |gpu: usize| {
            let (out, into) = links[gpu * nics / gpus];
            let digest = net.link(self.digest_bytes_per_s);
            Port { out, into, digest }
        };
        (0..gpus).map(port).collect()
    }

    /// The job as the controller knows it.
    pub(super) fn job(&self, rollouts: usize) -> CoreConfig {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let of = |name: String, pool: &str, slots: usize| NodeSpec {
            name,
            labels: Labels::default(),
            pools: [(pool.to_owned(), number(slots))].into(),
        };
        let Self {
            gpus,
            trainer_ranks,
            ..
        } = *self;
        let machines = self.trainers();
        let head = of("head".to_owned(), "agent", 1);
        let trains = (0..machines).map(|n| of(format!("train-{n}"), "train", gpus));
        let rolls = (0..rollouts).map(|n| of(format!("rollout-{n}"), "rollout", 1));
        let rules = RuleSet::default().with(|r| {
            let longest = Duration::from_secs_f64(LONGEST_S);
            r.health_probe.interval.set(longest);
            r.node_lost.window.set(longest);
            r.rollout_silent.window.set(longest);
            r.trainer_idle.window.set(longest);
        });
        CoreConfig {
            ranks: number(trainer_ranks),
            rollouts: number(rollouts),
            agents: 1,
            nodes: std::iter::once(head).chain(trains).chain(rolls).collect(),
            rules,
            ..CoreConfig::default()
        }
    }
}

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Everybody is there long before the first version; nothing else happens while it is pulled.
pub(super) const TIMING: Timing = Timing {
    machine: seconds(30),
    container: seconds(30),
    trainer_start: seconds(1),
    engine_start: seconds(1),
    agent_start: seconds(1),
    restore: seconds(30),
    publish: seconds(1),
    pull: seconds(10),
    switch: seconds(5),
    old_logprob: seconds(360),
    update: seconds(1440),
    snapshot: seconds(5),
    concurrency: 8,
    conversation: LongTail {
        median: seconds(300),
        sigma: 0.0,
        max: seconds(300),
    },
    turns: 1,
    tool: Duration::ZERO,
    exit_seen: Duration::from_millis(100),
    node_seen: seconds(5),
    anew: Duration::ZERO,
};
