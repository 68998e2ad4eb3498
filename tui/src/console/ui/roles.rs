//! The role table.
use super::super::state::State;
use super::grid::{self, Column};
use super::look::Look;
use crate::format::{bytes, count, is_engine, millis_tight, who};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use robust_proto::v1::RoleStatus;

type Cell = (String, Style);

/// The table with the selected row marked.
pub fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let table = Rect {
        x: area.x + 2,
        width: area.width - 2,
        ..area
    };
    let roles = state.roles();
    let selected = (!roles.is_empty()).then_some(state.selected);
    buf.set_style(Rect { height: 1, ..area }, state.look.heading());
    grid::draw(columns(state), roles, selected, state.look, table, buf);
    // The sign beside the row: reversed video alone would be lost in a copied screen.
    let room = usize::from(area.height.saturating_sub(1));
    if let Some(selected) = selected.filter(|_| room > 0) {
        let line = selected.min(room - 1) as u16;
        let mark = state.look.glyph("▶", ">");
        buf.set_string(area.x, area.y + 1 + line, mark, state.look.strong());
    }
}

const fn column(
    head: &'static str,
    width: u16,
    rank: u8,
    cell: fn(&RoleStatus, Look) -> Cell,
) -> Column<RoleStatus> {
    Column {
        head,
        width,
        right: false,
        rank,
        cell,
    }
}

const fn number(
    head: &'static str,
    width: u16,
    rank: u8,
    cell: fn(&RoleStatus, Look) -> Cell,
) -> Column<RoleStatus> {
    Column {
        head,
        width,
        right: true,
        rank,
        cell,
    }
}

/// Where a role is, is worth a column when there is a choice.
fn columns(state: &State) -> &'static [Column<RoleStatus>] {
    let nodes = state.status.as_ref().map_or(0, |s| s.nodes.len());
    match nodes {
        0 | 1 => &COLUMNS[..COLUMNS.len() - 1],
        _ => &COLUMNS,
    }
}

static COLUMNS: [Column<RoleStatus>; 13] = [
    column("ROLE", 10, 0, |r, look| {
        (who(&r.role, r.index), look.strong())
    }),
    column("STATE", 12, 0, |r, look| {
        (
            format!("{} {}", look.sign(&r.state), r.state),
            look.tone(look.tone_of(&r.state)),
        )
    }),
    column("PHASE", 15, 0, |r, _| plain(r.phase.clone())),
    number("IN IT", 6, 0, |r, _| plain(millis_tight(r.phase_ms as f64))),
    number("VERS", 5, 0, |r, _| plain(r.weight_version.to_string())),
    number("TOK/S", 6, 0, |r, _| only_rollout(r, count(r.tokens_per_s))),
    number("RUN", 4, 1, |r, _| only_rollout(r, r.running.to_string())),
    number("CPU", 5, 2, |r, _| plain(format!("{:.0}%", r.cpu_percent))),
    number("RSTRT", 5, 3, |r, look| {
        let style = if r.restarts > 0 {
            look.strong()
        } else {
            look.faint()
        };
        (r.restarts.to_string(), style)
    }),
    number("MEMORY", 8, 4, |r, _| plain(bytes(r.rss_bytes))),
    number("PID", 8, 5, |r, look| (r.pid.to_string(), look.faint())),
    number("INCARN", 6, 6, |r, look| {
        (r.incarnation.to_string(), look.faint())
    }),
    column("NODE", 7, 1, |r, _| plain(r.node.clone())),
];

fn plain(text: String) -> Cell {
    (text, Style::new())
}

fn only_rollout(r: &RoleStatus, text: String) -> Cell {
    plain(if is_engine(&r.role) {
        text
    } else {
        "-".to_owned()
    })
}
