//! Measured values with their spread and the machine's load.
use serde::Serialize;

/// One figure: what came out of every round.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    all: Vec<f64>,
    load: Vec<f64>,
}

/// A figure as it is reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The middle value; of an even number the lower.
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

    /// The middle one; of an even number the lower. None before the first round.
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

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
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
}
