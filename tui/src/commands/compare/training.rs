//! How training went at the same steps of both runs.
use super::Side;
use super::row::{Row, Section, Unit};
use crate::commands::export::series::{Point, STEPS};
use robust_proto::v1;
use serde::Serialize;
use std::collections::BTreeMap;

/// The group of those series that are of a step itself.
const GROUP: &str = "train/";
/// The version has the step's number in every run.
const VERSION: &str = "weight_version";

/// The steps that are compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Common {
    /// How many steps both runs tell one by one: a report that was written down has the newest ones.
    pub steps: u64,
    /// The first of those that means are over.
    pub from: u64,
    /// The last step that both tell.
    pub last: u64,
    /// How many means are over.
    pub averaged: u64,
}

/// A step of both runs.
type Pair = (Point, Point);

/// What is compared at the last common step, and over the last ones; none where they have no step that both tell.
pub fn sections(a: &Side, b: &Side, last: u32) -> Option<(Common, Vec<Section>)> {
    let pairs = pairs(&a.report.step_lines, &b.report.step_lines);
    let newest = pairs.last()?;
    let span = usize::try_from(last).unwrap_or(usize::MAX);
    let averaged = &pairs[pairs.len().saturating_sub(span)..];
    let common = Common {
        steps: pairs.len() as u64,
        from: averaged.first()?.0.line.step,
        last: newest.0.line.step,
        averaged: averaged.len() as u64,
    };
    let at = format!("training at step {}, the last that both have", common.last);
    let over = format!(
        "mean of the last {} steps that both have, {} to {}",
        common.averaged, common.from, common.last
    );
    let sections = vec![
        Section::new(
            "at_last_common_step",
            at,
            rows(std::slice::from_ref(newest)),
        ),
        Section::new("mean_of_last_common_steps", over, rows(averaged)),
    ];
    Some((common, sections))
}

/// Steps that both have, in order; one that is there twice counts as it was last.
fn pairs(a: &[v1::StepLine], b: &[v1::StepLine]) -> Vec<Pair> {
    let by_step = |lines: &[v1::StepLine]| -> BTreeMap<u64, v1::StepLine> {
        lines.iter().map(|line| (line.step, *line)).collect()
    };
    let point = |line: v1::StepLine| Point { line, curve: None };
    let (a, b) = (by_step(a), by_step(b));
    let pair = |(step, line): (u64, v1::StepLine)| Some((point(line), point(*b.get(&step)?)));
    a.into_iter().filter_map(pair).collect()
}

/// A row for each series that one of them tells.
fn rows(pairs: &[Pair]) -> Vec<Row> {
    let of_steps = STEPS.iter().filter_map(|(name, of)| {
        let name = name.strip_prefix(GROUP)?;
        (name != VERSION).then_some((name, of))
    });
    let row = |(name, of): (&str, &fn(&Point) -> Option<f64>)| {
        let number = |point: &Point| of(point).filter(|figure| figure.is_finite());
        let told: Vec<_> = pairs.iter().map(|(a, b)| (number(a), number(b))).collect();
        let (a, b) = means(&told);
        Row::new(name.replace('_', " "), unit(name), a, b)
    };
    of_steps.map(row).filter(Row::is_told).collect()
}

/// Over the steps at which both tell the figure; where one never does, that of the other over those at which it does.
fn means(told: &[(Option<f64>, Option<f64>)]) -> (Option<f64>, Option<f64>) {
    let mean = |figures: Vec<f64>| match figures.len() {
        0 => None,
        count => Some(figures.iter().sum::<f64>() / count as f64),
    };
    let (a, b): (Vec<_>, Vec<_>) = told.iter().copied().unzip();
    let (a, b): (Vec<f64>, Vec<f64>) = (
        a.into_iter().flatten().collect(),
        b.into_iter().flatten().collect(),
    );
    if a.is_empty() || b.is_empty() {
        return (mean(a), mean(b));
    }
    let both = told.iter().filter_map(|(a, b)| a.zip(*b));
    let (a, b): (Vec<f64>, Vec<f64>) = both.unzip();
    (mean(a), mean(b))
}

fn unit(name: &str) -> Unit {
    match name {
        "tokens" => Unit::Count,
        "clip_fraction" | "flat_groups" => Unit::Share,
        "tokens_per_s" => Unit::Rate,
        "step_seconds" => Unit::Seconds,
        _ => Unit::Value,
    }
}
