//! The paper's experiments on the simulated cluster: 100 steps, all trainer processes killed in place at a
//! random time in every 10, for its workloads, modes and policies.
//!
//! A machine has 8 GPUs and holds one instance. Half of the machines train and half generate; in sync
//! and semi-sync mode the trainer's generate too when it is not their turn to train (hybrids).
//! [`CONSTANTS`] says what is stated, derived and assumed, [`VARIANTS`] go through what is assumed one at a
//! time, and [`CLAIMS`] are the paper's, as far as they are known here.
mod claims;
mod constants;
mod knobs;
mod parts;
mod workload;

pub use claims::{CLAIMS, Claim, Triple};
pub use constants::{CONSTANTS, Constant, Source};
pub use knobs::{Knobs, VARIANTS, Variant};
pub use parts::Parts;
pub use workload::{WORKLOADS, Workload};

use robust_ahead::cluster::{Cluster, Plan, unit};
use robust_ahead::dice::Dice;
use robust_shared::core::{CoreConfig, Incident, Labels, NodeSpec, Outcome, RuleSet};
use robust_shared::ettr::Cause;
use robust_shared::ids::{InstanceId, Role};
use robust_shared::job::{Mode, Policy};
use std::time::Duration;

/// Steps of every run (paper, evaluation).
pub const STEPS: u64 = 100;
/// One fault falls in each window of so many steps.
pub const FAULT_EVERY: u64 = 10;
const GPUS_PER_MACHINE: u32 = 8;
/// No run takes longer.
const LATEST: Duration = Duration::from_secs(5 * 86_400);

/// What a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// All trainer processes are killed, their machines stay: the paper's.
    InPlace,
    /// A trainer machine is lost.
    Machine,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What is trained.
    pub workload: Workload,
    /// How generation and training interleave.
    pub mode: Mode,
    /// What a fault costs; none: no faults.
    pub policy: Option<Policy>,
    /// What a fault is.
    pub strike: Strike,
    /// Steps.
    pub steps: u64,
    /// What is other than in the table.
    pub knobs: Knobs,
}

/// A run's figures.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// The workload's name.
    pub workload: &'static str,
    /// GPUs.
    pub gpus: u32,
    /// How generation and training interleave.
    pub mode: &'static str,
    /// `none` without faults, `task` or `role`.
    pub policy: &'static str,
    /// Whether the job came to its end.
    pub completed: bool,
    /// Virtual hours to the end.
    pub hours: f64,
    /// Effective training time ratio of the whole run, 0 to 1.
    pub ettr: f64,
    /// The same less the work done twice.
    pub goodput: f64,
    /// Faults that were struck.
    pub faults: u64,
    /// Those that cost a restart of everything.
    pub task_restarts: u64,
    /// Mean seconds from a trainer's fault to useful training again.
    pub recovery_s: f64,
    /// What those recoveries were made of.
    pub parts: Parts,
    /// The lowest mean of five minutes since the job was up, of the ETTR.
    pub lowest: f64,
    /// Digest of everything the controller decided.
    pub digest: u64,
    /// Inputs the controller took.
    pub inputs: u64,
}

/// Runs a short scenario twice and compares all that went in and out. Returns the lines of the
/// journal, or the first that differs.
pub fn prove_deterministic(seed: u64) -> Result<usize, String> {
    let short = Scenario {
        steps: FAULT_EVERY,
        ..Scenario::new(WORKLOADS[0], Mode::SemiSync, Some(Policy::Role))
    };
    let (one, other) = (short.journal(seed), short.journal(seed));
    let differs = one.iter().zip(&other).find(|(a, b)| a != b);
    match differs {
        Some((a, b)) => Err(format!("`{a}` and `{b}`")),
        None if one.len() != other.len() => Err("one is longer".to_owned()),
        None => Ok(one.len()),
    }
}

/// All runs of the table, in its order.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for workload in WORKLOADS {
        for mode in [Mode::Sync, Mode::SemiSync, Mode::Async] {
            for policy in [None, Some(Policy::Task), Some(Policy::Role)] {
                all.push(Scenario::new(workload, mode, policy));
            }
        }
    }
    all
}

impl Scenario {
    /// As in the table.
    pub fn new(workload: Workload, mode: Mode, policy: Option<Policy>) -> Self {
        Self {
            workload,
            mode,
            policy,
            strike: Strike::InPlace,
            steps: STEPS,
            knobs: Knobs::default(),
        }
    }

    fn concurrency(&self) -> u32 {
        let times = self.knobs.concurrency;
        let many = f64::from(self.workload.timing.concurrency) * times;
        (many.round() as u32).max(1)
    }

    fn ranks(&self) -> u32 {
        let machines = f64::from(self.workload.gpus / GPUS_PER_MACHINE);
        (machines * self.knobs.trainers).round() as u32
    }

    /// The controller's configuration for it.
    pub fn config(&self) -> CoreConfig {
        let Workload {
            prompts, responses, ..
        } = self.workload;
        let prompts = self.knobs.prompts.unwrap_or(prompts);
        let concurrency = self.concurrency();
        let ranks = self.ranks();
        let rollouts = self.workload.gpus / GPUS_PER_MACHINE - ranks;
        let ahead = u64::from(self.mode != Mode::Sync);
        let ahead = self.knobs.ahead.unwrap_or(ahead);
        CoreConfig {
            mode: self.mode,
            policy: self.policy.unwrap_or(Policy::Role),
            steps: self.steps,
            ranks,
            hybrids: match self.mode {
                Mode::Async => 0,
                Mode::Sync | Mode::SemiSync => ranks,
            },
            rollouts,
            agents: 1,
            agent_concurrency: u32::MAX,
            prompts,
            responses,
            switch_at: match self.mode {
                Mode::Sync => 1.0,
                _ => 0.5,
            },
            ahead,
            engine_requests: concurrency + concurrency.div_ceil(4),
            max_staleness: Some(ahead + 1),
            // All pull at once: the paper gives one figure for all.
            pullers_per_source: ranks + rollouts,
            nodes: self.machines(ranks, rollouts),
            rules: RuleSet::default()
                .with(|r| r.attach_overdue.window.set(Duration::from_secs(1200))),
            ..CoreConfig::default()
        }
    }

    /// The leader's own, which holds the agent worker, and one for each rank and rollout.
    fn machines(&self, ranks: u32, rollouts: u32) -> Vec<NodeSpec> {
        let of = |name: String, pool: &str, accel: &str| NodeSpec {
            name,
            labels: Labels {
                accel: accel.to_owned(),
                ..Labels::default()
            },
            pools: [(pool.to_owned(), 1)].into(),
        };
        let rollout_accel = match self.knobs.standby {
            true => "gpu",
            false => "another gpu",
        };
        let head = of("head".to_owned(), "agent", "");
        let trains = (0..ranks).map(|n| of(format!("train-{n}"), "train", "gpu"));
        let rolls = (0..rollouts).map(|n| of(format!("rollout-{n}"), "rollout", rollout_accel));
        std::iter::once(head).chain(trains).chain(rolls).collect()
    }

    /// The cluster before anything happened.
    fn cluster(&self, seed: u64, journal: bool) -> Cluster {
        let mut timing = self.workload.timing;
        timing.trainer_start = self.knobs.trainer_start.unwrap_or(timing.trainer_start);
        timing.concurrency = self.concurrency();
        timing.anew = self.knobs.anew;
        timing.old_logprob = timing.old_logprob.mul_f64(self.knobs.training);
        timing.update = timing.update.mul_f64(self.knobs.training);
        Cluster::new(Plan {
            config: self.config(),
            timing,
            seed,
            samples: Duration::from_secs(10),
            beats: Duration::from_secs(1),
            journal,
            records: false,
            guard: false,
        })
    }

    /// Runs it to its end. The same seed gives the same faults for every policy.
    pub fn run(&self, seed: u64) -> Row {
        let mut cluster = self.cluster(seed, false);
        let faults = self.drive(&mut cluster, seed);
        self.row(&cluster, faults)
    }

    /// Every input and output of its run.
    pub fn journal(&self, seed: u64) -> Vec<String> {
        let mut cluster = self.cluster(seed, true);
        self.drive(&mut cluster, seed);
        cluster.journal().to_vec()
    }

    fn drive(&self, cluster: &mut Cluster, seed: u64) -> u64 {
        let windows = match self.policy {
            Some(_) => self.steps / FAULT_EVERY,
            None => 0,
        };
        let struck = (0..windows).filter(|window| self.strike(cluster, *window, seed));
        let faults = struck.count() as u64;
        cluster.run_until(LATEST);
        faults
    }

    /// Strikes at a random time of the window.
    fn strike(&self, cluster: &mut Cluster, window: u64, seed: u64) -> bool {
        let mut dice = Dice::keyed(seed, window);
        let steps = unit(&mut dice) * FAULT_EVERY as f64;
        cluster.run_to_step(window * FAULT_EVERY + steps as u64);
        let into = self.workload.step.mul_f64(steps.fract());
        cluster.run_until(cluster.elapsed() + into);
        let id = InstanceId {
            role: Role::Trainer,
            index: dice.below(self.ranks().into()) as u32,
        };
        cluster.outcome().is_none()
            && match self.strike {
                Strike::InPlace => cluster.lose_processes(Role::Trainer, self.ranks()),
                Strike::Machine => cluster.lose_machine_of(id),
            }
    }

    fn row(&self, cluster: &Cluster, faults: u64) -> Row {
        let trainers = cluster.incidents();
        let trainers = trainers.filter(|i| i.who.role == Role::Trainer && i.under.is_none());
        let took = trainers.filter_map(Incident::total);
        let took: Vec<f64> = took.map(|t| t.as_secs_f64()).collect();
        let whole = cluster
            .incidents()
            .filter(|i| i.plan.contains("whole task"));
        let intervals = cluster.intervals();
        let (ettr, goodput) = robust_shared::ettr::totals(intervals);
        let up = intervals.iter().find(|i| i.cause != Cause::Initialisation);
        let up = up.map_or(robust_shared::time::Time(0), |i| i.from);
        Row {
            workload: self.workload.name,
            gpus: self.workload.gpus,
            mode: match self.mode {
                Mode::Sync => "sync",
                Mode::SemiSync => "semi_sync",
                Mode::Async => "async",
            },
            policy: match self.policy {
                None => "none",
                Some(Policy::Task) => "task",
                Some(Policy::Role) => "role",
            },
            completed: cluster.outcome() == Some(&Outcome::Completed),
            hours: cluster.elapsed().as_secs_f64() / 3600.0,
            ettr,
            goodput,
            faults,
            task_restarts: whole.count() as u64,
            recovery_s: took.iter().sum::<f64>() / took.len().max(1) as f64 + 0.0,
            parts: Parts::of(cluster.incidents(), intervals),
            lowest: parts::lowest(intervals, up),
            digest: cluster.digest(),
            inputs: cluster.inputs(),
        }
    }
}

#[cfg(test)]
mod tests;
