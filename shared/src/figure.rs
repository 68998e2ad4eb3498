//! Measured values with their spread and the machine's load.
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// One figure: what came out of every round.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    all: Vec<f64>,
    load: Vec<f64>,
}

/// A figure as it is reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The middle value; of an even number the mean of the two in the middle.
    pub median: Option<f64>,
    /// The lowest.
    pub min: Option<f64>,
    /// The highest.
    pub max: Option<f64>,
    /// All of them, in the order of the rounds.
    pub all: Vec<f64>,
    /// The median of the load.
    pub load: Option<f64>,
}

impl Figure {
    /// Notes a round's value, and the load beside it.
    pub fn add(&mut self, value: f64, load: f64) {
        self.all.push(value);
        self.load.push(load);
    }

    /// The middle one; of an even number the mean of the two in the middle. None before the first round.
    pub fn median(&self) -> Option<f64> {
        median(&self.all)
    }

    /// Round by round this over that: both saw about the same load.
    pub fn over(&self, other: &Figure) -> Figure {
        let pairs = self.all.iter().zip(&other.all);
        Figure {
            all: pairs.map(|(a, b)| a / b).collect(),
            load: self.load.clone(),
        }
    }

    /// The median, all values in the order of the rounds, their bounds and the load's median.
    pub fn summary(&self) -> Summary {
        let bound = |pick: fn(f64, f64) -> f64| self.all.iter().copied().reduce(pick);
        Summary {
            median: self.median(),
            min: bound(f64::min),
            max: bound(f64::max),
            all: self.all.clone(),
            load: median(&self.load),
        }
    }
}

/// All that a benchmark measured, by name, and what it left out.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    by_name: BTreeMap<String, Figure>,
    skipped: Vec<String>,
}

impl Figures {
    /// Notes one round's value of a figure, and the load beside it.
    pub fn add(&mut self, name: impl Into<String>, value: f64, load: f64) {
        self.by_name
            .entry(name.into())
            .or_default()
            .add(value, load);
    }

    /// Puts a figure that is whole.
    pub fn put(&mut self, name: &str, figure: Figure) {
        self.by_name.insert(name.to_owned(), figure);
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&Figure> {
        self.by_name.get(name)
    }

    /// Round by round `a` over `b`, if both were measured.
    pub fn ratio(&self, a: &str, b: &str) -> Option<Figure> {
        Some(self.get(a)?.over(self.get(b)?))
    }

    /// Notes what was left out, and why: a sentence.
    pub fn skip(&mut self, line: String) {
        self.skipped.push(line);
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Figure)> {
        self.by_name.iter().map(|(name, figure)| (&**name, figure))
    }

    /// What was left out.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// The report: a key a figure, `skipped`, `seconds` that all of it took, and `settings`.
    pub fn report(&self, seconds: f64, settings: Value) -> Value {
        let figures = self.iter();
        let mut all: Map<String, Value> = figures
            .map(|(name, figure)| (name.to_owned(), json!(figure.summary())))
            .collect();
        all.insert("skipped".into(), json!(self.skipped));
        all.insert("seconds".into(), json!(seconds));
        all.insert("settings".into(), settings);
        Value::Object(all)
    }
}

fn median(values: &[f64]) -> Option<f64> {
    crate::median::median(&mut values.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_its_median_with_its_spread() {
        let mut figure = Figure::default();
        assert_eq!(figure.median(), None);
        for value in [3.0, 1.0, 2.0] {
            figure.add(value, value * 2.0);
        }
        let summary = figure.summary();
        assert_eq!((summary.median, summary.load), (Some(2.0), Some(4.0)));
        assert_eq!((summary.min, summary.max), (Some(1.0), Some(3.0)));
        assert_eq!(figure.over(&figure).median(), Some(1.0));
    }

    #[test]
    fn a_report_has_what_was_measured_and_what_was_left_out() {
        let mut figures = Figures::default();
        figures.add("a", 6.0, 1.0);
        figures.add("b", 2.0, 1.0);
        figures.skip("gloo skipped: no torch".to_owned());
        let ratio = figures.ratio("a", "b").unwrap_or_default();
        figures.put("a_over_b", ratio);
        assert!(figures.ratio("a", "c").is_none());
        let report = figures.report(1.5, json!({"rounds": 1}));
        assert_eq!(report["a_over_b"]["median"], 3.0);
        assert_eq!(report["skipped"][0], "gloo skipped: no torch");
        assert_eq!(
            (&report["seconds"], &report["settings"]["rounds"]),
            (&json!(1.5), &json!(1))
        );
    }
}
