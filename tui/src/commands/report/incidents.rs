//! Incidents of the page: each with its stages, what was decided, and the evidence.
use super::escape::esc;
use super::run::{Run, whom};
use crate::cascade;
use crate::format::{self, millis};
use crate::postmortem;
use robust_proto::v1;
use robust_shared::core::IncidentOutcome;

/// Incidents that are told one by one.
const TOLD: usize = 200;

/// All of them, newest first.
pub fn section(run: &Run<'_>) -> String {
    let all = &run.report.incidents;
    if all.is_empty() {
        return "<p>There was none.</p>".to_owned();
    }
    let newest = &all[all.len().saturating_sub(TOLD)..];
    let told: String = cascade::firsts(newest)
        .rev()
        .map(|i| with_followers(run, newest, i))
        .collect();
    let more = run.incidents_total() - all.len().min(TOLD) as u64;
    match more {
        0 => told,
        more => format!("{told}<p class=\"note\">{more} before these are not shown.</p>"),
    }
}

/// An incident, and folded below it those that follow from it.
fn with_followers(run: &Run<'_>, all: &[v1::Incident], first: &v1::Incident) -> String {
    let below: Vec<String> = cascade::under(all, first.id)
        .map(|i| card(run, i))
        .collect();
    match below.len() {
        0 => card(run, first),
        count => format!(
            "{}<details><summary>{count} that followed from {}</summary>{}</details>\n",
            card(run, first),
            first.id,
            below.concat()
        ),
    }
}

fn card(run: &Run<'_>, i: &v1::Incident) -> String {
    let root = match (i.root.as_str(), i.judged.as_str()) {
        ("", _) => String::new(),
        (root, "") => format!("<p>Root: {}.</p>", esc(root)),
        (root, judged) => format!(
            "<p>Root: {} (the rule had named {}).</p>",
            esc(root),
            esc(judged)
        ),
    };
    let stages: String = i.stages.iter().map(stage).collect();
    let evidence = match i.evidence.is_empty() {
        true => String::new(),
        false => format!(
            "<details><summary>Evidence</summary><pre>{}</pre></details>",
            esc(&i.evidence)
        ),
    };
    let cause = match &i.cause {
        None => String::new(),
        Some(cause) => format!("<p>Cause: {}</p>", esc(&format::cause(cause))),
    };
    format!(
        "<article class=\"{}\"><h3><span class=\"number\">{}</span> {}: {} \
         <small>at {}, step {}, {}</small></h3>\
         <p>{}</p>{root}{cause}<p>{}</p>{}<table class=\"times\"><tr><th>detect</th><th>restart</th>\
         <th>reconnect</th><th>total</th></tr><tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr></table>\
         <p class=\"stages\">{stages}</p>{}{evidence}</article>\n",
        if i.outcome() == Some(IncidentOutcome::Recovered) {
            "good"
        } else {
            "bad"
        },
        i.id,
        esc(&whom(i)),
        esc(&i.rule),
        run.elapsed(i.at_ms),
        i.step,
        esc(&i.outcome),
        esc(&i.reason),
        esc(&i.plan),
        bar(i),
        millis(i.detect_ms),
        millis(i.restart_ms),
        millis(i.reconnect_ms),
        millis(i.total_ms),
        notes(&i.notes),
    )
}

/// What operators wrote beside it.
fn notes(all: &[v1::IncidentNote]) -> String {
    let note = |n: &v1::IncidentNote| {
        format!(
            "<p>{} <small>{}, {}</small></p>",
            esc(&n.text),
            postmortem::moment(n.at_ms),
            esc(&n.who)
        )
    };
    let told: String = all.iter().map(note).collect();
    match told.is_empty() {
        true => told,
        false => format!("<h4>Notes</h4>{told}"),
    }
}

/// The three parts of a recovery by their share of it.
fn bar(i: &v1::Incident) -> String {
    let parts = [
        ("detect", i.detect_ms),
        ("restart", i.restart_ms),
        ("reconnect", i.reconnect_ms),
    ];
    let whole: f64 = parts.iter().map(|(_, ms)| ms.max(0.0)).sum();
    if !whole.is_finite() || whole <= 0.0 {
        return String::new();
    }
    let part = |(name, ms): (&str, f64)| {
        let percent = ms.max(0.0) / whole * 100.0;
        format!("<i class=\"{name}\" style=\"width:{percent:.2}%\"></i>")
    };
    format!("<div class=\"bar\">{}</div>", parts.map(part).concat())
}

fn stage(s: &v1::Stage) -> String {
    format!("<span>{} {}</span> ", esc(&s.name), millis(s.ms))
}
