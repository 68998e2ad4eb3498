//! `[expect]` of a drill: what must come out of it, a key for each thing that can be said.
//!
//! ```text
//!  expect = { rule = "exit", restart = "role", recovered_within = "60s", lost = 0 }
//!           every run that was struck; where none was, every run
//!  expect.runs.none = { restart = "none" }      of the run of that name
//!  expect.compare = ["ettr_role >= 0.85"]       figures of several runs (see [`super::compare`])
//! ```
use super::compare::comparison;
use super::expect::{Expectation, WEIGHTS_IDENTICAL, What};
use super::phrase::{self, Phrase};
use crate::nearest::nearest;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer, StrDeserializer};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// Each key as it is written, with what it means, for help.
pub const EXPECTATIONS: [(&str, &str); 14] = [
    (
        "rule = \"NAME\"",
        "that rule found something: a fault, or what it only says; several: a list",
    ),
    (
        "detected_within = \"T\"",
        "every fault was found so soon after it struck",
    ),
    (
        "restart = \"role\"",
        "faults restarted roles, never the whole task",
    ),
    ("restart = \"task\"", "a fault restarted the whole task"),
    ("restart = \"none\"", "nothing was restarted"),
    ("restarts = N", "there were so many incidents"),
    (
        "recovered_within = \"T\"",
        "every recovery was over so soon after its fault",
    ),
    (
        "job = \"goes_on\"",
        "steps were committed after the last fault",
    ),
    ("job = \"fails\"", "the job ends with a failure"),
    (
        "lost = 0",
        "the store is whole, no trajectory was lost or consumed twice",
    ),
    (
        "ettr_at_least = X",
        "the ETTR of the whole run, from 0 to 1; goodput_at_least likewise",
    ),
    (
        "event = { kind = \"KIND\", words = \"WORDS\" }",
        "an event of that kind with those words; several: a list",
    ),
    (
        "weights = \"identical\"",
        "all runs ended with the same weights (mode sync)",
    ),
    (
        "compare = [\"ettr_role >= 0.85\"]",
        "figures of several runs compare so",
    ),
];

/// What is expected of the runs of a series.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    #[serde(default, deserialize_with = "one_or_more")]
    rule: Vec<String>,
    detected_within: Option<String>,
    restart: Option<Restart>,
    restarts: Option<u64>,
    recovered_within: Option<String>,
    job: Option<JobWord>,
    lost: Option<u64>,
    ettr_at_least: Option<f64>,
    goodput_at_least: Option<f64>,
    #[serde(default, deserialize_with = "one_or_more")]
    event: Vec<Event>,
    weights: Option<WeightsWord>,
    #[serde(default)]
    compare: Vec<String>,
    /// Of the runs of these names alone.
    #[serde(default)]
    runs: BTreeMap<String, Expected>,
}

/// What was restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Restart {
    Role,
    Task,
    None,
}

/// What becomes of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JobWord {
    GoesOn,
    Fails,
}

/// What is said of the weights at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WeightsWord {
    Identical,
}

/// An event that must be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    kind: String,
    /// Part of its text; empty: any text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    words: String,
}

/// One expectation of a file, or why it is none.
pub(super) struct Line {
    /// Its key below `expect`, to name its place.
    pub key: String,
    /// As it is written.
    pub text: String,
    what: Result<What, String>,
}

impl Line {
    /// The expectation; the error says what is wrong and what to write.
    pub fn read(self) -> Result<Expectation, String> {
        let text = self.text;
        self.what.map(|what| Expectation { text, what })
    }
}

impl Expected {
    /// Every expectation, those of all runs before those of one.
    pub fn lines(&self, runs: &[&str]) -> Vec<Line> {
        let mut lines = self.of_run(None);
        if let Some(WeightsWord::Identical) = self.weights {
            let same = comparison(WEIGHTS_IDENTICAL, runs).map(What::Comparison);
            lines.push(line("weights", WeightsWord::Identical, same));
        }
        lines.extend(self.compare.iter().enumerate().map(|(n, text)| Line {
            key: format!("compare.{n}"),
            text: text.clone(),
            what: comparison(text, runs).map(What::Comparison),
        }));
        for (name, of) in &self.runs {
            if let Some(wrong) = of.is_of_one_run(name, runs) {
                lines.push(Line {
                    key: format!("runs.{name}"),
                    text: format!("runs.{name}"),
                    what: Err(wrong),
                });
            }
            lines.extend(of.of_run(Some(name)));
        }
        lines
    }

    /// What is wrong with it as the expectations of one run.
    fn is_of_one_run(&self, name: &str, runs: &[&str]) -> Option<String> {
        if !runs.contains(&name) {
            return Some(match nearest(name, runs.iter().copied()) {
                Some(near) => format!("there is no run `{name}`; did you mean `{near}`?"),
                None => format!("there is no run `{name}`; runs are {}", runs.join(", ")),
            });
        }
        let of_several =
            self.weights.is_some() || !self.compare.is_empty() || !self.runs.is_empty();
        of_several.then(|| {
            "`weights`, `compare` and `runs` are about several runs; write them beside `runs`"
                .to_owned()
        })
    }

    /// What can be said of a single run.
    fn of_run(&self, run: Option<&str>) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut add = |key: &str, value: toml::Value, phrase: Result<Phrase, String>| {
            let run = run.map(str::to_owned);
            let key = run
                .as_ref()
                .map_or_else(|| key.to_owned(), |run| format!("runs.{run}.{key}"));
            lines.push(line(
                &key,
                value,
                phrase.map(|phrase| What::Phrase { run, phrase }),
            ));
        };
        for name in &self.rule {
            add(
                "rule",
                name.as_str().into(),
                phrase::rule(name).map(Phrase::Rule),
            );
        }
        if let Some(time) = &self.detected_within {
            let bound = phrase::duration(time).map(Phrase::DetectedWithin);
            add("detected_within", time.as_str().into(), bound);
        }
        if let Some(restart) = self.restart {
            add("restart", value_of(restart), Ok(restart.phrase()));
        }
        if let Some(count) = self.restarts {
            add("restarts", value_of(count), Ok(Phrase::Restarts(count)));
        }
        if let Some(time) = &self.recovered_within {
            let bound = phrase::duration(time).map(Phrase::RecoveredWithin);
            add("recovered_within", time.as_str().into(), bound);
        }
        if let Some(job) = self.job {
            add("job", value_of(job), Ok(job.phrase()));
        }
        if let Some(count) = self.lost {
            add("lost", value_of(count), nothing_lost(count));
        }
        if let Some(least) = self.ettr_at_least {
            add(
                "ettr_at_least",
                least.into(),
                phrase::share(least).map(Phrase::Ettr),
            );
        }
        if let Some(least) = self.goodput_at_least {
            add(
                "goodput_at_least",
                least.into(),
                phrase::share(least).map(Phrase::Goodput),
            );
        }
        for event in &self.event {
            let Event { kind, words } = event.clone();
            add("event", value_of(event), Ok(Phrase::Event(kind, words)));
        }
        lines
    }
}

impl Restart {
    fn phrase(self) -> Phrase {
        match self {
            Restart::Role => Phrase::RoleRestart,
            Restart::Task => Phrase::TaskRestart,
            Restart::None => Phrase::NoRestart,
        }
    }
}

impl JobWord {
    fn phrase(self) -> Phrase {
        match self {
            JobWord::GoesOn => Phrase::TrainingGoesOn,
            JobWord::Fails => Phrase::JobFails,
        }
    }
}

fn nothing_lost(count: u64) -> Result<Phrase, String> {
    match count {
        0 => Ok(Phrase::NothingLost),
        _ => Err("a job loses no trajectory, whatever strikes it; write `lost = 0`".to_owned()),
    }
}

fn line(key: &str, value: impl Serialize, what: Result<What, String>) -> Line {
    Line {
        key: key.to_owned(),
        text: format!("{key} = {}", value_of(value)),
        what,
    }
}

/// A value as it is written in TOML.
fn value_of(value: impl Serialize) -> toml::Value {
    // Words, whole numbers and tables of them: there is none that TOML cannot hold, but for numbers above its own.
    toml::Value::try_from(value).unwrap_or(toml::Value::Integer(i64::MAX))
}

/// Reads one, or a list of them.
fn one_or_more<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct OneOrMore<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMore<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("one, or a list of them")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            T::deserialize(StrDeserializer::new(text)).map(|one| vec![one])
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(|one| vec![one])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Vec<T>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(seq))
        }
    }

    from.deserialize_any(OneOrMore(PhantomData))
}
