//! What is said of an instance in a few lines.
use crate::console::state::Sight;
use crate::format::{bytes, count, is_engine, millis_tight, moment, rate, time_of_day_at};
use ratatui::text::{Line, Span};
use robust_proto::v1::RoleStatus;

/// How much of the weights changed, and what was sent for it; none where they came whole.
fn changes(r: &RoleStatus) -> Option<String> {
    let share = (r.pull_changed_words * 2) as f64 / r.pull_total as f64;
    let (sent, of) = (bytes(r.pull_fetched), bytes(r.pull_patched));
    (r.pull_patched > 0).then(|| format!("{:.1} % of it: {sent} came for {of}", share * 100.0))
}

/// Phase, process, machine, and what an engine does.
pub fn facts(sight: &Sight, r: &RoleStatus) -> Vec<Line<'static>> {
    let look = sight.look;
    let fact = |name: &str, value: String| {
        [
            Span::styled(format!("{name} "), look.faint()),
            Span::raw(format!("{value}   ")),
        ]
    };
    let place = match (r.node.as_str(), r.slot.as_str()) {
        ("", _) => "no slot".to_owned(),
        (node, slot) => format!("{node} {slot}"),
    };
    let line = |facts: Vec<(&str, String)>| {
        let spans = facts
            .into_iter()
            .flat_map(|(name, value)| fact(name, value));
        Line::from_iter(std::iter::once(Span::raw(" ")).chain(spans))
    };
    let phase = format!("{} for {}", r.phase, millis_tight(r.phase_ms as f64));
    let disk = format!(
        "{} read, {} written",
        bytes(r.disk_read_bytes),
        bytes(r.disk_write_bytes)
    );
    let step = r.step_ms.map(|ms| ("step", millis_tight(ms as f64)));
    let mut machine = vec![("disk", disk)];
    machine.extend(gpu(r).map(|text| ("gpu", text)));
    let planned = match r.restarts_planned {
        0 => String::new(),
        n => format!(" and {n} planned"),
    };
    let mut lines = vec![
        line(
            vec![
                ("phase", phase),
                ("version", r.weight_version.to_string()),
                ("on", place),
            ]
            .into_iter()
            .chain(step)
            .collect(),
        ),
        line(vec![
            ("restarts", format!("{}{planned}", r.restarts)),
            ("incarnation", r.incarnation.to_string()),
            ("pid", r.pid.to_string()),
            ("cpu", format!("{:.0}%", r.cpu_percent)),
            ("memory", bytes(r.rss_bytes)),
        ]),
        line(machine),
    ];
    if is_engine(&r.role) {
        let mut facts = vec![
            ("tokens/s", count(r.tokens_per_s)),
            ("tokens", count(r.tokens_total as f64)),
            ("requests", r.running.to_string()),
        ];
        let routed = match (r.quarantined, r.admitted) {
            (true, _) => "no: an operator took it out",
            (false, true) => "yes",
            (false, false) => "not yet",
        };
        facts.push(("routed to", routed.to_owned()));
        if !r.pull_source.is_empty() {
            let pull = format!("{} at {}", r.pull_source, rate(r.pull_bytes_per_s));
            let pull = match &*r.pull_road {
                "" => pull,
                road => format!("{pull} by {road}"),
            };
            facts.push(("weights from", pull));
        }
        facts.extend(changes(r).map(|text| ("changed", text)));
        if r.callers_refused > 0 {
            facts.push(("callers turned away", r.callers_refused.to_string()));
        }
        lines.push(line(facts));
    }
    if let Some(last) = r.restarted.last() {
        let when = time_of_day_at(last.at_ms, sight.zone);
        let of = match last.incident {
            0 => String::new(),
            id => format!(" (incident {id})"),
        };
        lines.push(line(vec![(
            "restarted",
            format!("{when}{of}: {}", last.why),
        )]));
    }
    for armed in sight.job.armed_for(r) {
        let at = match armed.at.as_str() {
            "" => "it was told".to_owned(),
            _ => format!("waits for {}", moment(armed)),
        };
        let text = format!("{}, {at} (D takes it back)", armed.fault);
        lines.push(line(vec![("armed", text)]));
    }
    lines
}

/// What its devices say, where they say anything.
fn gpu(r: &RoleStatus) -> Option<String> {
    let percent = r.gpu_percent.map(|p| format!("{p:.0}%"));
    let memory = r
        .gpu_memory_bytes
        .map(|used| match r.gpu_memory_total_bytes {
            Some(total) => format!("{} of {}", bytes(used), bytes(total)),
            None => bytes(used),
        });
    let heat = r.gpu_celsius.map(|c| format!("{c} C"));
    let all: Vec<String> = [percent, memory, heat].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(", "))
}
