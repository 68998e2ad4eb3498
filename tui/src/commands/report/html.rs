//! The page: one file, no script, nothing fetched (its own policy forbids both).
use super::escape::esc;
use super::run::Run;
use super::{charts, gantt, incidents, sections};
use crate::error::CliError;
use crate::format::{clock, count, millis, ratio};
use chrono::{TimeZone as _, Utc};

const STYLE: &str = include_str!("page.css");

/// All of it.
pub fn page(run: &Run<'_>) -> Result<String, CliError> {
    let r = run.report;
    let sections = [
        ("ETTR and goodput", curves(run)?),
        ("Where the time went", sections::time(run)),
        ("Phases", phases(run)?),
        ("Incidents", incidents::section(run)),
        (
            "Weight sync",
            sections::transfers(run, |kind| kind.starts_with("pull")),
        ),
        (
            "Checkpoints",
            sections::transfers(run, |kind| !kind.starts_with("pull")),
        ),
        ("Hosting and promises", sections::hosting(run)),
        ("Configuration", configuration(run)),
    ];
    let sections: String = sections
        .iter()
        .map(|(name, body)| format!("<section><h2>{name}</h2>\n{body}</section>\n"))
        .collect();
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}: report</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n\
         <header><h1>{title}</h1><p>{line}</p></header>\n{tiles}{sections}\
         <footer>robustctl {version}; from the store of the job, {from} to {to} UTC</footer>\n\
         </main></body></html>\n",
        title = esc(&r.job),
        line = line(run),
        tiles = tiles(run),
        version = env!("CARGO_PKG_VERSION"),
        from = instant(run.history.from_ms),
        to = instant(run.history.to_ms),
    ))
}

fn line(run: &Run<'_>) -> String {
    let r = run.report;
    let reason = match r.reason.is_empty() {
        true => String::new(),
        false => format!(": {}", esc(&r.reason)),
    };
    format!(
        "<b class=\"{0}\">{0}</b>{reason}, mode {1}, policy {2}",
        esc(&r.state),
        esc(&r.mode),
        esc(&r.policy)
    )
}

fn tiles(run: &Run<'_>) -> String {
    let r = run.report;
    let recovered = match run.recovered() {
        (0, _) => "none recovered".to_owned(),
        (count, mean) => format!("{count} recovered, {} on average", millis(mean)),
    };
    let tiles = [
        ("ETTR", ratio(r.ettr), "of the whole run".to_owned()),
        (
            "goodput",
            ratio(r.goodput),
            "without what was done again".to_owned(),
        ),
        (
            "steps",
            r.steps.to_string(),
            format!("in {}", clock(r.duration_s)),
        ),
        ("incidents", run.incidents_total().to_string(), recovered),
        (
            "reward",
            ratio(r.reward_last),
            format!("{} in the first 20 steps", ratio(r.reward_first)),
        ),
        (
            "tokens",
            count(r.tokens as f64),
            format!("in {} trajectories", r.trajectories),
        ),
    ];
    let tile = |(name, value, note): &(&str, String, String)| {
        format!("<div><span>{name}</span><b>{value}</b><small>{note}</small></div>\n")
    };
    let tiles: String = tiles.iter().map(tile).collect();
    format!("<div class=\"tiles\">{tiles}</div>\n")
}

fn curves(run: &Run<'_>) -> Result<String, CliError> {
    if run.history.curve.is_empty() {
        return Ok("<p>Nothing has run yet.</p>".to_owned());
    }
    Ok(format!(
        "{}<p class=\"legend\"><span><i class=\"ettr\"></i>ETTR</span> \
         <span><i class=\"goodput\"></i>goodput</span> <span><b class=\"fault\"></b>fault, by its incident's number</span></p>\
         <p class=\"note\">Mean over five minutes; a point is told apart from its neighbours \
         at {}.</p>\
         <h3>Reward</h3>{}",
        charts::ettr(run)?,
        millis(run.history.curve_resolution_s.max(run.seconds() / 600.0) * 1e3),
        charts::reward(run)?,
    ))
}

fn phases(run: &Run<'_>) -> Result<String, CliError> {
    let rows = gantt::rows(run);
    if rows.is_empty() {
        return Ok("<p>Nothing is known of them.</p>".to_owned());
    }
    let left_out = match run.history.lanes.len() - rows.len() {
        0 => String::new(),
        more => format!(" {more} more instances, without incidents, are not drawn."),
    };
    Ok(format!(
        "{}{}<p class=\"note\">Where a row is empty there was no process, the daemon was \
         away, or it is not stored yet (10 s). {}{left_out}</p>",
        gantt::chart(run)?,
        sections::legend(&rows),
        run.lanes_note().unwrap_or_default(),
    ))
}

fn configuration(run: &Run<'_>) -> String {
    let revision = match run.history.revision {
        0 => "as it began".to_owned(),
        n => format!("revision {n}"),
    };
    format!(
        "<details><summary>The job file, {revision}</summary>{}</details>",
        sections::config(&run.history.config)
    )
}

fn instant(unix_ms: u64) -> String {
    i64::try_from(unix_ms)
        .ok()
        .and_then(|ms| Utc.timestamp_millis_opt(ms).single())
        .map_or_else(
            || "-".to_owned(),
            |t| t.format("%Y-%m-%d %H:%M:%S").to_string(),
        )
}
