//! Drill files: the same job several times over, with the same faults at the same places of each
//! run, and what must come out.
//!
//! ```text
//!  drill file ──parse──► Drill ─┐
//!                               ├─ Plan::make ──► series ──► run ──► job file text, strikes
//!  job file ────────────────────┘                   └─ expectations over `ettr_role`, `time_task`, ...
//! ```
//! Everything that can be refused is refused here, before anything is started. Nothing here touches
//! the disk or a clock: who runs the drill reads the files and strikes at the planned places.

mod error;
mod expect;
mod plan;
mod schedule;

#[cfg(test)]
mod tests;

pub use error::{DrillError, DrillProblem};
pub use expect::{Expectation, METRICS, Verdict, WEIGHTS_IDENTICAL, metric};
pub use plan::{Plan, RunPlan, SeriesPlan};
pub use schedule::{Moment, Strike};

use crate::ids::Role;
use crate::job::{Document, JobError, Location, Policy, from_toml};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The format this build reads.
pub const VERSION: i64 = 1;

/// A drill as its file describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drill {
    /// [`VERSION`].
    version: i64,
    /// Shown with the results.
    pub name: String,
    /// The job file, relative to this one.
    pub job: PathBuf,
    /// What is drawn at random (places of faults, indexes) derives from it.
    pub seed: u64,
    /// Keys of the job file with other values, for every run.
    #[serde(default)]
    set: toml::Table,
    /// What is run in each series, in order; the first without faults.
    runs: Vec<Run>,
    /// What strikes the runs that have a policy.
    #[serde(default)]
    faults: Vec<Fault>,
    /// The groups of runs that are compared.
    series: Vec<Series>,
    #[serde(skip)]
    source: Source,
}

/// One run of each series.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    /// Part of the names of its metrics.
    name: String,
    /// What a fault restarts; a run without a policy has no faults.
    policy: Option<Policy>,
}

/// Runs that are compared with each other.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Series {
    name: String,
    /// Keys of the job file with other values, for its runs.
    #[serde(default)]
    set: toml::Table,
    /// What must come out.
    #[serde(default)]
    expect: Vec<String>,
}

/// What is done to an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Hang,
}

impl FaultKind {
    /// The name used in drill files and by the control API.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Kill => "kill",
            FaultKind::Hang => "hang",
        }
    }
}

/// A fault, or many of a kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    kind: FaultKind,
    role: Role,
    /// Drawn where it is not given.
    index: Option<u32>,
    /// So many steps after the job began to run; 4.5 is in the middle of step 5.
    at_step: Option<f64>,
    /// So many seconds after the job began to run.
    at_s: Option<f64>,
    /// One in every so many steps, at a random place.
    every_steps: Option<u64>,
}

/// The text, to name places in it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Source {
    path: PathBuf,
    text: String,
}

impl Drill {
    /// Reads a drill file's text; `path` is only for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, DrillError> {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        // A file of another version is called that, whatever else this build does not know in it.
        let version = text.parse::<toml::Table>().ok();
        let version = version
            .as_ref()
            .and_then(|t| t.get("version")?.as_integer());
        if let Some(found) = version.filter(|v| *v != VERSION) {
            return Err(source.refuse("version", DrillProblem::Version { found }));
        }
        let document = Document::parse(text);
        let mut drill: Self = toml::from_str(text).map_err(|e| {
            let JobError { at, problem } = from_toml(&e, text, path, document.as_ref());
            DrillError {
                at,
                problem: Box::new(DrillProblem::File(*problem)),
            }
        })?;
        drill.source = source;
        drill.check_names()?;
        drill.check_faults()?;
        Ok(drill)
    }

    /// A problem of this file at one of its keys.
    pub fn refuse(&self, key: &str, problem: DrillProblem) -> DrillError {
        self.source.refuse(key, problem)
    }

    fn check_names(&self) -> Result<(), DrillError> {
        let names = |what, names: Vec<&str>| -> Result<(), DrillError> {
            if names.is_empty() {
                return Err(self.refuse(what, DrillProblem::Nothing { what }));
            }
            let mut seen = BTreeSet::new();
            for (i, name) in names.into_iter().enumerate() {
                let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
                if name.is_empty() || !name.chars().all(fits) || !seen.insert(name) {
                    let name = name.to_owned();
                    let key = format!("{what}.{i}.name");
                    return Err(self.refuse(&key, DrillProblem::Name { what, name }));
                }
            }
            Ok(())
        };
        names("runs", self.runs.iter().map(|r| r.name.as_str()).collect())?;
        names(
            "series",
            self.series.iter().map(|s| s.name.as_str()).collect(),
        )?;
        match self.runs.first() {
            Some(first) if first.policy.is_some() => {
                let run = first.name.clone();
                Err(self.refuse("runs.0.policy", DrillProblem::NoMeasure { run }))
            }
            _ => Ok(()),
        }
    }

    fn check_faults(&self) -> Result<(), DrillError> {
        for (i, fault) in self.faults.iter().enumerate() {
            let moments = [
                fault.at_step.is_some(),
                fault.at_s.is_some(),
                fault.every_steps.is_some(),
            ];
            if moments.into_iter().filter(|is| *is).count() != 1 {
                return Err(self.refuse(&format!("faults.{i}"), DrillProblem::Moment));
            }
            for (name, value) in [("at_step", fault.at_step), ("at_s", fault.at_s)] {
                if let Some(value) = value.filter(|v| !(0.0..1e9).contains(v)) {
                    let key = format!("faults.{i}.{name}");
                    return Err(self.refuse(&key, DrillProblem::Negative { value }));
                }
            }
        }
        Ok(())
    }
}

impl Source {
    fn refuse(&self, key: &str, problem: DrillProblem) -> DrillError {
        let document = Document::parse(&self.text);
        let offset = document.and_then(|d| d.locate(key));
        DrillError {
            at: Location::new(&self.path, &self.text, offset),
            problem: Box::new(problem),
        }
    }
}
