//! `robustctl audit`: who asked for what, and what came of it.
use super::audit_check;
use crate::cli::AuditArgs;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::time_of_day;
use crate::output::{put, put_json};
use crate::paint::Paint;
use robust_proto::v1;
use robust_shared::wire::AuditResult;
use std::collections::BTreeMap;
use tokio_stream::StreamExt as _;

/// A line for each request, when its result is known; at the end those without one.
pub async fn run(endpoint: &Endpoint, args: &AuditArgs, json: bool) -> Result<(), CliError> {
    if args.verify {
        let state = endpoint.state_dir().ok_or_else(|| {
            CliError::Usage(
                "--verify reads files: run it where the state directory is, without --connect"
                    .to_owned(),
            )
        })?;
        return audit_check::run(state, json);
    }
    let mut client = endpoint.connect().await?;
    let request = v1::AuditRequest {
        follow: args.follow,
        since: args.since,
    };
    let mut entries = endpoint.ask(client.audit(request)).await?;
    let mut open = BTreeMap::new();
    while let Some(entry) = entries.next().await {
        let entry = entry.map_err(|status| CliError::from_status(&status, &endpoint.place()))?;
        if entry.result() == Some(AuditResult::Asked) {
            open.insert(entry.id, entry);
            continue;
        }
        // As it was asked, at the time it was asked.
        let asked_at = open
            .remove(&entry.id)
            .map_or(entry.at_ms, |asked| asked.at_ms);
        show(
            &v1::AuditEntry {
                at_ms: asked_at,
                ..entry
            },
            json,
        )?;
    }
    open.values().try_for_each(|entry| show(entry, json))
}

fn show(entry: &v1::AuditEntry, json: bool) -> Result<(), CliError> {
    match json {
        true => put_json(entry),
        false => put(&line(entry, Paint::stdout())),
    }
}

fn line(e: &v1::AuditEntry, paint: Paint) -> String {
    let result = match e.result() {
        Some(AuditResult::Asked) => "no result",
        _ => &e.result,
    };
    let result = paint.word(&format!("{result:<9}"));
    let (time, who, what) = (time_of_day(e.at_ms), &e.who, &e.what);
    let mut line = format!("{:>5}  {time}  {result}  {what:<11}  {who}", e.id);
    for more in [&e.on, &e.reason].into_iter().filter(|m| !m.is_empty()) {
        line += &format!("  {more}");
    }
    line + "\n"
}
