//! `robustctl inject`: strikes an instance, a node or the leader and, with --wait, shows how the recovery went.
use super::forecast;
use crate::cli::{InjectArgs, Which};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::{self, bar, locale_is_utf8, millis, who};
use crate::output::{put, put_json};
use crate::paint::Paint;
use indicatif::{ProgressBar, ProgressStyle};
use robust_proto::v1::{self, forecast_act::Act};
use robust_shared::core::IncidentOutcome;
use robust_shared::fault::{Kind, Spec, Target};
use robust_shared::ids::Role;
use std::io::IsTerminal as _;
use std::time::Duration;

const BAR_WIDTH: usize = 30;
/// The daemon ends the wait itself; this much later it is taken for gone.
const GRACE: Duration = Duration::from_secs(5);

/// Injects the fault; exit code 1 when its recovery did not finish.
pub async fn run(endpoint: &Endpoint, args: &InjectArgs, json: bool) -> Result<(), CliError> {
    if let Some(which) = args.disarm {
        return disarm(endpoint, which, json).await;
    }
    let Some((kind, role)) = args.chosen() else {
        return Err(CliError::Usage("name a fault, such as --kill ROLE".into()));
    };
    let role = role.map_or("", Role::name);
    let timeout = Duration::from_secs_f64(args.timeout);
    let request = request(args, kind, role, timeout)?;
    if args.dry_run {
        return forecast::run(endpoint, Act::Inject(request), json).await;
    }
    let mut client = endpoint.connect().await?;
    let reply = if args.wait {
        let spinner = spinner(&format!("{kind} {role}, waiting for the recovery"));
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
        put(&text(kind, &reply, Paint::stdout()))?;
    }
    if args.wait { verdict(&reply) } else { Ok(()) }
}

/// What is asked of the daemon; what is no fault is said without asking it.
fn request(
    args: &InjectArgs,
    kind: Kind,
    role: &str,
    timeout: Duration,
) -> Result<v1::InjectRequest, CliError> {
    let spec = Spec {
        kind: kind.name().to_owned(),
        code: args.code,
        seconds: args.seconds,
        percent: args.percent,
        peer: args.peer.clone(),
        node: args.lose_node.clone(),
        event: args.event.clone(),
    };
    spec.fault().map_err(|e| CliError::Usage(e.to_string()))?;
    Ok(v1::InjectRequest {
        fault: spec.kind,
        role: role.to_owned(),
        index: args.index,
        wait: args.wait,
        wait_timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        incarnation: args.incarnation,
        at: args.at.map(|at| at.to_string()).unwrap_or_default(),
        code: spec.code,
        seconds: spec.seconds,
        percent: spec.percent,
        peer: spec.peer.unwrap_or_default(),
        node: spec.node.unwrap_or_default(),
        event: spec.event.unwrap_or_default(),
        i_know: args.i_know,
    })
}

async fn disarm(endpoint: &Endpoint, which: Which, json: bool) -> Result<(), CliError> {
    let id = match which {
        Which::One(id) => Some(id),
        Which::All => None,
    };
    let mut client = endpoint.connect().await?;
    let reply = endpoint
        .ask(client.disarm(v1::DisarmRequest { id }))
        .await?;
    if json {
        return put_json(&reply);
    }
    if reply.disarmed.is_empty() {
        return put("nothing was armed\n");
    }
    let line = |f: &v1::ArmedFault| {
        let who = who(&f.role, f.index);
        format!("disarmed {}: {} of {who}\n", f.id, f.fault)
    };
    put(&reply.disarmed.iter().map(line).collect::<String>())
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
        Some(i) if i.outcome() == Some(IncidentOutcome::Recovered) => Ok(()),
        Some(i) if i.outcome() == Some(IncidentOutcome::Failed) => Err(CliError::Failed(format!(
            "the recovery failed: {}",
            i.reason
        ))),
        Some(_) => Err(CliError::Failed(
            "the recovery did not finish in time".to_owned(),
        )),
        None => Err(CliError::Failed(
            "no rule has found the fault within --timeout; it may still be found: `robustctl events --follow`"
                .to_owned(),
        )),
    }
}

/// What was done, and to whom.
fn done(kind: Kind, r: &v1::InjectReply) -> String {
    let (who, incarnation, pid) = (who(&r.role, r.index), r.incarnation, r.pid);
    let whom = match incarnation {
        0 => format!("the next life of {who}"),
        _ => format!("{who} (incarnation {incarnation}, pid {pid})"),
    };
    match (kind.target(), r.armed) {
        (Target::Node | Target::Leader, _) => format!("struck: {}\n", r.fault),
        (_, Some(id)) if r.at.is_empty() => format!("told {whom}: {} ({id})\n", r.fault),
        (_, Some(id)) => format!(
            "armed {id}: {} strikes {whom} at {}\n`robustctl inject --disarm {id}` takes it back\n",
            r.fault, r.at
        ),
        (_, None) => match kind {
            Kind::Hang => format!("hung {whom}\n"),
            Kind::Kill | Kind::LoseSlot => format!("killed {whom}\n"),
            _ => format!("struck {whom}: {}\n", r.fault),
        },
    }
}

fn text(kind: Kind, r: &v1::InjectReply, paint: Paint) -> String {
    let struck = done(kind, r);
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
    let cause = i.cause.as_ref().map(format::cause);
    let cause = cause.map_or_else(String::new, |cause| format!("cause       {cause}\n"));
    text += &format!(
        "incident {}  {}: {}\n{}plan        {}\noutcome     {}\n",
        i.id,
        i.rule,
        i.reason,
        cause,
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
