//! What a gang of ranks answers to a call.
use crate::ids::{Incarnation, Step, WeightVersion};
use serde::{Deserialize, Serialize};

/// One thing that happened to one generation of the gang.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GangEvent {
    /// The gang restored its state at this step and can train.
    Restored {
        /// The step restored.
        step: Step,
    },
    /// All ranks computed what [`crate::core::Output::Prepare`] asked for.
    Prepared {
        /// For which step.
        step: Step,
    },
    /// All ranks finished the step and hold a complete snapshot of it.
    StepDone {
        /// The step.
        step: Step,
        /// Its figures.
        metrics: StepMetrics,
    },
    /// Every program of a gang with a loop of its own ended with code 0.
    TrainerOver,
    /// A call to the gang failed without a rank having died (an exception reported by it).
    StepFailed {
        /// The step.
        step: Step,
        /// Who reported it, if one rank did.
        rank: Option<Incarnation>,
        /// What kind of failure it says it was.
        fault: CallFault,
        /// The exception's text.
        reason: String,
    },
    /// All ranks serve this version; pullers may fetch it from them.
    Published {
        /// The version.
        version: WeightVersion,
        /// Its bytes.
        bytes: u64,
        /// The manifest's digest, hex.
        digest: String,
    },
}

/// What a call to the gang failed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFault {
    /// An exception of any kind.
    #[default]
    Exception,
    /// Loss or gradient were no numbers; nothing was changed by the step.
    Numeric,
}

/// Figures of a finished step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Mean reward of the batch.
    pub reward: f64,
    /// Policy loss.
    pub loss: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Tokens trained on.
    pub tokens: u64,
    /// Steps between the oldest weights used in the batch and the newest (off-policy distance).
    pub staleness: u64,
    /// What else is known of how the training goes.
    #[serde(default)]
    pub health: Health,
}

/// How a step's training went. None: the trainer does not say it, nobody can know it, or a build before this one
/// committed the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Share of tokens whose ratio was clipped, in 0..=1.
    pub clip_fraction: Option<f64>,
    /// Mean entropy of the policy, in nats.
    pub entropy: Option<f64>,
    /// Mean divergence from the old policy, or from the reference where there is one, in nats.
    pub kl: Option<f64>,
    /// Groups that it trained on.
    pub groups: Option<u32>,
    /// Of those, whose rewards are all the same: they teach nothing.
    pub flat_groups: Option<u32>,
    /// Mean number of tokens generated for a trajectory that it trained on.
    pub mean_length: Option<f64>,
    /// Tokens generated for the longest one.
    pub longest: Option<u64>,
}

impl StepMetrics {
    /// Whether anybody told figures: a program with a loop of its own need not.
    pub fn are_told(&self) -> bool {
        self.tokens > 0 || [self.reward, self.loss, self.grad_norm] != [0.0; 3]
    }
}
