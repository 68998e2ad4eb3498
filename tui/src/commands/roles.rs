//! `robustctl roles`: every instance, or the past of one.
use super::status::{NOW, now, spares};
use super::watch::until_over;
use crate::cli::{RolesArgs, Who};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::{bytes, clock, millis, time_of_day, who};
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use robust_proto::v1;
use std::collections::{HashMap, VecDeque};

/// Between two looks of `--follow`.
const LOOK_EVERY_MS: u32 = 1000;
/// Phases shown of an instance.
const PHASES: usize = 12;

/// Prints the instances, once or as they change.
pub async fn run(endpoint: &Endpoint, args: &RolesArgs, json: bool) -> Result<(), CliError> {
    if args.follow {
        return follow(endpoint, args.who, json).await;
    }
    let mut client = endpoint.connect().await?;
    let asked = client.get_status(v1::GetStatusRequest {});
    let mut status = endpoint.ask(asked).await?;
    choose(&mut status, args.who)?;
    let phases = match args.who {
        Some(who) if who.index.is_some() => Some(last_phases(endpoint, who).await?),
        _ => None,
    };
    if json {
        return put_json(&with_phases(&status.roles, phases.as_deref()));
    }
    let paint = Paint::stdout();
    match (&status.roles[..], phases) {
        ([one], Some(phases)) => put(&one_of(one, &phases, &status, paint)),
        _ => put(&whole(&status, args.who.is_none(), paint)),
    }
}

/// The instances; where all are wanted, what waits for the restart of any, too.
fn whole(status: &v1::Status, all: bool, paint: Paint) -> String {
    let mut text = table(status).render(paint);
    if all && !status.spares.is_empty() {
        text += &format!("\n{}", spares(status).render(paint));
    }
    text
}

/// What one instance did of late, oldest first, the present last.
async fn last_phases(endpoint: &Endpoint, who: Who) -> Result<Vec<v1::PhaseSpan>, CliError> {
    let mut client = endpoint.connect().await?;
    let request = v1::PhasesRequest {
        role: who.role.name().to_owned(),
        index: who.index,
        ..Default::default()
    };
    let mut parts = endpoint.ask(client.phases(request)).await?;
    let mut spans = VecDeque::new();
    while let Some(part) = endpoint.next(&mut parts).await? {
        spans.extend(part.spans);
        while spans.len() > PHASES {
            spans.pop_front();
        }
    }
    Ok(spans.into())
}

/// The instances as JSON; of one that was named what it did of late, too.
fn with_phases(roles: &[v1::RoleStatus], phases: Option<&[v1::PhaseSpan]>) -> serde_json::Value {
    let mut value = serde_json::json!(roles);
    if let (Some(one), Some(phases)) = (value.get_mut(0), phases) {
        one["phases"] = serde_json::json!(phases);
    }
    value
}

/// Only those that are asked for; a refusal when there is none.
fn choose(status: &mut v1::Status, wanted: Option<Who>) -> Result<(), CliError> {
    let Some(wanted) = wanted else { return Ok(()) };
    let of_role = |r: &&v1::RoleStatus| r.role == wanted.role.name();
    let has = status.roles.iter().filter(of_role).count();
    status.roles.retain(|r| wanted.is(&r.role, r.index));
    match status.roles.is_empty() {
        false => Ok(()),
        true => Err(CliError::Refused(format!(
            "there is no {wanted}; the job has {has} of role {}",
            wanted.role
        ))),
    }
}

/// Until the job is over.
async fn follow(endpoint: &Endpoint, wanted: Option<Who>, json: bool) -> Result<(), CliError> {
    let (paint, mut seen) = (Paint::stdout(), Seen::default());
    let show = |status: &mut v1::Status| {
        // One that is scaled down may come back.
        let _ = choose(status, wanted);
        match json {
            true => put_json(&status.roles),
            false => put(&seen.news(status, paint)),
        }
    };
    until_over(endpoint, LOOK_EVERY_MS, json, show).await
}

/// What was said of each last.
#[derive(Default)]
struct Seen(HashMap<(String, u32), (String, String, u64)>);

impl Seen {
    /// A line for each that changed.
    fn news(&mut self, s: &v1::Status, paint: Paint) -> String {
        let mut lines = String::new();
        for r in &s.roles {
            let now = (r.state.clone(), r.phase.clone(), r.incarnation);
            let key = (r.role.clone(), r.index);
            if self.0.get(&key) == Some(&now) {
                continue;
            }
            self.0.insert(key, now);
            lines += &format!(
                "{}  {:<12} {} {:<15} #{}, pid {}{}\n",
                time_of_day(s.now_ms),
                who(&r.role, r.index),
                paint.word(&format!("{:<11}", r.state)),
                r.phase,
                r.incarnation,
                r.pid,
                if r.node.is_empty() {
                    String::new()
                } else {
                    format!(", {} {}", r.node, r.slot)
                },
            );
        }
        lines
    }
}

/// Devices have columns where any tells.
fn table(s: &v1::Status) -> Table {
    let devices = s.roles.iter().any(|r| r.gpu_percent.is_some());
    let several = s.nodes.len() > 1;
    let mut heads = NOW.to_vec();
    if devices {
        heads.extend([">GPU", ">GPU MEMORY", ">TEMP"]);
    }
    heads.extend([">FAULTS", ">PLANNED", ">PID"]);
    if several {
        heads.extend(["NODE", "SLOT"]);
    }
    let mut table = Table::new(&heads);
    for r in &s.roles {
        let mut row = now(r);
        if devices {
            row.extend(device(r));
        }
        row.extend([r.restarts, r.restarts_planned, r.pid].map(|n| n.to_string()));
        if several {
            row.extend([r.node.clone(), r.slot.clone()]);
        }
        table.row(row);
    }
    table
}

fn device(r: &v1::RoleStatus) -> [String; 3] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let memory = r.gpu_memory_bytes.zip(r.gpu_memory_total_bytes);
    [
        or_dash(r.gpu_percent.map(|p| format!("{p:.0}%"))),
        or_dash(memory.map(|(used, all)| format!("{}/{}", bytes(used), bytes(all)))),
        or_dash(r.gpu_celsius.map(|c| format!("{c} °C"))),
    ]
}

/// One instance with its past.
fn one_of(r: &v1::RoleStatus, spans: &[v1::PhaseSpan], s: &v1::Status, paint: Paint) -> String {
    let only = v1::Status {
        roles: vec![r.clone()],
        nodes: s.nodes.clone(),
        ..Default::default()
    };
    let mut text = table(&only).render(paint);
    let ago = |at_ms: u64| clock(s.now_ms.saturating_sub(at_ms) as f64 / 1000.0);
    let mut phases = Table::new(&["PHASES", ">STEP", "SINCE", ">TOOK", ">LIFE"]);
    for p in spans {
        let so_far = if p.present { " so far" } else { "" };
        phases.row([
            p.phase.clone(),
            p.step.to_string(),
            time_of_day(p.started_ms),
            format!("{}{so_far}", millis(p.ms as f64)),
            format!("#{}", p.incarnation),
        ]);
    }
    text += &format!("\n{}", phases.render(paint));
    if !r.restarted.is_empty() {
        let mut restarts = Table::new(&["RESTARTS", ">AGO", ">INCIDENT", "WHY"]);
        for i in &r.restarted {
            let (planned, number) = (i.incident == 0, i.incident.to_string());
            restarts.row([
                time_of_day(i.at_ms),
                ago(i.at_ms),
                if planned { "-".to_owned() } else { number },
                i.why.clone(),
            ]);
        }
        text += &format!("\n{}", restarts.render(paint));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_that_goes_on_as_before_is_no_news() {
        let mut status = v1::Status {
            roles: vec![v1::RoleStatus {
                role: "agent".to_owned(),
                state: "running".to_owned(),
                phase: "idle".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut seen = Seen::default();
        assert_eq!(seen.news(&status, Paint::plain()).lines().count(), 1);
        assert_eq!(seen.news(&status, Paint::plain()), "");
        status.roles[0].phase = "awaiting_tool".to_owned();
        assert!(seen.news(&status, Paint::plain()).contains("awaiting_tool"));
    }

    #[test]
    fn devices_have_columns_where_any_is_known() {
        let role = |index, gpu_percent| v1::RoleStatus {
            role: "trainer".to_owned(),
            index,
            gpu_percent,
            gpu_memory_bytes: Some(3 << 30),
            gpu_memory_total_bytes: Some(141 << 30),
            gpu_celsius: Some(61),
            ..Default::default()
        };
        let mut status = v1::Status {
            roles: vec![role(0, Some(97.6)), role(1, None)],
            ..Default::default()
        };
        let text = table(&status).render(Paint::plain());
        let row = text.lines().nth(1).unwrap_or_default();
        assert!(row.contains("98%  3.0 GiB/141 GiB  61 °C"), "{text}");
        status.roles.remove(0);
        assert!(!table(&status).render(Paint::plain()).contains("GPU"));
    }
}
