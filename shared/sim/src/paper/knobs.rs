//! What the paper does not state and an outcome hangs on.
use super::{Scenario, Strike};
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
    /// An engine computes so many times as many requests at a time.
    pub concurrency: f64,
    /// Machines and containers are made anew where everything is restarted.
    pub anew: Duration,
    /// Prompts of a step; the workload's where none is given.
    pub prompts: Option<u32>,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            ahead: None,
            standby: true,
            trainers: 0.5,
            trainer_start: None,
            training: 1.0,
            concurrency: 1.0,
            anew: Duration::ZERO,
            prompts: None,
        }
    }
}

/// One assumption, other than in the table.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// What is other.
    pub what: &'static str,
    /// Whether it changes a run without faults too.
    pub without_faults: bool,
    change: fn(&mut Scenario),
}

impl Variant {
    /// The scenario under it.
    pub fn of(&self, scenario: &Scenario) -> Scenario {
        let mut other = scenario.clone();
        (self.change)(&mut other);
        other
    }
}

const fn faults(what: &'static str, change: fn(&mut Scenario)) -> Variant {
    Variant {
        what,
        without_faults: false,
        change,
    }
}

const fn all(what: &'static str, change: fn(&mut Scenario)) -> Variant {
    Variant {
        what,
        without_faults: true,
        change,
    }
}

const fn start(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

/// The assumed constants, gone through one at a time.
pub const VARIANTS: [Variant; 10] = [
    all("trainer start 120 s", |s| {
        s.knobs.trainer_start = start(120)
    }),
    all("trainer start 240 s", |s| {
        s.knobs.trainer_start = start(240)
    }),
    faults("task makes machines and containers anew", |s| {
        s.knobs.anew = Duration::from_secs(60);
    }),
    faults("a trainer machine is lost instead", |s| {
        s.strike = Strike::Machine
    }),
    all("training takes half as long", |s| s.knobs.training = 0.5),
    all("training takes twice as long", |s| s.knobs.training = 2.0),
    all("engines compute half as many requests", |s| {
        s.knobs.concurrency = 0.5
    }),
    all("5 batches ahead, engines half as fast", |s| {
        (s.knobs.ahead, s.knobs.concurrency) = (Some(5), 0.5);
    }),
    all("32 prompts", |s| s.knobs.prompts = Some(32)),
    all("128 prompts", |s| s.knobs.prompts = Some(128)),
];
