//! `robustctl status`.
use super::promises;
use crate::cascade;
use crate::cli::StatusArgs;
use crate::controllers;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::{
    bytes, clock, count, faults, millis, mode, moment, moment_of, of_total, rate, ratio, who,
};
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use robust_proto::v1;
use robust_shared::wire::{PauseState, ReplicaState, Word as _};
use std::collections::BTreeMap;

/// Columns that the name of a line takes.
const HEAD: usize = 8;

/// Prints the job, its roles and its incidents; or what is promised of it.
pub async fn run(endpoint: &Endpoint, args: &StatusArgs, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let status = endpoint
        .ask(client.get_status(v1::GetStatusRequest {}))
        .await?;
    let paint = Paint::stdout();
    match (json, args.promises) {
        (true, _) => put_json(&status),
        (false, false) => put(&text(&status, args.all, paint)),
        (false, true) => put(&promises::whole(&status.hosted, &status.promises, paint)),
    }
}

/// Prints the job's nodes.
pub async fn nodes_only(endpoint: &Endpoint, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let status = endpoint
        .ask(client.get_status(v1::GetStatusRequest {}))
        .await?;
    match json {
        true => put_json(&status.nodes),
        false => put(&nodes(&status).render(Paint::stdout())),
    }
}

fn text(s: &v1::Status, all: bool, paint: Paint) -> String {
    let mut text = headline(s, paint);
    if !s.reason.is_empty() {
        text += &format!("reason   {}\n", s.reason);
    }
    if let Some(line) = pause(s) {
        text += &format!("pause    {}\n", paint.bold(&line));
    }
    for alarm in &s.alarms {
        let since = clock(s.now_ms.saturating_sub(alarm.since_ms) as f64 / 1000.0);
        let line = format!("alarm    {} (for {since})", alarm.text);
        text += &format!("{}\n", paint.bold(&line));
    }
    for fault in &s.armed {
        let who = who(&fault.role, fault.index);
        let when = match fault.at.as_str() {
            "" => "now".to_owned(),
            _ => moment(fault),
        };
        text += &format!(
            "armed    {}: {} of {who} at {when}\n",
            fault.id, fault.fault
        );
    }
    if s.protected {
        text += "safety   protected: faults are injected with --i-know only\n";
    }
    if !s.router.is_empty() {
        text += &format!("router   {}\n", s.router);
    }
    if let Some(of) = &s.controllers {
        text += &format!("control  {}\n", controllers::who(of));
        if let Some(lacking) = controllers::lacking(of) {
            text += &format!("lacks    {lacking}\n");
        }
        if let Some(takeover) = controllers::takeover(of) {
            text += &format!("takeover {takeover}\n");
        }
    }
    text += &promises::summary(&s.hosted, &s.promises, HEAD);
    text += &durable(s);
    if s.checkpoints_skipped > 0 {
        let skipped = s.checkpoints_skipped;
        text += &format!("disk     slower than the steps: {skipped} checkpoints skipped\n");
    }
    text += &format!("\n{}", roles(s).render(paint));
    if !s.spares.is_empty() {
        text += &format!("\n{}", spares(s).render(paint));
    }
    let pulling: Vec<_> = s.roles.iter().filter(|r| is_pulling(r)).collect();
    if !pulling.is_empty() {
        text += &format!("\n{}", pulls(&pulling).render(paint));
    }
    // A single node only when there is something about its slots that an operator would act on.
    let marked = |n: &v1::NodeStatus| n.cordoned || !n.lost.is_empty() || !n.draining.is_empty();
    if s.nodes.len() > 1 || s.nodes.iter().any(marked) {
        text += &format!("\n{}", nodes(s).render(paint));
    }
    if !s.services.is_empty() {
        text += &format!("\n{}", services(&s.services).render(paint));
    }
    if !s.incidents.is_empty() {
        text += &format!("\n{}", incidents(&s.incidents, all).render(paint));
    }
    if s.incidents.iter().any(|i| !i.notes.is_empty()) {
        text += &format!("\n{}", notes(&s.incidents).render(paint));
    }
    text
}

/// What an operator asked for, while it holds.
fn pause(s: &v1::Status) -> Option<String> {
    let v1::Pause {
        state,
        after_step,
        since_ms,
    } = s.pause.as_ref()?;
    let since = clock(s.now_ms.saturating_sub(*since_ms) as f64 / 1000.0);
    Some(match PauseState::known(state) {
        Some(PauseState::Paused) => {
            format!("paused after step {after_step} (asked {since} ago); `robustctl resume`")
        }
        _ => format!("pausing: step {after_step} is the last (asked {since} ago)"),
    })
}

/// Where the last steps are besides this node's memory and disk.
fn durable(s: &v1::Status) -> String {
    let mut text = String::new();
    if let Some(of) = s.replicas.as_ref().filter(|r| r.step > 0) {
        let how = match of.state() {
            Some(ReplicaState::Safe) => format!("held on two {}", of.spread),
            Some(ReplicaState::Copying) => "on their way to other nodes".to_owned(),
            Some(ReplicaState::Short) => "not all held elsewhere".to_owned(),
            _ => "on this node alone".to_owned(),
        };
        let after = &s.publish_after;
        text += &format!(
            "copies   of step {}: {how}; published after {after}\n",
            of.step
        );
        if !of.waiting.is_empty() {
            text += &format!("waiting  {}\n", of.waiting);
        }
    }
    if let Some(of) = &s.remote {
        let step = of
            .step
            .map_or("nothing yet".to_owned(), |s| format!("step {s}"));
        let skipped = match of.skipped {
            0 => String::new(),
            n => format!(", {n} skipped"),
        };
        let sent = bytes(of.sent_bytes);
        text += &format!("remote   {step} in {}, {sent} sent{skipped}\n", of.url);
    }
    text
}

fn headline(s: &v1::Status, paint: Paint) -> String {
    let elapsed = clock(s.now_ms.saturating_sub(s.started_ms) as f64 / 1000.0);
    format!(
        "{}  mode {}, policy {}, {} for {elapsed} on {}\n\
         step     {}{}, {} each\n\
         weights  version {}, {}\n\
         reward   {}\n\
         ettr     {} sliding, {} overall, goodput {}\n\
         batches  {} trajectories in flight, {} finished and not yet used{}\n",
        paint.bold(&s.job),
        mode(s),
        s.policy,
        paint.word(&s.state),
        if s.node.is_empty() {
            "this node"
        } else {
            &s.node
        },
        s.step,
        of_total(s.steps_total),
        millis(s.step_seconds * 1000.0),
        s.weight_version,
        bytes(s.weight_bytes),
        ratio(s.reward),
        ratio(s.ettr_sliding),
        ratio(s.ettr),
        ratio(s.goodput),
        s.trajectories_in_flight,
        s.trajectories_finished,
        match s.trajectories_discarded {
            0 => String::new(),
            lost => format!(", {lost} thrown away"),
        } + &match s.trajectories_stale {
            0 => String::new(),
            stale => format!(", {stale} too old and generated again"),
        } + &tools(s)
            + &strangers(s),
    )
}

/// What tools and environments failed at: no sample, and nothing to see where none did.
fn tools(s: &v1::Status) -> String {
    let failures: u64 = s.roles.iter().map(|r| r.tool_failures).sum();
    match (s.trajectories_given_back, failures) {
        (0, 0) => String::new(),
        (0, failures) => format!(", {failures} tool calls made again"),
        (back, failures) => {
            format!(", {back} given back after {failures} failures of tools or environments")
        }
    }
}

/// Who called for weights and is no member of the job.
fn strangers(s: &v1::Status) -> String {
    match s.roles.iter().map(|r| r.callers_refused).sum() {
        0 => String::new(),
        refused => format!(", {refused} callers turned away that are none of this job"),
    }
}

fn nodes(s: &v1::Status) -> Table {
    let mut table = Table::new(&[
        "NODE",
        "STATE",
        "DC",
        "RACK",
        "ACCELERATOR",
        "SLOTS",
        "LOST",
        ">INSTANCES",
        "FAULTS",
    ]);
    for n in &s.nodes {
        let pool = |(name, slots): (&String, &u32)| format!("{name} {slots}");
        // The map has no order of its own.
        let pools: BTreeMap<_, _> = n.pools.iter().collect();
        let pools: Vec<_> = pools.into_iter().map(pool).collect();
        let lost = n.lost.iter().map(|s| format!("{} {}", s.pool, s.index));
        let drained = n.draining.iter();
        let lost = lost.chain(drained.map(|s| format!("{} {} (drained)", s.pool, s.index)));
        let cordoned = match (n.cordoned, n.cordoned_for_faults) {
            (_, true) => ", cordoned for faults",
            (true, false) => ", cordoned",
            (false, false) => "",
        };
        table.row([
            n.name.clone(),
            format!("{}{cordoned}", n.state),
            n.dc.clone(),
            n.rack.clone(),
            n.accel.clone(),
            pools.join(", "),
            lost.collect::<Vec<_>>().join(", "),
            n.instances.to_string(),
            faults(n, s.now_ms),
        ]);
    }
    table
}

/// The other programs that the job needs.
fn services(all: &[v1::ServiceStatus]) -> Table {
    let mut table = Table::new(&[
        "SERVICE",
        "STATE",
        ">PID",
        ">RESTARTS",
        "ADDRESS",
        "NEEDED",
        "LAST END",
    ]);
    for s in all {
        table.row([
            format!("{}.{}", s.name, s.index),
            s.state.clone(),
            match s.pid {
                0 => String::new(),
                pid => pid.to_string(),
            },
            s.restarts.to_string(),
            s.addr.clone(),
            s.needed.clone(),
            s.reason.clone(),
        ]);
    }
    table
}

fn is_pulling(r: &v1::RoleStatus) -> bool {
    r.pull_total > 0 && r.pull_bytes < r.pull_total
}

/// Weights on their way.
fn pulls(pulling: &[&v1::RoleStatus]) -> Table {
    let mut table = Table::new(&[
        "PULLS", ">VERSION", ">BYTES", ">OF", ">CHUNKS", "FROM", "BY", ">RATE",
    ]);
    for r in pulling {
        table.row([
            who(&r.role, r.index),
            r.pull_version.to_string(),
            bytes(r.pull_bytes),
            bytes(r.pull_total),
            format!("{}/{}", r.pull_chunks, r.pull_chunks_total),
            r.pull_source.clone(),
            r.pull_road.clone(),
            rate(r.pull_bytes_per_s),
        ]);
    }
    table
}

/// With several nodes each role's place is shown.
fn roles(s: &v1::Status) -> Table {
    let several = s.nodes.len() > 1;
    let mut heads = NOW.to_vec();
    heads.extend([">RESTARTS", ">INCARNATION", ">PID"]);
    if several {
        heads.extend(["NODE", "SLOT"]);
    }
    let mut table = Table::new(&heads);
    for r in &s.roles {
        let mut row = now(r);
        row.extend([
            r.restarts.to_string(),
            r.incarnation.to_string(),
            r.pid.to_string(),
        ]);
        if several {
            row.extend([r.node.clone(), r.slot.clone()]);
        }
        table.row(row);
    }
    table
}

/// Processes that wait for a restart: their memory is no role's.
pub(super) fn spares(s: &v1::Status) -> Table {
    let several = s.nodes.len() > 1;
    let mut heads = vec!["SPARE FOR", "STATE", ">MEMORY", ">PID"];
    if several {
        heads.push("NODE");
    }
    let mut table = Table::new(&heads);
    for spare in &s.spares {
        let mut row = vec![
            spare.role.clone(),
            if spare.ready { "ready" } else { "starting" }.to_owned(),
            bytes(spare.memory_bytes),
            spare.pid.to_string(),
        ];
        if several {
            row.push(spare.node.clone());
        }
        table.row(row);
    }
    table
}

/// The columns of [`now`].
pub(super) const NOW: [&str; 9] = [
    "ROLE", "STATE", "PHASE", ">IN IT", ">VERSION", ">TOK/S", ">RUN", ">CPU", ">MEMORY",
];

/// What an instance does and uses now.
pub(super) fn now(r: &v1::RoleStatus) -> Vec<String> {
    vec![
        who(&r.role, r.index),
        r.state.clone(),
        r.phase.clone(),
        millis(r.phase_ms as f64),
        r.weight_version.to_string(),
        count(r.tokens_per_s),
        r.running.to_string(),
        format!("{:.0}%", r.cpu_percent),
        bytes(r.rss_bytes),
    ]
}

/// The part of detection that is the daemon's own: from the process's exit (as the kernel says it)
/// to the verdict. Other rules have no such part.
fn seen(i: &v1::Incident) -> String {
    let stage = |name| i.stages.iter().find(|s| s.name == name);
    let seen = stage("exited").and(stage("seen"));
    seen.map_or_else(|| "-".to_owned(), |s| millis(s.ms))
}

/// The incidents with their timings. Those that follow from another one are shown below it where every
/// one is wanted, and else counted.
fn incidents(all: &[v1::Incident], every: bool) -> Table {
    let mut table = Table::new(&[
        ">ID",
        "ROLE",
        "RULE",
        ">DETECT",
        ">SEEN",
        ">RESTART",
        ">RECONNECT",
        ">TOTAL",
        "OUTCOME",
        "REASON",
    ]);
    for i in cascade::in_order(all) {
        let folded = cascade::is_folded(all, i);
        if folded && !every {
            continue;
        }
        let below = if folded { "  " } else { "" };
        table.row([
            i.id.to_string(),
            format!("{below}{}", who(&i.role, i.index)),
            i.rule.clone(),
            millis(i.detect_ms),
            seen(i),
            millis(i.restart_ms),
            millis(i.reconnect_ms),
            millis(i.total_ms),
            i.outcome.clone(),
            match every {
                true => i.reason.clone(),
                false => i.reason.clone() + &cascade::count(all, i.id),
            },
        ]);
    }
    table
}

/// What operators wrote beside incidents.
fn notes(all: &[v1::Incident]) -> Table {
    let mut table = Table::new(&[">INCIDENT", "NOTED", "BY", "NOTE"]);
    for i in all {
        for note in &i.notes {
            table.row([
                i.id.to_string(),
                moment_of(note.at_ms),
                note.who.clone(),
                note.text.clone(),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_told_below_the_incidents_and_nothing_where_there_are_none() {
        let note = v1::IncidentNote {
            at_ms: 1_700_000_000_000,
            who: "uid 7 (ann), pid 9".to_owned(),
            text: "the switch in rack 4".to_owned(),
        };
        let incident = v1::Incident {
            id: 3,
            ..Default::default()
        };
        let mut status = v1::Status {
            incidents: vec![incident],
            ..Default::default()
        };
        let without = text(&status, false, Paint::plain());
        assert!(!without.contains("NOTE"), "{without}");
        status.incidents[0].notes.push(note);
        let with = text(&status, false, Paint::plain());
        let last = with.lines().last().unwrap_or_default();
        assert!(last.trim_start().starts_with("3  2023-11-1"), "{with}");
        let end = "uid 7 (ann), pid 9  the switch in rack 4";
        assert!(last.ends_with(end), "{with}");
    }

    #[test]
    fn spares_are_told_with_their_memory_and_only_where_there_are_any() {
        let spare = |ready| v1::SpareStatus {
            role: "trainer".to_owned(),
            pid: 7,
            ready,
            memory_bytes: 3 << 20,
            ..Default::default()
        };
        let status = v1::Status {
            spares: vec![spare(true), spare(false)],
            ..Default::default()
        };
        let shown = text(&status, false, Paint::plain());
        let spares = shown.split("SPARE FOR").nth(1).unwrap_or_default();
        let rows: Vec<String> = spares
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            rows,
            ["trainer ready 3.0 MiB 7", "trainer starting 3.0 MiB 7"]
        );
        let none = text(&v1::Status::default(), false, Paint::plain());
        assert!(!none.contains("SPARE"), "{none}");
    }

    #[test]
    fn a_service_is_told_with_its_address_and_why_it_ended() {
        let service = v1::ServiceStatus {
            name: "judge".to_owned(),
            index: 1,
            state: "up".to_owned(),
            pid: 42,
            addr: "127.0.0.1:20001".to_owned(),
            restarts: 2,
            reason: "python3 (pid 7) ended: SIGKILL".to_owned(),
            needed: "wait".to_owned(),
            ..Default::default()
        };
        let status = v1::Status {
            services: vec![service],
            ..Default::default()
        };
        let text = text(&status, false, Paint::plain());
        let line = text
            .lines()
            .find(|l| l.contains("judge"))
            .unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "judge.1 up 42 2 127.0.0.1:20001 wait python3 (pid 7) ended: SIGKILL"
        );
    }

    #[test]
    fn weights_on_their_way_are_told_with_their_source_and_their_rate() {
        let role = |index, pull_bytes| v1::RoleStatus {
            role: "rollout".to_owned(),
            index,
            pull_version: 7,
            pull_bytes,
            pull_total: 4 << 20,
            pull_chunks: 2,
            pull_chunks_total: 4,
            pull_source: "trainer-0".to_owned(),
            pull_road: "shm".to_owned(),
            pull_bytes_per_s: 1.925e9,
            ..Default::default()
        };
        let status = v1::Status {
            roles: vec![role(0, 4 << 20), role(1, 2 << 20)],
            ..Default::default()
        };
        let text = text(&status, false, Paint::plain());
        let pulls = text.split("PULLS").nth(1).unwrap_or_default();
        let rows: Vec<Vec<&str>> = pulls
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        let expected = "rollout-1 7 2.0 MiB 4.0 MiB 2/4 trainer-0 shm 1.93 GB/s";
        assert_eq!(rows[1].join(" "), expected);
        assert_eq!(rows.len(), 2, "{pulls}");
    }
}
