//! Phases of every instance over time, a letter for each phase; faults and recoveries as marks.
//!
//! ```text
//!               -2m                                                now
//!   faults                          x~~~~~~~~~+
//!   trainer-0   UUUUUUs.p..UUUUUUUUU!~~~ll....UUUUUUsp..
//!   rollout-0   GGGGGGGGGGwGGGGGGGGGGGGGGGGGGGGGGGGGGwGGG
//! ```
use super::super::screen::TableId;
use super::super::state::State;
use super::look::Tone;
use super::{Drawn, Spot, below, line, put, roles, section};
use crate::format::{clock, who};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use robust_proto::v1;
use std::collections::BTreeSet;

/// Cells for the names of instances.
const NAMES: u16 = 13;

/// Draws it.
pub fn draw(state: &State, s: &v1::Status, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
    let window = state.window;
    let to = s.now_ms.saturating_sub(window.back_ms);
    let from = to.saturating_sub(window.span_ms);
    let title = format!("TIMELINE, {} wide", clock(window.span_ms as f64 / 1000.0));
    let inner = section(state, area, &title, buf);
    if inner.height < 4 {
        return;
    }
    let lanes = Rect {
        x: inner.x + NAMES,
        width: inner.width.saturating_sub(NAMES + 1),
        ..inner
    };
    draw_axis(state, s, to, line(lanes, 0), buf);
    buf.set_string(inner.x + 2, inner.y + 1, "faults", state.look.faint());
    draw_marks(state, s, (from, to), line(lanes, 1), buf);
    let spec = roles::spec(state);
    let order = spec.order(state.view(TableId::Roles), &s.roles, state.look);
    let names = spec.names(&order, &s.roles);
    let chosen = state.view(TableId::Roles).position(&names);
    let room = usize::from(inner.height - 3);
    let last = order.len().saturating_sub(room);
    let at = chosen.unwrap_or(0);
    let first = state.drawn.first(TableId::Roles);
    let first = first.min(at).max((at + 1).saturating_sub(room)).min(last);
    drawn.table(TableId::Roles, first, room);
    drawn.spot(below(inner, 2), Spot::Body(TableId::Roles));
    let mut seen = BTreeSet::new();
    for (row, &index) in order.iter().skip(first).take(room).enumerate() {
        let role = &s.roles[index];
        let y = row as u16 + 2;
        let here = chosen == Some(first + row);
        let style = if here {
            state.look.selection()
        } else {
            Style::new()
        };
        let mark = match here {
            true => state.look.glyph("▶ ", "> "),
            false => "  ",
        };
        let name = format!(
            "{mark}{:<10}",
            state.look.fit(&who(&role.role, role.index), 10)
        );
        buf.set_string(inner.x, inner.y + y, name, style);
        let instance = (role.role.as_str(), role.index);
        seen.extend(draw_lane(state, instance, from, to, line(lanes, y), buf));
        drawn.spot(line(inner, y), Spot::Row(TableId::Roles, first + row));
    }
    draw_legend(state, &seen, line(inner, inner.height - 1), buf);
}

/// The phases of one instance; answers which there were.
pub fn draw_lane(
    state: &State,
    (role, index): (&str, u32),
    from: u64,
    to: u64,
    area: Rect,
    buf: &mut Buffer,
) -> BTreeSet<u16> {
    let cells = state
        .job
        .history()
        .cells(role, index, from, to, usize::from(area.width));
    let mut seen = BTreeSet::new();
    for (x, phase) in cells.into_iter().enumerate() {
        let Some(phase) = phase else { continue };
        seen.insert(phase);
        let (letter, style) = state.look.phase(state.job.history().phase(phase));
        // Blocks of colour read better than coloured letters; without colour letters stand alone.
        let style = match style.fg {
            Some(_) if letter != '.' => style.add_modifier(Modifier::REVERSED),
            _ => style,
        };
        if let Some(cell) = buf.cell_mut((area.x + x as u16, area.y)) {
            cell.set_char(letter).set_style(style);
        }
    }
    seen
}

fn draw_axis(state: &State, s: &v1::Status, to: u64, area: Rect, buf: &mut Buffer) {
    let look = state.look;
    let ago = |t: u64| match s.now_ms.saturating_sub(t) {
        0 => "now".to_owned(),
        ms => format!("-{}", clock(ms as f64 / 1000.0)),
    };
    let width = u64::from(area.width);
    if width < 30 {
        return;
    }
    for part in 0..4 {
        let label = ago(to.saturating_sub(state.window.span_ms * (4 - part) / 4));
        let x = area.x + (width * part / 4) as u16;
        buf.set_string(
            x,
            area.y,
            look.glyph("│", "|").to_owned() + &label,
            look.faint(),
        );
    }
    let label = ago(to);
    buf.set_string(
        area.right() - label.len() as u16,
        area.y,
        label,
        look.faint(),
    );
}

/// A fault where it was found, the recovery behind it, and its end.
fn draw_marks(state: &State, s: &v1::Status, (from, to): (u64, u64), area: Rect, buf: &mut Buffer) {
    let look = state.look;
    let width = u64::from(area.width);
    let place = |t: u64| (t.clamp(from, to) - from) * width / (to - from).max(1);
    for i in &s.incidents {
        let began = i.at_ms.saturating_sub(i.detect_ms.max(0.0) as u64);
        let over = i.outcome != "recovering";
        let ended = if over {
            began + i.total_ms.max(0.0) as u64
        } else {
            s.now_ms
        };
        if ended < from || began > to {
            continue;
        }
        let last = width.saturating_sub(1);
        let (a, b) = (place(began).min(last), place(ended).min(last));
        let mut set = |x: u64, glyph: &str, style| {
            buf.set_string(area.x + x as u16, area.y, glyph, style);
        };
        for x in a..b {
            set(x, look.glyph("─", "~"), look.tone(Tone::Warn));
        }
        if over && b > a {
            let sign = look.sign(&i.outcome).to_string();
            set(b, &sign, look.tone(look.tone_of(&i.outcome)));
        }
        if began >= from {
            set(a, look.glyph("✖", "x"), look.tone(Tone::Bad));
        }
    }
}

fn draw_legend(state: &State, seen: &BTreeSet<u16>, area: Rect, buf: &mut Buffer) {
    let mut spans = vec![Span::raw(" ")];
    for &phase in seen {
        let name = state.job.history().phase(phase);
        let (letter, style) = state.look.phase(name);
        let used: usize = spans.iter().map(Span::width).sum();
        let fits = used + name.len() + 4 <= usize::from(area.width);
        if letter != ' ' && fits {
            spans.push(Span::styled(
                format!("{letter} "),
                style.patch(state.look.strong()),
            ));
            spans.push(Span::styled(format!("{name}  "), state.look.faint()));
        }
    }
    put(buf, area, 0, Line::from(spans));
}
