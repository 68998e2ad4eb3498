//! One fault and its recovery, with the instants that the timings are made of.
use crate::ids::{Incarnation, IncidentId, InstanceId, Step};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One fault and its recovery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// Its number.
    pub id: IncidentId,
    /// Who failed.
    pub who: InstanceId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The rule that found it: `exit`, `trainer idle`, `rollout silent`, ...
    pub rule: String,
    /// What was seen.
    pub reason: String,
    /// What was decided, as a sentence.
    pub plan: String,
    /// The committed step when it struck.
    pub step: Step,
    /// When the fault struck: the injection's instant where it was injected, else the exit's, else
    /// the last sign of life.
    pub struck: Time,
    /// When the verdict fell.
    pub verdict: Time,
    /// When the last replacement process was attached.
    pub attached: Option<Time>,
    /// When useful work went on: trainer in compute again, rollout admitted, agent leased again.
    pub resumed: Option<Time>,
    /// How it ended.
    pub outcome: IncidentOutcome,
    /// Stacks and states, taken before the kill of a hung process.
    pub evidence: String,
    /// Other lives that ended with it: the gang's other ranks, or everything.
    #[serde(default)]
    pub swept: Vec<Incarnation>,
    /// Finer instants (name, when), in order: `exited` (the process gone, as the operating system
    /// says), `seen` (the verdict), `killed` (where evidence was taken first), `spawned`,
    /// `attached`, `restored`, ...
    pub marks: Vec<(String, Time)>,
}

/// How an incident ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IncidentOutcome {
    /// Not over yet.
    Recovering,
    /// Useful work goes on.
    Recovered,
    /// It ended the job. Stores of earlier versions say `escalated`.
    #[serde(alias = "escalated")]
    Failed,
}

impl Incident {
    /// Fault to verdict.
    pub fn detect(&self) -> Duration {
        self.verdict.since(self.struck)
    }

    /// Verdict to the replacement attached.
    pub fn restart(&self) -> Option<Duration> {
        self.attached.map(|t| t.since(self.verdict))
    }

    /// Replacement attached to useful work.
    pub fn reconnect(&self) -> Option<Duration> {
        Some(self.resumed?.since(self.attached?))
    }

    /// Fault to useful work.
    pub fn total(&self) -> Option<Duration> {
        self.resumed.map(|t| t.since(self.struck))
    }
}
