//! Who works: `[trainer]`, `[rollout]`, `[agent]`.
use super::super::units::millis;
use super::agent_command::AgentCommand;
use super::command::{Dtype, RolloutCommand};
use super::limits::Limits;
use super::trainer_command::TrainerCommand;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `[trainer]`: a gang of data-parallel ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trainer {
    /// Ranks; divides the samples of a step.
    pub ranks: u32,
    /// Whether a rollout engine shares each rank's slot and generates while the rank waits for its
    /// batch. Absent: in mode semi-sync only. Not in async, where the ranks never wait for long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hybrid: Option<bool>,
    /// The pool whose slots they occupy.
    pub pool: String,
    /// The node that must hold all of them; any if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Fewest ranks `robustctl scale` may leave.
    pub min: u32,
    /// Most ranks `robustctl scale` may ask for; any number if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// What a rank may use of its machine.
    #[serde(skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// The user's own program. Absent: the built-in trainer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<TrainerCommand>,
}

impl Default for Trainer {
    fn default() -> Self {
        Self {
            ranks: 2,
            hybrid: None,
            pool: "train".to_owned(),
            node: None,
            min: 1,
            max: None,
            limits: Limits::default(),
            command: None,
        }
    }
}

/// When a rollout goes over to weights that it verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Swap {
    /// Between two decode steps: running requests go on with the new weights.
    #[default]
    Step,
    /// Between turns: running requests end with the weights they began with, new ones wait for that.
    Turn,
}

/// `[rollout]`: independent generation replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rollout {
    /// Replicas.
    pub replicas: u32,
    /// The pool whose slots they occupy.
    pub pool: String,
    /// The node that must hold all of them; any if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Fewest replicas `robustctl scale` may leave.
    pub min: u32,
    /// Most replicas `robustctl scale` may ask for; any number if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Replicas that must serve the initial weights before anything is generated.
    pub n_init: u32,
    /// Requests decoded together; further ones queue.
    pub max_running: u32,
    /// Sampling temperature; 0 takes the most likely token.
    pub temperature: f64,
    /// Most tokens generated in one turn.
    pub max_new_tokens: u32,
    /// Most tokens that prompt, turns and tool results of a trajectory have together: what keys and
    /// values are kept for. As many as the model knows positions for if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_context: Option<u32>,
    /// The numbers in which versions of the weights travel to the built-in rollouts and are held by them;
    /// computed with is float32.
    pub dtype: Dtype,
    /// When a replica goes over to weights that it verified.
    pub swap: Swap,
    /// What a replica, and one that shares a rank's slot, may use of its machine.
    #[serde(skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// The user's own engine. Absent: the built-in rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<RolloutCommand>,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            replicas: 3,
            pool: "rollout".to_owned(),
            node: None,
            min: 1,
            max: None,
            n_init: 1,
            max_running: 32,
            temperature: 1.0,
            max_new_tokens: 32,
            max_context: None,
            dtype: Dtype::Float32,
            swap: Swap::Step,
            limits: Limits::default(),
            command: None,
        }
    }
}

/// `[agent]`: workers that run conversations and their tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agent {
    /// Worker processes.
    pub workers: u32,
    /// The pool whose slots they occupy.
    pub pool: String,
    /// The node that must hold all of them; any if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Fewest workers `robustctl scale` may leave.
    pub min: u32,
    /// Most workers `robustctl scale` may ask for; any number if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Conversations one worker runs at a time.
    pub concurrency: u32,
    /// Most turns of one conversation.
    pub max_turns: u32,
    /// Tokens of a turn under way become durable so far apart. A worker's death costs at most what
    /// came in this time and in that of one acknowledgement.
    pub durable_every_ms: u64,
    /// Limits of a tool's process.
    pub tool: Tool,
    /// What a worker may use of its machine.
    #[serde(skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// The user's own environments. Absent: the built-in conversation with its calculator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<AgentCommand>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            workers: 2,
            pool: "agent".to_owned(),
            node: None,
            min: 1,
            max: None,
            concurrency: 32,
            max_turns: 3,
            durable_every_ms: 250,
            tool: Tool::default(),
            limits: Limits::default(),
            command: None,
        }
    }
}

/// `[agent.tool]`: limits of one tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tool {
    /// Wall time in milliseconds; the process is killed after it.
    pub timeout_ms: u64,
    /// Address space in MiB.
    pub memory_mb: u64,
    /// Tries after the first one of a call that failed by no doing of the model's. Then its
    /// trajectory is given back.
    pub retries: u32,
    /// The wait before the first of them in milliseconds; it doubles with each further one.
    pub retry_ms: u64,
}

impl Tool {
    /// `timeout_ms` as a duration.
    pub fn timeout(&self) -> Duration {
        millis(self.timeout_ms)
    }

    /// `retry_ms` as a duration.
    pub fn retry_wait(&self) -> Duration {
        millis(self.retry_ms)
    }
}

impl Default for Tool {
    fn default() -> Self {
        Self {
            timeout_ms: 2_000,
            memory_mb: 256,
            retries: 2,
            retry_ms: 100,
        }
    }
}
