//! What the controller must know of the job; a plain struct so that a simulator can fill it in.
use crate::ids::Role;
use crate::job::Job;
pub use crate::job::{Mode, Policy};
use std::time::Duration;

/// How many batches may be generated beyond the one that is trained on next. Semi-sync is treated
/// like async for now: slots are not lent between roles yet.
fn ahead(mode: Mode) -> u64 {
    match mode {
        Mode::Sync => 0,
        Mode::SemiSync | Mode::Async => 1,
    }
}

/// The controller's knowledge of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreConfig {
    /// How generation and training interleave.
    pub mode: Mode,
    /// What a fault may cost.
    pub policy: Policy,
    /// Training steps of the job.
    pub steps: u64,
    /// Ranks of the trainer gang.
    pub ranks: u32,
    /// Rollout replicas.
    pub rollouts: u32,
    /// Agent workers.
    pub agents: u32,
    /// Trajectories one agent worker may hold at a time.
    pub agent_concurrency: u32,
    /// Prompts (groups) of a batch.
    pub prompts: u32,
    /// Responses to each prompt.
    pub responses: u32,
    /// Batches generated beyond the next one to train on: 0 in sync mode, else 1.
    pub ahead: u64,
    /// In async mode, how many versions older than `batch - 1` a rollout may be.
    pub max_staleness: u64,
    /// Pullers a source serves at a time (I-6). The trainer's ranks are one source.
    pub pullers_per_source: u32,
    /// Trainer idle rule: no activity in a compute phase for this long is a hang.
    pub trainer_idle_window: Duration,
    /// Rollout silent rule: no token with requests running for this long makes a suspect.
    pub rollout_silent_window: Duration,
    /// How long a suspect may take to generate one token.
    pub probe_timeout: Duration,
    /// How long a process may take from its spawn to its link.
    pub attach_timeout: Duration,
    /// How long a living process may stay without a link.
    pub link_grace: Duration,
    /// How long a kill waits for the stacks of the process.
    pub evidence_timeout: Duration,
    /// How long a pull may bring no bytes before another source is tried.
    pub pull_stall: Duration,
    /// Restarts of one instance in a row, without useful work between, before the task restarts.
    pub max_restarts_per_cause: u32,
    /// Failures further apart than this are not in a row.
    pub restart_window: Duration,
    /// Task restarts in a row without a committed step between, before the job fails.
    pub max_task_restarts: u32,
    /// Wait before the second restart in a row; doubles with each further one.
    pub backoff: Duration,
}

impl Default for CoreConfig {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            mode: Mode::Async,
            policy: Policy::Role,
            steps: 10,
            ranks: 2,
            rollouts: 3,
            agents: 2,
            agent_concurrency: 32,
            prompts: 8,
            responses: 8,
            ahead: 1,
            max_staleness: 2,
            pullers_per_source: 1,
            trainer_idle_window: seconds(300),
            rollout_silent_window: seconds(60),
            probe_timeout: seconds(5),
            attach_timeout: seconds(60),
            link_grace: seconds(5),
            evidence_timeout: seconds(1),
            pull_stall: seconds(15),
            max_restarts_per_cause: 3,
            restart_window: seconds(600),
            max_task_restarts: 3,
            backoff: Duration::from_millis(100),
        }
    }
}

impl CoreConfig {
    /// How many instances of a role the job has.
    pub fn count(&self, role: Role) -> u32 {
        match role {
            Role::Trainer => self.ranks,
            Role::Rollout => self.rollouts,
            Role::Agent => self.agents,
        }
    }

    /// The wait before a restart that follows `failures` failures in a row.
    pub fn backoff_after(&self, failures: u32) -> Duration {
        match failures {
            0 | 1 => Duration::ZERO,
            n => self.backoff.saturating_mul(1 << (n - 2).min(6)),
        }
    }
}

impl From<&Job> for CoreConfig {
    fn from(job: &Job) -> Self {
        Self {
            mode: job.job.mode,
            policy: job.job.policy,
            steps: job.job.steps,
            ranks: job.trainer.ranks,
            rollouts: job.rollout.replicas,
            agents: job.agent.workers,
            agent_concurrency: job.agent.concurrency,
            prompts: job.batch.prompts,
            responses: job.batch.responses,
            ahead: ahead(job.job.mode),
            pullers_per_source: job.weights.pullers_per_source,
            trainer_idle_window: job.detect.trainer_idle_window(),
            rollout_silent_window: job.detect.rollout_silent_window(),
            probe_timeout: job.detect.probe_timeout(),
            attach_timeout: job.detect.attach_timeout(),
            // The puller has a deadline of its own; this is for when its report is lost.
            pull_stall: job.weights.stall_timeout() * 5,
            max_restarts_per_cause: job.restart.max_restarts_per_cause,
            restart_window: job.restart.window(),
            backoff: job.restart.backoff(),
            ..Self::default()
        }
    }
}
