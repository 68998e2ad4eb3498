//! What the paper does not state and an outcome hangs on.
use super::{Scenario, WORKLOADS};
use crate::job::{Mode, Policy};
use std::time::Duration;

/// What an outcome hangs on and the paper does not state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knobs {
    /// Batches generated beyond the one that is trained on next; the mode's where none is given.
    pub ahead: Option<u64>,
    /// Whether a rollout's machine may take a lost trainer machine's place.
    pub standby: bool,
    /// The part of the machines that trains.
    pub trainers: f64,
    /// A trainer rank's start; the workload's where none is given.
    pub trainer_start: Option<Duration>,
    /// Training takes so many times as long.
    pub training: f64,
    /// Requests an engine computes at a time; the workload's where none is given.
    pub concurrency: Option<u32>,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            ahead: None,
            standby: true,
            trainers: 0.5,
            trainer_start: None,
            training: 1.0,
            concurrency: None,
        }
    }
}

/// What an assumption does to policy `role` on 8B-Math in async mode, the paper's headline.
pub fn causes() -> Vec<(&'static str, Scenario)> {
    let knobs = Knobs::default();
    let ahead = |n| Knobs {
        ahead: Some(n),
        ..knobs
    };
    let with = |knobs| Scenario {
        knobs,
        ..Scenario::new(WORKLOADS[0], Mode::Async, Some(Policy::Role))
    };
    let without = Knobs {
        standby: false,
        ..knobs
    };
    let start = |s| Knobs {
        trainer_start: Some(Duration::from_secs(s)),
        ..knobs
    };
    // Rollouts that never catch up with a fast trainer generate as long as it recovers.
    let rollout_bound = Knobs {
        training: 0.4,
        concurrency: Some(11),
        ..ahead(5)
    };
    let quarter = Knobs {
        trainers: 0.25,
        concurrency: Some(7),
        ..rollout_bound
    };
    vec![
        ("as in the table", with(knobs)),
        ("no warm standby", with(without)),
        ("trainer start 60 s", with(start(60))),
        ("5 batches ahead", with(ahead(5))),
        ("5 ahead, engines are the bottleneck", with(rollout_bound)),
        ("the same, a quarter trains", with(quarter)),
    ]
}
