//! A fault as a drill file writes it: what, whom, when.
use super::phrase::duration;
use super::{After, Drill, DrillError, DrillProblem};
use crate::fault::{At, Fault, Spec};
use crate::ids::Role;
use serde::Deserialize;
use std::time::Duration;

/// A fault, or many of a kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    kind: String,
    code: Option<u32>,
    seconds: Option<f64>,
    percent: Option<u32>,
    peer: Option<String>,
    node: Option<String>,
    event: Option<String>,
    /// Drawn among those that the fault can befall where it is not given.
    pub(super) role: Option<Role>,
    /// Drawn where it is not given.
    pub(super) index: Option<u32>,
    /// So many steps after the job began to run; 4.5 is in the middle of step 5.
    pub(super) at_step: Option<f64>,
    /// So many seconds after the job began to run.
    pub(super) at_s: Option<f64>,
    /// The same with a unit: `5s`, `500ms`.
    at_time: Option<String>,
    /// One in every so many steps, at a random place.
    pub(super) every_steps: Option<u64>,
    /// So many, at random places of the run.
    pub(super) random: Option<u64>,
    /// The phase or progress of the instance at which it strikes: `update`, `pull:50%`.
    at: Option<String>,
    /// What it waits for after the fault before it.
    #[serde(default)]
    pub(super) after: After,
}

/// When a fault strikes, as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum When {
    /// So many steps in.
    Step(f64),
    /// So long after the begin.
    Time(Duration),
    /// Once in every so many steps.
    Every(u64),
    /// So many times.
    Random(u64),
}

impl Entry {
    /// The fault with what it takes.
    pub fn fault(&self, drill: &Drill, key: &str) -> Result<Fault, DrillError> {
        let spec = Spec {
            kind: self.kind.clone(),
            code: self.code,
            seconds: self.seconds,
            percent: self.percent,
            peer: self.peer.clone(),
            node: self.node.clone(),
            event: self.event.clone(),
        };
        spec.fault()
            .map_err(|e| drill.refuse(&format!("{key}.kind"), DrillProblem::Fault(e)))
    }

    /// The moment in the instance's life.
    pub fn at(&self, drill: &Drill, key: &str) -> Result<Option<At>, DrillError> {
        let at = self.at.as_deref().map(str::parse::<At>).transpose();
        at.map_err(|e| drill.refuse(&format!("{key}.at"), DrillProblem::At(e)))
    }

    /// When; one that is written with a phase alone comes after the first committed step, as a fault
    /// before it restarts the task by design.
    pub fn when(&self, drill: &Drill, key: &str) -> Result<When, DrillError> {
        let time = self.at_time.as_deref().map(duration).transpose();
        let time = time.map_err(|why| {
            let problem = DrillProblem::Time { why };
            drill.refuse(&format!("{key}.at_time"), problem)
        })?;
        for (name, value) in [("at_step", self.at_step), ("at_s", self.at_s)] {
            if let Some(value) = value.filter(|v| !(0.0..1e9).contains(v)) {
                let problem = DrillProblem::Negative { value };
                return Err(drill.refuse(&format!("{key}.{name}"), problem));
            }
        }
        let given = [
            self.at_step.map(When::Step),
            self.at_s.map(|s| When::Time(Duration::from_secs_f64(s))),
            time.map(When::Time),
            self.every_steps.map(When::Every),
            self.random.map(When::Random),
        ];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(when), None) => Ok(when),
            (None, None) if self.at.is_some() => Ok(When::Step(1.0)),
            _ => Err(drill.refuse(key, DrillProblem::Moment)),
        }
    }
}
