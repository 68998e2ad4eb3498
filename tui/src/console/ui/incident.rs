//! Incidents, and below all about the selected one: what was seen, decided, and where the time went.
use super::super::screen::TableId;
use super::super::state::State;
use super::{Drawn, grid, incidents, section, split, text, wrapped};
use crate::cascade;
use crate::format::{self, bar, millis, time_of_day_at, who};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use robust_proto::v1::Incident;

/// Cells of the longest bar.
const BAR: usize = 30;

/// Draws table and details.
pub fn draw(state: &State, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
    let all = state.job.incidents();
    let rows = (all.len() as u16).saturating_add(1);
    let (above, below) = split(area, rows.clamp(3, (area.height * 2 / 5).max(3)));
    let table = (TableId::Incidents, &incidents::SPEC);
    grid::draw(state, table, all, above, buf, drawn);
    let Some(incident) = state.chosen_incident() else {
        return;
    };
    let title = format!(
        "INCIDENT {}: {} {}",
        incident.id,
        who(&incident.role, incident.index),
        incident.outcome
    );
    let inner = section(state, below, &title, buf);
    let lines = lines(state, incident, usize::from(inner.width));
    text(state, lines, inner, buf, drawn);
}

fn lines(state: &State, i: &Incident, width: usize) -> Vec<Line<'static>> {
    let mut lines = words(state, i, width);
    lines.push(Line::raw(""));
    let parts = [
        ("detect", i.detect_ms),
        ("restart", i.restart_ms),
        ("reconnect", i.reconnect_ms),
    ];
    lines.extend(parts.map(|(name, ms)| part(state, name, ms, i.total_ms)));
    let total = format!(" {:<24} {:>8}", "total", millis(i.total_ms));
    lines.push(Line::styled(total, state.look.strong()));
    if !i.stages.is_empty() {
        lines.push(Line::raw(""));
        let heading = " where the time went".to_owned();
        lines.push(Line::styled(heading, state.look.faint()));
        let stages = i
            .stages
            .iter()
            .map(|s| part(state, &s.name, s.ms, i.total_ms));
        lines.extend(stages);
    }
    if !i.evidence.is_empty() {
        lines.push(Line::raw(""));
        let heading = " evidence, taken before anything was killed".to_owned();
        lines.push(Line::styled(heading, state.look.faint()));
        let room = width.saturating_sub(4);
        let evidence = i
            .evidence
            .lines()
            .map(|l| format!("   {}", state.look.fit(l, room)));
        lines.extend(evidence.map(Line::raw));
    }
    lines
}

/// Rule, reason, plan and what was lost with it.
fn words(state: &State, i: &Incident, width: usize) -> Vec<Line<'static>> {
    let when = time_of_day_at(i.at_ms, state.zone);
    let swept: Vec<String> = i.swept.iter().map(u64::to_string).collect();
    let status = state.job.status();
    let discarded = status.map_or(0, |s| s.trajectories_discarded);
    let lost = match (status.map_or("", |s| &s.policy), i.role.as_str()) {
        ("task", _) => format!("all in flight: {discarded} trajectories in this run so far"),
        (_, "trainer") => format!("what step {} had come to, done again", i.step + 1),
        _ => "no turn that was acknowledged".to_owned(),
    };
    let along = match swept.as_slice() {
        [] => "no other instance".to_owned(),
        [one] => format!("incarnation {one}"),
        all => format!("incarnations {}", all.join(", ")),
    };
    let cause = i.cause.as_ref().map(format::cause).unwrap_or_default();
    let root = match i.judged.as_str() {
        "" => i.root.clone(),
        judged => format!("{} (the rule had named {judged})", i.root),
    };
    let first = match i.under {
        0 => String::new(),
        first => format!("follows from incident {first}, and counts against no budget"),
    };
    let below = cascade::under(state.job.incidents(), i.id);
    let below = below.map(|f| format!("{} {} ({})", f.id, who(&f.role, f.index), f.outcome));
    let below: Vec<String> = below.collect();
    let facts = [
        ("rule", i.rule.clone()),
        ("seen", i.reason.clone()),
        ("cause", cause),
        ("root", root),
        ("under", first),
        ("led to", below.join(", ")),
        (
            "at",
            format!(
                "{when}, in step {}, incarnation {}",
                i.step + 1,
                i.incarnation
            ),
        ),
        ("plan", i.plan.clone()),
        ("with it", along),
        ("lost", lost),
    ];
    let room = width.saturating_sub(12);
    let mut lines = Vec::new();
    for (name, value) in facts.into_iter().filter(|(_, value)| !value.is_empty()) {
        let mut name = name;
        for text in wrapped(&state.look.fit(&value, room * 3), room) {
            lines.push(Line::from(vec![
                Span::styled(format!(" {name:<8} "), state.look.faint()),
                Span::raw(text),
            ]));
            name = "";
        }
    }
    lines
}

fn part(state: &State, name: &str, ms: f64, total: f64) -> Line<'static> {
    let look = state.look;
    Line::from(vec![
        Span::raw(format!(" {:<24} {:>8}  ", look.fit(name, 24), millis(ms))),
        Span::styled(bar(ms / total.max(1.0), BAR, look.ascii), look.accent()),
    ])
}
