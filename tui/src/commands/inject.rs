//! `robustctl inject`: strikes an instance and, with --wait, shows how the recovery went.
use super::{put, put_json};
use crate::cli::InjectArgs;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::{bar, locale_is_utf8, millis, who};
use crate::paint::Paint;
use indicatif::{ProgressBar, ProgressStyle};
use robust_proto::v1;
use std::io::IsTerminal as _;
use std::time::Duration;

const BAR_WIDTH: usize = 30;
/// The daemon ends the wait itself; this much later it is taken for gone.
const GRACE: Duration = Duration::from_secs(5);

/// Injects the fault; exit code 1 when its recovery did not finish.
pub async fn run(endpoint: &Endpoint, args: &InjectArgs, json: bool) -> Result<(), CliError> {
    let (fault, role) = match (args.kill, args.hang, args.lose_slot) {
        (Some(role), ..) => ("kill", role),
        (None, Some(role), _) => ("hang", role),
        (None, None, Some(role)) => ("lose-slot", role),
        (None, None, None) => {
            let words = "name --kill ROLE, --hang ROLE or --lose-slot ROLE";
            return Err(CliError::Usage(words.into()));
        }
    };
    let timeout = Duration::from_secs_f64(args.timeout);
    let request = v1::InjectRequest {
        fault: fault.to_owned(),
        role: role.name().to_owned(),
        index: args.index,
        wait: args.wait,
        wait_timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        incarnation: args.incarnation,
        ..Default::default()
    };
    let mut client = endpoint.connect().await?;
    let reply = if args.wait {
        let spinner = spinner(&format!("{fault} {role}, waiting for the recovery"));
        let answer = tokio::time::timeout(timeout + GRACE, client.inject(request)).await;
        spinner.finish_and_clear();
        match answer {
            Ok(Ok(reply)) => reply.into_inner(),
            Ok(Err(status)) => return Err(CliError::from_status(&status, &endpoint.place())),
            Err(_) => {
                let text = format!("no answer within {} s", timeout.as_secs_f64());
                return Err(CliError::Failed(text));
            }
        }
    } else {
        endpoint.ask(client.inject(request)).await?
    };
    if json {
        put_json(&reply)?;
    } else {
        put(&text(fault, &reply, Paint::stdout()))?;
    }
    if args.wait { verdict(&reply) } else { Ok(()) }
}

fn spinner(text: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
    spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    spinner.set_message(text.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

fn verdict(reply: &v1::InjectReply) -> Result<(), CliError> {
    match &reply.incident {
        Some(i) if i.outcome == "recovered" => Ok(()),
        Some(i) if i.outcome == "failed" => Err(CliError::Failed(format!(
            "the recovery failed: {}",
            i.reason
        ))),
        Some(_) => Err(CliError::Failed(
            "the recovery did not finish in time".to_owned(),
        )),
        None => Err(CliError::Failed(
            "no incident was opened in time".to_owned(),
        )),
    }
}

fn text(fault: &str, r: &v1::InjectReply, paint: Paint) -> String {
    let done = if fault == "hang" { "hung" } else { "killed" };
    let (who, incarnation, pid) = (who(&r.role, r.index), r.incarnation, r.pid);
    let struck = format!("{done} {who} (incarnation {incarnation}, pid {pid})\n");
    let struck = match &r.slot {
        Some(s) => {
            let (node, pool, index) = (&s.node, &s.pool, s.index);
            format!(
                "{struck}lost   slot {index} of pool `{pool}` on {node}; \
                 `robustctl restore-slot {node} {pool} {index}` brings it back\n"
            )
        }
        None => struck,
    };
    let Some(i) = &r.incident else { return struck };
    let mut text = struck;
    text += &format!(
        "incident {}  {}: {}\nplan        {}\noutcome     {}\n",
        i.id,
        i.rule,
        i.reason,
        i.plan,
        paint.word(&i.outcome)
    );
    let parts = [
        ("detect", i.detect_ms),
        ("restart", i.restart_ms),
        ("reconnect", i.reconnect_ms),
    ];
    text.push('\n');
    text += &waterfall(&parts, i.total_ms);
    text += &format!("{:<24}  {:>8}\n", "total", millis(i.total_ms));
    if !i.stages.is_empty() {
        let stages: Vec<(&str, f64)> = i.stages.iter().map(|s| (s.name.as_str(), s.ms)).collect();
        text += &format!(
            "\n{}\n{}",
            paint.bold("where the time went"),
            waterfall(&stages, i.total_ms)
        );
    }
    text
}

/// A line each: name, time, and a bar of its share of the total.
fn waterfall(parts: &[(&str, f64)], total_ms: f64) -> String {
    let ascii = !locale_is_utf8();
    let line = |&(name, ms): &(&str, f64)| {
        let bar = bar(ms / total_ms, BAR_WIDTH, ascii);
        format!("{name:<24}  {:>8}  {}", millis(ms), bar)
            .trim_end()
            .to_owned()
            + "\n"
    };
    parts.iter().map(line).collect()
}
