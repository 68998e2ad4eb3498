//! Tables of the page.
use super::colours::variable;
use super::escape::esc;
use super::run::{Came, Run, changed};
use crate::format::{bytes, millis, rate};
use robust_proto::v1;
use serde_json::Value;
use std::collections::BTreeSet;

/// What the time went to, by cause and by role and phase.
pub fn time(run: &Run<'_>) -> String {
    let cause = |(cause, seconds, share, waste): (&str, f64, f64, bool)| {
        let percent = (share * 100.0).clamp(0.0, 100.0);
        let class = if waste { " class=\"waste\"" } else { "" };
        format!(
            "<tr{class}><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{percent:.1}%</td>\
             <td class=\"share\"><i style=\"width:{percent:.2}%\"></i></td></tr>\n",
            esc(cause),
            millis(seconds * 1e3),
        )
    };
    let causes: String = run.causes().into_iter().map(cause).collect();
    format!(
        "<div class=\"scroll\"><table><tr><th>What counted</th><th>time</th>\
         <th>share</th><th></th></tr>\
         {causes}</table></div>\n{}",
        phases(run)
    )
}

fn phases(run: &Run<'_>) -> String {
    let row = |(role, phases): (&str, Vec<(&str, f64)>)| {
        let part = |(phase, share): &(&str, f64)| {
            let percent = share * 100.0;
            format!(
                "<i style=\"width:{percent:.2}%;background:var({})\" title=\"{} {percent:.1}%\"></i>",
                variable(phase),
                esc(phase)
            )
        };
        let parts: String = phases.iter().map(part).collect();
        let named = phases.iter().filter(|(_, share)| *share >= 0.01);
        let named = named.map(|(phase, share)| format!("{} {:.0}%", esc(phase), share * 100.0));
        let named: Vec<_> = named.collect();
        format!(
            "<h3>{}</h3><div class=\"bar\">{parts}</div><p class=\"note\">{}</p>\n",
            esc(role),
            named.join(", ")
        )
    };
    run.phases().into_iter().map(row).collect()
}

/// The phases that the chart shows, with their colours.
pub fn legend(lanes: &[&v1::Lane]) -> String {
    let shown: BTreeSet<&str> = lanes
        .iter()
        .flat_map(|lane| lane.spans.iter().map(|s| s.phase.as_str()))
        .collect();
    let entry = |phase: &&str| {
        format!(
            "<span><i style=\"background:var({})\"></i>{}</span> ",
            variable(phase),
            esc(phase)
        )
    };
    let entries: String = shown.iter().map(entry).collect();
    format!(
        "<p class=\"legend\">{entries}<span><b class=\"frame\"></b>fault to recovery</span></p>"
    )
}

/// Pulls and checkpoints: sums, then the slowest of each kind.
pub fn transfers(run: &Run<'_>, kinds: fn(&str) -> bool) -> String {
    let sums = run.history.transfers.iter().filter(|t| kinds(&t.kind));
    let rows: String = sums.map(sum).collect();
    if rows.is_empty() {
        return "<p>There was none.</p>".to_owned();
    }
    let slowest = run
        .history
        .slowest
        .iter()
        .filter(|t| kinds(&t.kind))
        .take(10);
    let slowest: String = slowest.map(|t| one(run, t)).collect();
    format!(
        "<div class=\"scroll\"><table><tr><th></th><th>done</th><th>failed</th><th>bytes</th>\
         <th>mean</th><th>slowest</th><th>rate</th><th>roads</th><th>sent</th><th>saved</th>\
         <th>changed</th></tr>{rows}</table></div>\n\
         <details><summary>The slowest</summary><div class=\"scroll\"><table><tr><th></th>\
         <th>at</th><th>number</th><th>by</th><th>bytes</th><th>took</th><th>road</th>\
         <th>sent</th><th>changed</th></tr>{slowest}</table></div></details>\n"
    )
}

fn sum(t: &v1::TransferSum) -> String {
    let n = |text: String| format!("<td class=\"n\">{text}</td>");
    let cells = [
        t.done.to_string(),
        t.failed.to_string(),
        bytes(t.bytes),
        millis(t.took_ms as f64 / t.done.max(1) as f64),
        millis(t.slowest_ms as f64),
        rate(t.bytes as f64 / (t.took_ms.max(1) as f64 / 1e3)),
    ];
    let came = Came::of(t).map(|came| {
        [
            esc(&came.roads),
            bytes(t.sent),
            bytes(came.saved),
            percent(came.changed),
        ]
    });
    let cells = cells.into_iter().chain(came.unwrap_or_else(none));
    format!(
        "<tr><td>{}</td>{}</tr>\n",
        esc(&t.kind),
        cells.map(n).collect::<String>()
    )
}

/// Cells of what nothing is known of.
fn none<const N: usize>() -> [String; N] {
    std::array::from_fn(|_| "-".to_owned())
}

fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.2} %", part * 100.0))
}

fn one(run: &Run<'_>, t: &v1::Transfer) -> String {
    let n = |text: String| format!("<td class=\"n\">{text}</td>");
    let cells = match t.road.is_empty() {
        true => none(),
        false => [
            esc(&t.road),
            bytes(t.sent),
            percent(changed(t.changed_words, t.patched)),
        ],
    };
    format!(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{}</td>{}</tr>\n",
        esc(&t.kind),
        run.elapsed(t.at_ms),
        t.number,
        esc(if t.who.is_empty() { "-" } else { &t.who }),
        bytes(t.bytes),
        millis(t.took_ms as f64),
        cells.map(n).concat()
    )
}

/// How each role is hosted, and what is therefore promised.
pub fn hosting(run: &Run<'_>) -> String {
    let report = run.report;
    if report.hosted.is_empty() {
        return "<p>It is not known.</p>".to_owned();
    }
    let role = |of: &v1::HostedRole| {
        let (role, text) = (esc(&of.role), esc(&of.text));
        format!("<tr><td>{role}</td><td>{text}</td></tr>\n")
    };
    let promise = |of: &v1::Promise| {
        let why = esc(&of.reasons.join("; "));
        let (id, text, level) = (esc(&of.id), esc(&of.text), esc(&of.level));
        format!("<tr><td>{id}</td><td>{text}</td><td>{level}</td><td>{why}</td></tr>\n")
    };
    let roles: String = report.hosted.iter().map(role).collect();
    let promises: String = report.promises.iter().map(promise).collect();
    format!(
        "<div class=\"scroll\"><table><tr><th>role</th><th>hosted as</th></tr>\n\
         {roles}</table></div>\n\
         <div class=\"scroll\"><table><tr><th></th><th>promise</th><th>level</th><th>why</th></tr>\n\
         {promises}</table></div>\n"
    )
}

/// The job in force, a key a line.
pub fn config(text: &str) -> String {
    let Some(rows) = keys(text) else {
        return "<p>It is not known.</p>".to_owned();
    };
    let row = |(key, value): &(String, String)| {
        format!("<tr><td>{}</td><td>{}</td></tr>\n", esc(key), esc(value))
    };
    let rows: String = rows.iter().map(row).collect();
    format!("<div class=\"scroll\"><table class=\"config\">{rows}</table></div>")
}

/// Keys of a job, which is JSON, with their values; none where it is not known.
pub fn keys(text: &str) -> Option<Vec<(String, String)>> {
    let job = serde_json::from_str::<Value>(text).ok()?;
    let mut rows = Vec::new();
    flatten(&job, String::new(), &mut rows);
    Some(rows)
}

/// Keys as in a job file; what is not set is left out.
fn flatten(value: &Value, key: String, rows: &mut Vec<(String, String)>) {
    let below = |name: &str| match key.is_empty() {
        true => name.to_owned(),
        false => format!("{key}.{name}"),
    };
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (name, value) in map {
                flatten(value, below(name), rows);
            }
        }
        Value::Array(all) if all.iter().any(Value::is_object) => {
            for (index, value) in all.iter().enumerate() {
                flatten(value, below(&index.to_string()), rows);
            }
        }
        other => rows.push((key, other.to_string())),
    }
}
