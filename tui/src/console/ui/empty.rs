//! The screen while no daemon was ever reached.
use super::super::state::State;
use super::{footer, put};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Where is looked, why it does not work, what to do.
pub fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let look = state.look;
    let width = usize::from(area.width);
    let mut lines = vec![Line::raw("")];
    let sign = look.sign("starting");
    if state.trouble.is_empty() {
        lines.push(Line::raw(format!(" {sign} connecting to {}", state.place)));
    } else {
        lines.push(Line::styled(
            look.fit(&format!(" {sign} no daemon at {}", state.place), width),
            look.strong(),
        ));
        lines.push(Line::raw(
            look.fit(&format!("   {}; trying again", state.trouble), width),
        ));
        lines.push(Line::raw(""));
        let fix = state.fix.lines();
        lines.extend(fix.map(|l| Line::raw(look.fit(&format!("   {l}"), width))));
    }
    for (row, line) in lines.into_iter().enumerate() {
        put(buf, area, row as u16, line);
    }
    let last = Rect {
        y: area.bottom() - 1,
        height: 1,
        ..area
    };
    footer::draw(state, last, buf);
}
