//! Expectations: of each run (see [`super::phrase`]), or of several, as a comparison of figures (see
//! [`super::compare`]).
use super::compare::{Comparison, comparison};
use super::facts::{Facts, Measured};
use super::phrase::{Found, Phrase};
use std::time::Duration;

/// What is measured of each run; `ettr_role` is `ettr` of the run `role`.
pub const METRICS: [&str; 7] = [
    "time",
    "ettr",
    "goodput",
    "overhead",
    "restarts",
    "repeated",
    "restart_over_step",
];
/// The metric of a series: 1 if all runs ended with the same weights, bit for bit, else 0.
pub const WEIGHTS_IDENTICAL: &str = "weights_identical";

/// The name of a run's metric.
pub fn metric(what: &str, run: &str) -> String {
    format!("{what}_{run}")
}

/// What must come out.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// As written.
    pub text: String,
    pub(super) what: What,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Whether it is as expected.
    pub held: bool,
    /// The left side's value; none where it could not be measured, and for a phrase.
    pub left: Option<f64>,
    /// The right side's.
    pub right: Option<f64>,
    /// What was found, in words.
    pub found: String,
}

/// What is expected, read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    /// Of the run of that name, else of each that was struck.
    Phrase { run: Option<String>, phrase: Phrase },
    /// Of the figures of several runs.
    Comparison(Comparison),
}

impl Expectation {
    /// A comparison of figures of these runs; the error says what is wrong and what to write.
    pub fn comparison(text: &str, runs: &[&str]) -> Result<Self, String> {
        Ok(Self {
            text: text.to_owned(),
            what: What::Comparison(comparison(text, runs)?),
        })
    }

    /// Holds it against what was measured.
    pub fn verdict(&self, measured: &Measured) -> Verdict {
        match &self.what {
            What::Phrase { run, phrase } => {
                let Found { held, words } = of_runs(run.as_deref(), phrase, measured);
                Verdict {
                    held,
                    left: None,
                    right: None,
                    found: words,
                }
            }
            What::Comparison(comparison) => comparison.verdict(&measured.figures),
        }
    }

    /// Whether it is about this metric.
    pub fn mentions(&self, metric: &str) -> bool {
        match &self.what {
            What::Phrase { .. } => false,
            What::Comparison(c) => c.mentions(metric),
        }
    }

    /// Whether the job's failure is what must come out.
    pub fn wants_failure(&self) -> bool {
        self.phrase() == Some(&Phrase::JobFails)
    }

    /// Whether somebody must read through the store to tell.
    pub fn asks_the_store(&self) -> bool {
        self.phrase() == Some(&Phrase::NothingLost)
    }

    /// How soon every fault must be found, if that is what it says.
    pub fn detected_within(&self) -> Option<Duration> {
        match self.phrase() {
            Some(Phrase::DetectedWithin(bound)) => Some(*bound),
            _ => None,
        }
    }

    fn phrase(&self) -> Option<&Phrase> {
        match &self.what {
            What::Phrase { phrase, .. } => Some(phrase),
            What::Comparison(_) => None,
        }
    }
}

/// Of the named run, else of each that was struck, else of all: the first that fails, or the last.
fn of_runs(run: Option<&str>, phrase: &Phrase, measured: &Measured) -> Found {
    let struck = measured.runs.iter().any(|(_, facts)| facts.struck);
    let meant = |(name, facts): &&(String, Facts)| match run {
        Some(run) => run == name,
        None => facts.struck || !struck,
    };
    let mut last = None;
    for (_, facts) in measured.runs.iter().filter(meant) {
        let found = phrase.check(facts);
        if !found.held {
            return found;
        }
        last = Some(found);
    }
    last.unwrap_or(Found {
        held: false,
        words: "there is no such run".to_owned(),
    })
}
