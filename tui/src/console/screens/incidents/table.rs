//! The table of incidents, and the newest of them for the overview.
use crate::cascade;
use crate::console::state::Sight;
use crate::console::table::{Cell, Column, Spec, figures, words};
use crate::console::ui::grid;
use crate::format::{millis_tight, who};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use robust_proto::v1::{Incident, Status};

/// What happened and how long its parts took.
pub static SPEC: Spec<Incident> = Spec {
    columns: &COLUMNS,
    name: |i| i.id.to_string(),
    text: |i| {
        let name = who(&i.role, i.index);
        let notes: String = i.notes.iter().map(|n| format!(" {}", n.text)).collect();
        format!(
            "{name} {} {} {} {}{notes}",
            i.rule, i.outcome, i.reason, i.plan
        )
    },
};

/// The newest first.
pub fn draw_newest(sight: &Sight, s: &Status, area: Rect, buf: &mut Buffer) {
    let room = usize::from(area.height.saturating_sub(1));
    let firsts = cascade::firsts(&s.incidents);
    let newest: Vec<&Incident> = firsts.rev().take(room).collect();
    grid::plain(&COLUMNS, &newest, sight.look, area, buf);
    if newest.is_empty() && area.height > 1 {
        buf.set_string(area.x, area.y + 1, "none so far", sight.look.faint());
    }
}

const COLUMNS: [Column<Incident>; 10] = [
    words("", 1, 0, |i, look| {
        (
            look.sign(&i.outcome).to_string(),
            look.tone(look.tone_of(&i.outcome)),
        )
    }),
    figures(
        "#",
        3,
        2,
        |i, look| (i.id.to_string(), look.faint()),
        |i| i.id as f64,
    ),
    words("FAULT", 10, 0, |i, look| match i.under {
        0 => (who(&i.role, i.index), look.strong()),
        // Of what follows from another one it is said which.
        _ => {
            let name = who(&i.role, i.index);
            (look.glyph("└", "`").to_owned() + &name, look.faint())
        }
    }),
    words("RULE", 14, 4, |i, _| plain(i.rule.clone())),
    figures(
        "DETECT",
        6,
        1,
        |i, _| plain(millis_tight(i.detect_ms)),
        |i| i.detect_ms,
    ),
    figures(
        "RESTRT",
        6,
        1,
        |i, _| plain(millis_tight(i.restart_ms)),
        |i| i.restart_ms,
    ),
    figures(
        "RECONN",
        6,
        1,
        |i, _| plain(millis_tight(i.reconnect_ms)),
        |i| i.reconnect_ms,
    ),
    figures(
        "TOTAL",
        6,
        0,
        |i, look| (millis_tight(i.total_ms), look.strong()),
        |i| i.total_ms,
    ),
    words("OUTCOME", 10, 3, |i, look| {
        (i.outcome.clone(), look.tone(look.tone_of(&i.outcome)))
    }),
    words("SEEN", 0, 5, |i, _| match i.under {
        0 => plain(noted(i) + &i.reason),
        first => plain(format!("{}follows from {first}: {}", noted(i), i.reason)),
    }),
];

/// That operators wrote beside it, before what was seen, whose end may have no room.
fn noted(i: &Incident) -> String {
    match i.notes.len() {
        0 => String::new(),
        1 => "[1 note] ".to_owned(),
        count => format!("[{count} notes] "),
    }
}

fn plain(text: String) -> Cell {
    (text, Style::new())
}
