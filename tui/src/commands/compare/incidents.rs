//! Incidents by whom they befell and of what, how long they took, and what was restarted.
use super::Side;
use super::row::{Row, Section, Unit};
use robust_proto::v1;
use robust_shared::core::IncidentOutcome;
use robust_shared::median::median;
use serde::Serialize;
use std::collections::BTreeMap;

/// How the plan of a task restart begins.
const TASK: &str = "restart the whole task";
/// How that of a gang begins.
const GANG: &str = "restart the trainer gang";
/// How that of every restart begins.
const ANY: &str = "restart ";

/// Incidents of one role that the same rule found, of the same cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Whom they befell.
    pub role: String,
    /// What found them.
    pub rule: String,
    /// What its process died of, in words; none: it came from outside, or nobody knows.
    pub cause: Option<String>,
    /// How many, and how long each part of them took.
    pub rows: Vec<Row>,
}

/// A part of an incident's time, in milliseconds; 0: it was not measured.
type Part = (&'static str, fn(&v1::Incident) -> f64);

const PARTS: [Part; 4] = [
    ("detect, median", |i| i.detect_ms),
    ("restart, median", |i| i.restart_ms),
    ("reconnect, median", |i| i.reconnect_ms),
    ("in all, median", |i| i.total_ms),
];

/// All of them together, and restarts.
pub fn sections(a: &Side, b: &Side) -> Vec<Section> {
    let (a, b) = (&a.report, &b.report);
    vec![
        Section::new("incidents", "incidents", all(a, b)),
        Section::new("restarts", "restarts", restarts(a, b)),
    ]
}

fn all(a: &v1::Report, b: &v1::Report) -> Vec<Row> {
    let row = |name: &str, of: fn(&v1::Report) -> u64| Row::count(name, Some(of(a)), Some(of(b)));
    let mut rows = vec![
        row("in all", total),
        row("of these, told one by one", |r| r.incidents.len() as u64),
        row("recovered", |r| ended(r, "recovered")),
        row("failed", |r| ended(r, "failed")),
        row("that follow from another", |r| {
            r.incidents.iter().filter(|i| i.under != 0).count() as u64
        }),
    ];
    rows.extend(parts(
        &a.incidents.iter().collect::<Vec<_>>(),
        &b.incidents.iter().collect::<Vec<_>>(),
    ));
    rows
}

/// Also those that are too old to be told one by one.
pub fn total(report: &v1::Report) -> u64 {
    report.incidents_total.max(report.incidents.len() as u64)
}

fn ended(report: &v1::Report, outcome: &str) -> u64 {
    let ended = report.incidents.iter().filter(|i| i.outcome == outcome);
    ended.count() as u64
}

/// Medians of those that recovered.
fn parts(a: &[&v1::Incident], b: &[&v1::Incident]) -> Vec<Row> {
    let seconds = |side: &[&v1::Incident], of: fn(&v1::Incident) -> f64| {
        let over = side
            .iter()
            .filter(|i| i.outcome() == Some(IncidentOutcome::Recovered));
        let mut times: Vec<f64> = over.map(|i| of(i) / 1e3).filter(|s| *s > 0.0).collect();
        median(&mut times)
    };
    let row = |(name, of): Part| Row::new(name, Unit::Seconds, seconds(a, of), seconds(b, of));
    PARTS.map(row).to_vec()
}

/// What incidents were restarted with, as their plans say it, and restarts without one.
fn restarts(a: &v1::Report, b: &v1::Report) -> Vec<Row> {
    let row = |name: &str, is: fn(&v1::Incident) -> bool| {
        let count = |r: &v1::Report| r.incidents.iter().filter(|i| is(i)).count() as u64;
        Row::count(name, Some(count(a)), Some(count(b)))
    };
    vec![
        row("one instance", |i| {
            i.plan.starts_with(ANY) && !i.plan.starts_with(GANG) && !i.plan.starts_with(TASK)
        }),
        // What follows from another incident was restarted with that one.
        row("the trainer gang", |i| {
            i.under == 0 && i.plan.starts_with(GANG)
        }),
        row("the whole task", |i| {
            i.under == 0 && i.plan.starts_with(TASK)
        }),
        Row::count(
            "planned, by instances",
            a.restarts_planned,
            b.restarts_planned,
        ),
    ]
}

/// By role, rule and cause, in that order. Of a cause its fingerprint counts: words differ in numbers and addresses.
pub fn groups(a: &Side, b: &Side) -> Vec<Group> {
    let mut found: BTreeMap<(&str, &str, &str), [Vec<&v1::Incident>; 2]> = BTreeMap::new();
    for (side, report) in [&a.report, &b.report].into_iter().enumerate() {
        for incident in &report.incidents {
            let cause = incident.cause.as_ref();
            let cause = cause.map_or("", |cause| cause.fingerprint.as_str());
            let key = (incident.role.as_str(), incident.rule.as_str(), cause);
            found.entry(key).or_default()[side].push(incident);
        }
    }
    let group = |((role, rule, _), [a, b]): ((&str, &str, &str), [Vec<&v1::Incident>; 2])| {
        let told = a.iter().chain(&b).find_map(|i| i.cause.as_ref());
        let count = |side: &[&v1::Incident]| Some(side.len() as u64);
        let mut rows = vec![Row::count("incidents", count(&a), count(&b))];
        rows.extend(parts(&a, &b));
        Group {
            role: role.to_owned(),
            rule: rule.to_owned(),
            cause: told.map(|cause| cause.words.clone()),
            rows,
        }
    };
    found.into_iter().map(group).collect()
}
