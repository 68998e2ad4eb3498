//! What is drawn of each step: a line for each figure.
use crate::format::count;
use robust_proto::v1::StepLine;

/// A figure of a step.
pub struct Series {
    /// Its name, at most twelve cells.
    pub name: &'static str,
    /// What it is, with its unit.
    pub what: &'static str,
    /// None: nobody said it.
    pub of: fn(&StepLine) -> Option<f64>,
}

/// All of them, what is looked at most first.
pub static SERIES: [Series; 12] = [
    Series {
        name: "reward",
        what: "mean of the batch",
        of: |s| Some(s.reward),
    },
    Series {
        name: "loss",
        what: "of the step",
        of: |s| Some(s.loss),
    },
    Series {
        name: "entropy",
        what: "mean of the policy, in nats; near 0 it explores no more",
        of: |s| s.entropy,
    },
    Series {
        name: "kl",
        what: "mean divergence from the old policy, or from the reference, in nats",
        of: |s| s.kl,
    },
    Series {
        name: "clipped",
        what: "share of tokens whose ratio was clipped",
        of: |s| s.clip_fraction,
    },
    Series {
        name: "grad norm",
        what: "of the gradient before clipping",
        of: |s| Some(s.grad_norm),
    },
    Series {
        name: "flat groups",
        what: "share of groups whose rewards are all the same: they teach nothing",
        of: |s| {
            let (flat, groups) = s.flat_groups.zip(s.groups)?;
            (groups > 0).then(|| f64::from(flat) / f64::from(groups))
        },
    },
    Series {
        name: "length",
        what: "mean of generated tokens of a trajectory",
        of: |s| s.mean_length,
    },
    Series {
        name: "longest",
        what: "generated tokens of the longest trajectory",
        of: |s| s.longest.map(|tokens| tokens as f64),
    },
    Series {
        name: "staleness",
        what: "versions from the oldest weights used to the newest",
        of: |s| Some(s.staleness as f64),
    },
    Series {
        name: "tokens",
        what: "trained on",
        of: |s| Some(s.tokens as f64),
    },
    Series {
        name: "seconds",
        what: "since the step before",
        of: |s| Some(s.seconds),
    },
];

/// A value in at most nine cells.
pub fn figure(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => value.to_string(),
        1_000.0.. => count(value),
        100.0.. => format!("{value:.1}"),
        0.001.. => format!("{value:.4}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.1e}"),
    }
}

/// The least and the greatest of those that are numbers.
pub fn bounds(values: &[f64]) -> Option<(f64, f64)> {
    let mut finite = values.iter().copied().filter(|value| value.is_finite());
    let first = finite.next()?;
    Some(finite.fold((first, first), |(low, high), v| (low.min(v), high.max(v))))
}

/// The mean of the numbers that fall into each of so many columns; none: there is none in it.
pub fn columns(values: &[f64], columns: usize) -> Vec<Option<f64>> {
    let place = |column: usize| column * values.len() / columns.max(1);
    let mean = |column: usize| {
        let from = place(column);
        let to = place(column + 1).max(from + 1).min(values.len());
        let finite = values[from.min(to)..to].iter().filter(|v| v.is_finite());
        let (sum, n) = finite.fold((0.0, 0_u32), |(sum, n), v| (sum + v, n + 1));
        (n > 0).then(|| sum / f64::from(n))
    };
    (0..columns).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_fit_into_their_columns() {
        for series in &SERIES {
            assert!(series.name.len() <= 12, "{}", series.name);
        }
        for value in [
            0.0,
            -0.0123,
            1.5,
            -99.125,
            512.25,
            4_096.0,
            2.5e9,
            1e-7,
            f64::NAN,
            -1e-9,
        ] {
            let text = figure(value);
            assert!(text.len() <= 9, "{text}");
        }
        assert_eq!(figure(f64::NAN), "NaN");
    }

    #[test]
    fn a_column_is_the_mean_of_its_steps_and_a_step_may_fill_several() {
        let values = [1.0, 3.0, f64::NAN, 5.0];
        assert_eq!(columns(&values, 2), [Some(2.0), Some(5.0)]);
        assert_eq!(
            columns(&values[..2], 4),
            [Some(1.0), Some(1.0), Some(3.0), Some(3.0)]
        );
        assert_eq!(columns(&[f64::NAN], 1), [None]);
        assert_eq!(columns(&[], 2), [None, None]);
        assert_eq!(bounds(&values), Some((1.0, 5.0)));
        assert_eq!(bounds(&[f64::NAN]), None);
    }

    #[test]
    fn what_nobody_said_is_no_value_and_a_batch_without_groups_has_no_share() {
        let unsaid = StepLine::default();
        let said = SERIES.iter().filter(|s| (s.of)(&unsaid).is_some());
        let names: Vec<&str> = said.map(|s| s.name).collect();
        assert_eq!(
            names,
            [
                "reward",
                "loss",
                "grad norm",
                "staleness",
                "tokens",
                "seconds"
            ]
        );
        let flat = SERIES
            .iter()
            .find(|s| s.name == "flat groups")
            .map(|s| s.of);
        let of = |flat_groups, groups| StepLine {
            flat_groups: Some(flat_groups),
            groups: Some(groups),
            ..StepLine::default()
        };
        assert_eq!(flat.and_then(|flat| flat(&of(1, 4))), Some(0.25));
        assert_eq!(flat.and_then(|flat| flat(&of(0, 0))), None);
    }
}
