//! The last incidents and how long their parts took.
use super::super::state::State;
use super::grid::{self, Column};
use super::look::Look;
use crate::format::{millis_tight, who};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use robust_proto::v1::{Incident, Status};

type Cell = (String, Style);

/// The newest first.
pub fn draw(state: &State, s: &Status, area: Rect, buf: &mut Buffer) {
    let room = usize::from(area.height.saturating_sub(1));
    let newest: Vec<Incident> = s.incidents.iter().rev().take(room).cloned().collect();
    grid::draw(&COLUMNS, &newest, None, state.look, area, buf);
    if newest.is_empty() && area.height > 1 {
        buf.set_string(area.x, area.y + 1, "none so far", state.look.faint());
    }
}

const fn column(
    head: &'static str,
    width: u16,
    rank: u8,
    cell: fn(&Incident, Look) -> Cell,
) -> Column<Incident> {
    Column {
        head,
        width,
        right: false,
        rank,
        cell,
    }
}

const fn time(head: &'static str, rank: u8, cell: fn(&Incident, Look) -> Cell) -> Column<Incident> {
    Column {
        head,
        width: 6,
        right: true,
        rank,
        cell,
    }
}

const COLUMNS: [Column<Incident>; 10] = [
    column("", 1, 0, |i, look| {
        (
            look.sign(&i.outcome).to_string(),
            look.tone(look.tone_of(&i.outcome)),
        )
    }),
    Column {
        head: "#",
        width: 3,
        right: true,
        rank: 2,
        cell: |i, look| (i.id.to_string(), look.faint()),
    },
    column("FAULT", 10, 0, |i, look| {
        (who(&i.role, i.index), look.strong())
    }),
    column("RULE", 14, 4, |i, _| plain(i.rule.clone())),
    time("DETECT", 1, |i, _| plain(millis_tight(i.detect_ms))),
    time("RESTRT", 1, |i, _| plain(millis_tight(i.restart_ms))),
    time("RECONN", 1, |i, _| plain(millis_tight(i.reconnect_ms))),
    time("TOTAL", 0, |i, look| {
        (millis_tight(i.total_ms), look.strong())
    }),
    column("OUTCOME", 10, 3, |i, look| {
        (i.outcome.clone(), look.tone(look.tone_of(&i.outcome)))
    }),
    column("SEEN", 0, 5, |i, _| plain(i.reason.clone())),
];

fn plain(text: String) -> Cell {
    (text, Style::new())
}
