//! Phases: what an instance is doing now. Detection rules name the phases they apply to.
use crate::wire::Word;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What an instance is doing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Process start: libraries, model, connections.
    Init,
    /// Trainer: restoring a snapshot or checkpoint.
    LoadCheckpoint,
    /// Trainer: waiting for a batch.
    AwaitBatch,
    /// Hybrid: handing slots between trainer and rollout.
    ContextSwitch,
    /// Trainer: weights to another layout.
    Reshard,
    /// Trainer compute: logprobs under the reference policy.
    RefLogprob,
    /// Trainer compute: logprobs under the policy before the update.
    OldLogprob,
    /// Trainer: advantages.
    Advantage,
    /// Trainer compute: gradient and optimizer step.
    Update,
    /// Trainer: copying its shard into the snapshot.
    Snapshot,
    /// Trainer: exposing a weight version to pullers.
    Publish,
    /// Trainer: its program's own loop, of which it says no more. Computing.
    Loop,
    /// Rollout: fetching a weight version.
    PullWeights,
    /// Rollout or agent: nothing to do.
    Idle,
    /// Rollout: requests are running.
    Generating,
    /// Rollout: its conversations wait for tools. Agent: a tool runs.
    AwaitingTool,
    /// Rollout: paused by an operator or for a weight update.
    Paused,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Phase; 17] = [
        Phase::Init,
        Phase::LoadCheckpoint,
        Phase::AwaitBatch,
        Phase::ContextSwitch,
        Phase::Reshard,
        Phase::RefLogprob,
        Phase::OldLogprob,
        Phase::Advantage,
        Phase::Update,
        Phase::Snapshot,
        Phase::Publish,
        Phase::Loop,
        Phase::PullWeights,
        Phase::Idle,
        Phase::Generating,
        Phase::AwaitingTool,
        Phase::Paused,
    ];

    /// The name used in the protocol, job files and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Init => "init",
            Phase::LoadCheckpoint => "load_checkpoint",
            Phase::AwaitBatch => "await_batch",
            Phase::ContextSwitch => "context_switch",
            Phase::Reshard => "reshard",
            Phase::RefLogprob => "ref_logprob",
            Phase::OldLogprob => "old_logprob",
            Phase::Advantage => "advantage",
            Phase::Update => "update",
            Phase::Snapshot => "snapshot",
            Phase::Publish => "publish",
            Phase::Loop => "loop",
            Phase::PullWeights => "pull_weights",
            Phase::Idle => "idle",
            Phase::Generating => "generating",
            Phase::AwaitingTool => "awaiting_tool",
            Phase::Paused => "paused",
        }
    }

    /// Whether a trainer in this phase must keep its processor busy (paper 5.1.1: the idle rule is
    /// armed only here).
    pub fn is_trainer_compute(self) -> bool {
        matches!(
            self,
            Phase::RefLogprob | Phase::OldLogprob | Phase::Update | Phase::Loop
        )
    }
}

impl Word for Phase {
    const ALL: &'static [Self] = &Phase::ALL;

    fn word(self) -> &'static str {
        self.name()
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is no phase's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown phase `{0}`")]
pub struct UnknownPhase(pub String);

impl FromStr for Phase {
    type Err = UnknownPhase;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Phase::ALL
            .into_iter()
            .find(|p| p.name() == s)
            .ok_or_else(|| UnknownPhase(s.to_owned()))
    }
}
