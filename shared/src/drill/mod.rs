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

mod compare;
mod entry;
mod error;
mod expect;
mod expected;
mod facts;
mod phrase;
mod plan;
mod schedule;
mod sentences;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_words;

pub use error::{DrillError, DrillProblem};
pub use expect::{Expectation, METRICS, Verdict, WEIGHTS_IDENTICAL, metric};
pub use expected::EXPECTATIONS;
pub use facts::{End, Facts, Measured, Recovery};
pub use phrase::duration;
pub use plan::{Plan, RunPlan, SeriesPlan};
pub use schedule::{After, Ground, Moment, Strike, Whom};

use crate::job::{Document, JobError, Location, Policy, from_toml};
use expected::Expected;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The name of the series of a drill that names none.
const ONLY: &str = "drill";
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
    /// What is run in each series, in order; the first without faults, unless it is the only one.
    #[serde(default = "one_run")]
    runs: Vec<Run>,
    /// What strikes the runs that have a policy.
    #[serde(default)]
    faults: Vec<entry::Entry>,
    /// The groups of runs that are compared; one when there is none.
    #[serde(default)]
    series: Vec<Series>,
    /// What must come out, where there is no series.
    expect: Option<Expected>,
    /// The rows of the fault tables that it rehearses.
    #[serde(default)]
    pub covers: Vec<String>,
    /// Whether it is a matter of seconds.
    #[serde(default)]
    pub speed: Speed,
    #[serde(skip)]
    source: Source,
}

/// How long a drill takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Speed {
    /// Seconds.
    #[default]
    Fast,
    /// Minutes.
    Slow,
}

impl Speed {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Speed::Fast => "fast",
            Speed::Slow => "slow",
        }
    }
}

/// Where a drill names no runs: one, struck, with the policy that is to be rehearsed.
fn one_run() -> Vec<Run> {
    vec![Run {
        name: Policy::Role.name().to_owned(),
        policy: Some(Policy::Role),
    }]
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
    expect: Expected,
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
        let table = text.parse::<toml::Table>().unwrap_or_default();
        let version = table.get("version").and_then(toml::Value::as_integer);
        if let Some(found) = version.filter(|v| *v != VERSION) {
            return Err(source.refuse("version", DrillProblem::Version { found }));
        }
        if let Some((key, table)) = sentences::instead(&table) {
            return Err(source.refuse(&key, DrillProblem::Sentences { table }));
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
        drill.one_series()?;
        drill.check_names()?;
        for (i, entry) in drill.faults.iter().enumerate() {
            let key = format!("faults.{i}");
            entry.fault(&drill, &key)?;
            entry.at(&drill, &key)?;
            entry.when(&drill, &key)?;
        }
        Ok(drill)
    }

    /// What the drill is for: the comment that its file begins with.
    pub fn about(&self) -> String {
        let comment = self.source.text.lines().take_while(|l| l.starts_with('#'));
        let lines: Vec<&str> = comment.map(|l| l.trim_start_matches('#').trim()).collect();
        lines.join(" ")
    }

    /// A drill with expectations of its own has one series, which needs no name.
    fn one_series(&mut self) -> Result<(), DrillError> {
        if !self.series.is_empty() {
            return match self.expect.is_none() {
                true => Ok(()),
                false => Err(self.refuse("expect", DrillProblem::Expects)),
            };
        }
        self.series.push(Series {
            name: ONLY.to_owned(),
            set: toml::Table::new(),
            expect: self.expect.clone().unwrap_or_default(),
        });
        Ok(())
    }

    /// The whole key of an expectation, to name its place.
    fn expect_key(&self, series: usize, key: &str) -> String {
        match self.expect.is_none() {
            true => format!("series.{series}.expect.{key}"),
            false => format!("expect.{key}"),
        }
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
            Some(first) if first.policy.is_some() && self.runs.len() > 1 => {
                let run = first.name.clone();
                Err(self.refuse("runs.0.policy", DrillProblem::NoMeasure { run }))
            }
            _ => Ok(()),
        }
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
