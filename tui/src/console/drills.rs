//! The drills that there are, and what is known of one that runs.
use crate::drills::{self, Entry};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// Lines of a drill's progress that are kept.
const LINES: usize = 200;

/// A drill file.
#[derive(Clone, Debug, PartialEq)]
pub struct DrillFile {
    /// Where.
    pub path: PathBuf,
    /// The file's name without its end.
    pub name: String,
    /// The comment it begins with.
    pub about: String,
    /// What it runs, strikes and expects; or why it cannot be run.
    pub plan: Result<Vec<String>, String>,
    /// Faults of its first series.
    pub faults: usize,
}

/// How a drill ended.
#[derive(Clone, Debug, PartialEq)]
pub struct DrillEnd {
    /// Its exit code, none after a signal.
    pub code: Option<i32>,
    /// What it found.
    pub result: Option<Value>,
}

/// A drill that was started here.
#[derive(Clone, Debug)]
pub struct DrillRun {
    /// Name of its file.
    pub name: String,
    /// Unix ms of its start.
    pub since: u64,
    /// What it said last.
    pub lines: VecDeque<String>,
    /// Once it is over.
    pub end: Option<(u64, DrillEnd)>,
}

impl DrillRun {
    /// One that starts now.
    pub fn new(name: String, since: u64) -> Self {
        let (lines, end) = (VecDeque::new(), None);
        Self {
            name,
            since,
            lines,
            end,
        }
    }

    /// It said something.
    pub fn say(&mut self, line: String) {
        self.lines.push_back(line);
        if self.lines.len() > LINES {
            self.lines.pop_front();
        }
    }

    /// One word: `running`, `passed`, `failed`.
    pub fn state(&self) -> &'static str {
        match &self.end {
            None => "running",
            Some((_, end)) if end.code == Some(0) => "passed",
            Some(_) => "failed",
        }
    }
}

/// The files of a folder, by name.
pub fn catalogue(folder: &Path) -> Result<Vec<DrillFile>, String> {
    let entries = drills::catalogue(folder)?;
    Ok(entries.into_iter().map(drill_file).collect())
}

fn drill_file(entry: Entry) -> DrillFile {
    DrillFile {
        about: entry.about(),
        faults: entry.faults(),
        plan: match entry.planned {
            Ok((_, plan)) => Ok(plan.series.iter().flat_map(in_words).collect()),
            Err(why) => Err(why),
        },
        path: entry.path,
        name: entry.name,
    }
}

fn in_words(series: &robust_shared::drill::SeriesPlan) -> Vec<String> {
    let runs: Vec<&str> = series.runs.iter().map(|r| r.name.as_str()).collect();
    let steps = series.runs.first().map_or(0, |r| r.steps);
    let mut lines = vec![format!(
        "series {} (mode {}): {} steps each; runs {}",
        series.name,
        series.mode.name(),
        steps,
        runs.join(", ")
    )];
    let strikes = series
        .runs
        .iter()
        .map(|r| &r.strikes)
        .find(|s| !s.is_empty());
    lines.extend(
        strikes
            .into_iter()
            .flatten()
            .map(|s| format!("  fault   {s}")),
    );
    lines.extend(
        series
            .expect
            .iter()
            .map(|e| format!("  expect  {}", e.text)),
    );
    lines
}

/// What a drill found, as lines: each expectation and whether it held, then its figures.
pub fn verdicts(result: &Value) -> Vec<(String, bool)> {
    let series = result["series"].as_array().into_iter().flatten();
    series
        .flat_map(|s| s["expectations"].as_array().into_iter().flatten())
        .map(|e| {
            let text = e["text"].as_str().unwrap_or_default();
            let held = e["held"].as_bool().unwrap_or(false);
            let figures = match (e["left"].as_f64(), e["right"].as_f64(), e["found"].as_str()) {
                (Some(left), Some(right), _) => format!("   ({left:.3} and {right:.3})"),
                (_, _, Some(found)) => format!("   ({found})"),
                _ => String::new(),
            };
            (format!("{text}{figures}"), held)
        })
        .collect()
}
