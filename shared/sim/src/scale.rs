//! One job on very many machines for a long time, some of which die: what the controller can bear.
//!
//! A fifth of the machines train, the others generate; a step takes half an hour. Neither heartbeats
//! nor samples nor health probes are simulated one by one, they would be thousands of millions a week:
//! the rules that live of them are off, and what such inputs cost is what the stream
//! ([`super::stream`]) measures.
use robust_ahead::cluster::{Cluster, LongTail, Plan, Timing, Written, unit};
use robust_ahead::dice::Dice;
use robust_shared::core::{CodedError, CoreConfig, LONGEST_S, Labels, NodeSpec, Outcome, RuleSet};
use std::time::Duration;

/// Machine faults per 1,000 machines and week (the paper's operators').
pub const FAULTS: f64 = 30.0;
/// Heartbeats are not simulated, but nobody is silent for longer than the longest window of the rule, 30 days.
const HEARD_EVERY: Duration = Duration::from_secs(10 * 86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// How large, and which faults.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Machines, without the leader's own.
    pub nodes: u32,
    /// Decides lengths and deaths.
    pub seed: u64,
}

/// A run under way.
pub struct Run {
    /// Its cluster.
    pub cluster: Cluster,
    dice: Dice,
    between: Duration,
    next_death: Duration,
    next_heard: Duration,
    deaths: u64,
}

/// Its figures.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    /// Machines.
    pub nodes: u32,
    /// Days of virtual time.
    pub days: f64,
    /// Whether the job still runs.
    pub running: bool,
    /// Steps committed.
    pub steps: u64,
    /// Machines that died.
    pub deaths: u64,
    /// Incidents: machines that died, and whatever followed.
    pub incidents: u64,
    /// Those that cost a restart of everything.
    pub task_restarts: u64,
    /// Effective training time ratio.
    pub ettr: f64,
    /// The same less the work done twice.
    pub goodput: f64,
    /// Inputs the controller took.
    pub inputs: u64,
    /// Records, with what of the state was written with them.
    pub written: Written,
    /// Digest of everything it decided.
    pub digest: u64,
}

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A large model on long conversations.
pub(super) const TIMING: Timing = Timing {
    machine: seconds(30),
    container: seconds(30),
    trainer_start: seconds(166),
    engine_start: seconds(49),
    agent_start: seconds(10),
    restore: seconds(15),
    publish: seconds(1),
    pull: seconds(10),
    switch: seconds(5),
    old_logprob: seconds(360),
    update: seconds(1440),
    snapshot: seconds(5),
    concurrency: 8,
    conversation: LongTail {
        median: seconds(300),
        sigma: 0.5,
        max: seconds(945),
    },
    turns: 1,
    tool: Duration::ZERO,
    exit_seen: Duration::from_millis(100),
    node_seen: seconds(5),
    anew: Duration::ZERO,
};

/// The leader's own machine.
pub(super) const HEAD: &str = "head";

/// Agent workers of a job of so many machines.
pub(super) fn agents(nodes: u32) -> u32 {
    (nodes / 100).max(1)
}

/// Machines of a job of this size: the leader's own, which holds the agent workers, then the others.
pub(super) fn machines(ranks: u32, rollouts: u32, agents: u32) -> Vec<NodeSpec> {
    let of = |name: String, pool: &str, slots: u32| NodeSpec {
        name,
        labels: Labels::default(),
        pools: [(pool.to_owned(), slots)].into(),
    };
    let head = of(HEAD.to_owned(), "agent", agents);
    let trains = (0..ranks).map(|n| of(format!("train-{n}"), "train", 1));
    let rolls = (0..rollouts).map(|n| of(format!("rollout-{n}"), "rollout", 1));
    std::iter::once(head).chain(trains).chain(rolls).collect()
}

/// Responses to each prompt.
const RESPONSES: u32 = 8;

/// Prompts of a step: about one for 8 machines, and so many that the ranks have equal parts of a batch.
fn prompts(nodes: u32, ranks: u32) -> u32 {
    let least = (nodes / 8).max(4);
    let fits = |prompts: &u32| (prompts * RESPONSES).is_multiple_of(ranks);
    (least..=least + ranks).find(fits).unwrap_or(least)
}

/// A job on so many machines, of which these are the first, the leader's own among them.
pub(super) fn config(nodes: u32, ranks: u32, first: Vec<NodeSpec>) -> CoreConfig {
    let rules = RuleSet::default().with(|r| {
        let longest = Duration::from_secs_f64(LONGEST_S);
        r.attach_overdue.window.set(Duration::from_secs(1200));
        r.health_probe.interval.set(longest);
        r.rollout_silent.window.set(longest);
        r.trainer_idle.window.set(longest);
        r.node_lost.window.set(longest);
    });
    CoreConfig {
        ranks,
        rollouts: nodes - ranks,
        agents: agents(nodes),
        agent_concurrency: 1024,
        prompts: prompts(nodes, ranks),
        responses: RESPONSES,
        steps: u64::from(u32::MAX),
        engine_requests: TIMING.concurrency + TIMING.concurrency.div_ceil(4),
        pullers_per_source: 2,
        nodes: first,
        rules,
        ..CoreConfig::default()
    }
}

impl Scale {
    fn config(self) -> CoreConfig {
        let ranks = (self.nodes / 5).max(1);
        let rollouts = self.nodes - ranks;
        let first = machines(ranks, rollouts, agents(self.nodes));
        CoreConfig {
            prompts: (self.nodes / 8).max(4),
            ..config(self.nodes, ranks, first)
        }
    }

    /// Starts it.
    pub fn start(self) -> Run {
        let cluster = Cluster::new(Plan {
            config: self.config(),
            timing: TIMING,
            seed: self.seed,
            samples: Duration::ZERO,
            beats: Duration::ZERO,
            journal: false,
            records: true,
            guard: false,
        });
        let mut run = Run {
            cluster,
            dice: Dice::keyed(self.seed, self.nodes.into()),
            between: WEEK.div_f64(f64::from(self.nodes) / 1000.0 * FAULTS),
            next_death: Duration::ZERO,
            next_heard: HEARD_EVERY,
            deaths: 0,
        };
        run.plan_death();
        run
    }
}

impl Run {
    /// Deaths are independent of each other: the time to the next one is exponential.
    fn plan_death(&mut self) {
        self.next_death += self.between.mul_f64(-unit(&mut self.dice).ln());
    }

    /// Goes on to that virtual time, or to the job's end.
    pub fn run_until(&mut self, until: Duration) {
        while self.next_heard <= until {
            let at = self.next_heard;
            self.next_heard += HEARD_EVERY;
            self.run_until(at);
            self.cluster.machines_are_heard();
        }
        while self.next_death <= until && self.cluster.outcome().is_none() {
            self.cluster.run_until(self.next_death);
            let count = self.cluster.machines().count() as u64;
            let which = usize::try_from(self.dice.below(count)).unwrap_or(0);
            let node = self.cluster.machines().nth(which);
            self.deaths += u64::from(node.is_some_and(|node| self.cluster.lose_machine(node)));
            self.plan_death();
        }
        self.cluster.run_until(until);
    }

    /// The figures so far.
    pub fn summary(&self, scale: Scale) -> Result<Summary, CodedError> {
        let cluster = &self.cluster;
        let whole = cluster
            .incidents()
            .filter(|i| i.plan.contains("whole task"));
        let (ettr, goodput) = robust_shared::ettr::totals(cluster.intervals());
        Ok(Summary {
            nodes: scale.nodes,
            days: cluster.elapsed().as_secs_f64() / 86_400.0,
            running: !matches!(cluster.outcome(), Some(Outcome::Failed { .. })),
            steps: cluster.core().state().committed().0,
            deaths: self.deaths,
            incidents: cluster.incidents().count() as u64,
            task_restarts: whole.count() as u64,
            ettr,
            goodput,
            inputs: cluster.inputs(),
            written: cluster.written().cloned().map_err(Clone::clone)?,
            digest: cluster.digest(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_hundred_machines_for_a_day_with_many_deaths_keep_every_index_right() {
        let scale = Scale {
            nodes: 100,
            seed: 3,
        };
        let mut run = scale.start();
        // As many deaths in a day as in a month.
        run.between /= 30;
        run.next_death = Duration::from_secs(1000);
        for hour in 1..=24 {
            run.run_until(Duration::from_secs(hour * 3600));
            assert_eq!(run.cluster.core().check(), Ok(()));
        }
        let summary = run.summary(scale).unwrap();
        assert!(summary.running && summary.deaths > 5, "{summary:?}");
        assert!(summary.steps > 25, "{summary:?}");
        assert!(summary.ettr > 0.8, "{summary:?}");
        let written = summary.written;
        let each = written.bytes / written.writes;
        assert!(written.records > 100 && each < written.first, "{written:?}");
    }
}
