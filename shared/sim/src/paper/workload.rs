//! The paper's workloads as durations.
use robust_ahead::cluster::{LongTail, Timing};
use std::time::Duration;

/// A workload of the paper's evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// As the paper calls it.
    pub name: &'static str,
    /// GPUs it runs on.
    pub gpus: u32,
    /// Prompts of a step.
    pub prompts: u32,
    /// Responses to each.
    pub responses: u32,
    /// How long everything takes.
    pub timing: Timing,
    /// About how long a step takes, to place faults in it.
    pub step: Duration,
}

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

const BASE: Timing = Timing {
    machine: seconds(30),
    container: seconds(30),
    trainer_start: seconds(190),
    engine_start: seconds(49),
    agent_start: seconds(10),
    restore: seconds(5),
    publish: seconds(1),
    pull: seconds(9),
    switch: seconds(5),
    old_logprob: seconds(20),
    update: seconds(70),
    snapshot: seconds(2),
    concurrency: 26,
    conversation: LongTail {
        median: seconds(40),
        sigma: 0.5,
        max: seconds(150),
    },
    turns: 1,
    tool: Duration::ZERO,
    exit_seen: Duration::from_millis(100),
    node_seen: seconds(5),
    anew: Duration::ZERO,
};

/// All of them.
pub const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "8B-Math",
        gpus: 256,
        prompts: 64,
        responses: 8,
        timing: Timing {
            pull: seconds(2),
            old_logprob: seconds(6),
            update: seconds(18),
            concurrency: 15,
            conversation: LongTail {
                median: seconds(14),
                sigma: 0.5,
                max: seconds(55),
            },
            ..BASE
        },
        step: seconds(47),
    },
    Workload {
        name: "32B-Math",
        gpus: 128,
        prompts: 64,
        responses: 8,
        timing: BASE,
        step: seconds(125),
    },
    Workload {
        name: "32B-SWE",
        gpus: 256,
        prompts: 64,
        responses: 8,
        timing: Timing {
            old_logprob: seconds(40),
            update: seconds(120),
            concurrency: 24,
            conversation: LongTail {
                median: seconds(300),
                sigma: 0.5,
                max: seconds(945),
            },
            turns: 8,
            tool: seconds(15),
            ..BASE
        },
        step: seconds(620),
    },
];
