//! Measured values with their spread and the machine's load.
use serde_json::{Value, json};

/// One figure: what came out of every round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figure {
    all: Vec<f64>,
    load: Vec<f64>,
}

impl Figure {
    /// Notes a round's value, and the load beside it.
    pub fn add(&mut self, value: f64) {
        self.all.push(value);
        self.load.push(load());
    }

    /// The middle one; of an even number the lower. None before the first round.
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.all.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len().checked_sub(1)? / 2).copied()
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
    pub fn json(&self) -> Value {
        let bound = |pick: fn(f64, f64) -> f64| self.all.iter().copied().reduce(pick);
        let load = Figure {
            all: self.load.clone(),
            load: Vec::new(),
        };
        json!({
            "median": self.median(),
            "min": bound(f64::min),
            "max": bound(f64::max),
            "all": self.all,
            "load": load.median(),
        })
    }
}

/// Processes that want a core, over the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_figure_is_its_median_with_its_spread() {
        let mut figure = Figure::default();
        assert_eq!(figure.median(), None);
        for value in [3.0, 1.0, 2.0] {
            figure.add(value);
        }
        let json = figure.json();
        assert_eq!(json["median"], 2.0);
        assert_eq!((&json["min"], &json["max"]), (&json!(1.0), &json!(3.0)));
        assert!(json["load"].as_f64().unwrap() >= 0.0);
        assert_eq!(figure.over(&figure).median(), Some(1.0));
    }
}
