//! How long everything takes in the simulated cluster.
use crate::dice::Dice;
use std::time::Duration;

/// A long-tailed duration: log-normal around the median, cut at the maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongTail {
    /// Half take less.
    pub median: Duration,
    /// Spread of the logarithm; 0 makes all equal.
    pub sigma: f64,
    /// None takes more.
    pub max: Duration,
}

impl LongTail {
    /// The next one of the dice.
    pub fn draw(&self, dice: &mut Dice) -> Duration {
        let (a, b) = (unit(dice), unit(dice));
        // Box-Muller: a standard normal from two uniform numbers.
        let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
        self.median
            .mul_f64((self.sigma * normal).exp())
            .min(self.max)
    }
}

/// A number of (0, 1].
pub fn unit(dice: &mut Dice) -> f64 {
    ((dice.draw() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Durations of one workload on one kind of machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// To be given another machine.
    pub machine: Duration,
    /// To start a container on it.
    pub container: Duration,
    /// A trainer rank: from its start to its link.
    pub trainer_start: Duration,
    /// An engine: from its start to its link.
    pub engine_start: Duration,
    /// An agent worker: from its start to its link.
    pub agent_start: Duration,
    /// The gang: loading its state.
    pub restore: Duration,
    /// Making a version available.
    pub publish: Duration,
    /// One rollout fetches a version.
    pub pull: Duration,
    /// A hybrid engine: from the command to pause, or to go on, to its deed.
    pub switch: Duration,
    /// Logprobs before the update.
    pub old_logprob: Duration,
    /// Gradient and optimizer.
    pub update: Duration,
    /// The blocking copy of the state.
    pub snapshot: Duration,
    /// Requests an engine computes at a time; more wait in it.
    pub concurrency: u32,
    /// Generation of a whole conversation, in equal turns.
    pub conversation: LongTail,
    /// Turns of a conversation.
    pub turns: u32,
    /// A tool call between two turns.
    pub tool: Duration,
    /// From a process's end to the daemon's knowing.
    pub exit_seen: Duration,
    /// From a machine's end to the controller's knowing, where heartbeats are not simulated.
    pub node_seen: Duration,
    /// Before anything starts where everything is restarted: machines and containers that are made anew.
    pub anew: Duration,
}
