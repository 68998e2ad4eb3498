//! Every instance, and below all about the selected one: facts, its phases, the end of its log.
use super::super::history::Span as Phase;
use super::super::screen::TableId;
use super::super::state::State;
use super::{Drawn, grid, put, roles, section, split, text, timeline};
use crate::format::{bytes, count, is_engine, millis_tight, moment, rate, time_of_day_at, who};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use robust_proto::v1::RoleStatus;

/// From this width on phases and log stand side by side.
const BESIDE: u16 = 110;
/// What the strip of phases covers.
const STRIP_MS: u64 = 120_000;

/// Draws table and details.
pub fn draw(state: &State, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
    let rows = state.job.roles().len() as u16 + 1;
    let (above, below) = split(area, rows.clamp(4, (area.height / 2).max(4)));
    let table = (TableId::Roles, roles::spec(state));
    grid::draw(state, table, state.job.roles(), above, buf, drawn);
    let Some(role) = state.chosen_role() else {
        return;
    };
    let title = format!("{} {}", who(&role.role, role.index), role.state).to_uppercase();
    let inner = section(state, below, &title, buf);
    let lines = facts(state, role);
    let (facts_area, rest) = split(inner, lines.len() as u16);
    for (row, line) in lines.into_iter().enumerate() {
        put(buf, facts_area, row as u16, line);
    }
    let (strip, rest) = split(rest, 1);
    draw_strip(state, role, strip, buf);
    if area.width < BESIDE {
        return draw_log(state, rest, buf, drawn);
    }
    let [left, _, right] = Layout::horizontal([
        Constraint::Length(40),
        Constraint::Length(2),
        Constraint::Fill(1),
    ])
    .areas(rest);
    draw_phases(state, role, left, buf);
    draw_log(state, right, buf, drawn);
}

/// How much of the weights changed, and what was sent for it; none where they came whole.
fn changes(r: &RoleStatus) -> Option<String> {
    let share = (r.pull_changed_words * 2) as f64 / r.pull_total as f64;
    let (sent, of) = (bytes(r.pull_fetched), bytes(r.pull_patched));
    (r.pull_patched > 0).then(|| format!("{:.1} % of it: {sent} came for {of}", share * 100.0))
}

fn facts(state: &State, r: &RoleStatus) -> Vec<Line<'static>> {
    let look = state.look;
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
        let when = time_of_day_at(last.at_ms, state.zone);
        let of = match last.incident {
            0 => String::new(),
            id => format!(" (incident {id})"),
        };
        lines.push(line(vec![(
            "restarted",
            format!("{when}{of}: {}", last.why),
        )]));
    }
    for armed in state.job.armed_for(r) {
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

/// The last two minutes as letters, as on the timeline.
fn draw_strip(state: &State, r: &RoleStatus, area: Rect, buf: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    const HEAD: &str = " last 2m ";
    buf.set_string(area.x, area.y, HEAD, state.look.faint());
    let width = HEAD.len() as u16;
    let strip = Rect {
        x: area.x + width,
        width: area.width.saturating_sub(width + 1),
        ..area
    };
    let to = state.job.status().map_or(0, |s| s.now_ms);
    let who = (r.role.as_str(), r.index);
    timeline::draw_lane(state, who, to.saturating_sub(STRIP_MS), to, strip, buf);
}

fn draw_phases(state: &State, r: &RoleStatus, area: Rect, buf: &mut Buffer) {
    let inner = section(state, area, "PHASES, NEWEST FIRST", buf);
    let newest = state.job.history().of(&r.role, r.index).rev();
    for (row, span) in newest.take(usize::from(inner.height)).enumerate() {
        put(buf, inner, row as u16, phase_line(state, r, span));
    }
}

fn phase_line(state: &State, r: &RoleStatus, span: &Phase) -> Line<'static> {
    let look = state.look;
    let name = state.job.history().name(span);
    let (letter, style) = look.phase(name);
    let time = time_of_day_at(span.from, state.zone);
    let life = match span.incarnation == r.incarnation {
        true => String::new(),
        false => format!(" life {}", span.incarnation),
    };
    let took = millis_tight((span.to - span.from) as f64);
    Line::from(vec![
        Span::styled(format!(" {time} "), look.faint()),
        Span::styled(format!("{letter} "), style),
        Span::raw(format!("{:<15} {took:>6}", look.fit(name, 15))),
        Span::styled(life, look.faint()),
    ])
}

fn draw_log(state: &State, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
    let words = &state.log_words;
    let chosen = state.chosen_name(TableId::Roles);
    let tail = state
        .log
        .as_ref()
        .filter(|t| Some(&t.who) == chosen.as_ref());
    let found = tail.map(|t| t.found(words)).unwrap_or_default();
    let title = match (tail, words.is_empty()) {
        (None, _) => "LOG".to_owned(),
        (Some(_), true) => format!("LOG, last {} lines (f finds)", found.len()),
        (Some(_), false) => format!("LOG, {} lines with `{words}`", found.len()),
    };
    let inner = section(state, area, &title, buf);
    let room = usize::from(inner.height);
    let width = usize::from(inner.width.saturating_sub(1));
    let problem = tail.and_then(|t| t.lines.as_ref().err());
    if let Some(problem) = problem {
        let lines = super::wrapped(problem, width);
        let lines = lines
            .into_iter()
            .map(|l| Line::styled(format!(" {l}"), state.look.faint()));
        return text(state, lines.collect(), inner, buf, drawn);
    }
    // Scrolling goes back from the end.
    let back = state.scrolled.min(found.len().saturating_sub(room));
    let first = found.len().saturating_sub(room + back);
    for (row, line) in found.iter().skip(first).take(room).enumerate() {
        let line = format!(" {}", state.look.fit(line, width));
        put(buf, inner, row as u16, Line::raw(line));
    }
    drawn.spot(inner, super::Spot::Text);
}
