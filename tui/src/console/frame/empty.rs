//! The screen while no daemon was ever reached.
use crate::console::state::Sight;
use crate::console::ui::put;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Where is looked, why it does not work, what to do.
pub fn draw(sight: &Sight, area: Rect, buf: &mut Buffer) {
    let look = sight.look;
    let width = usize::from(area.width);
    let mut lines = vec![Line::raw("")];
    let sign = look.sign("starting");
    if sight.trouble.is_empty() {
        lines.push(Line::raw(format!(" {sign} connecting to {}", sight.place)));
    } else {
        lines.push(Line::styled(
            look.fit(&format!(" {sign} no daemon at {}", sight.place), width),
            look.strong(),
        ));
        lines.push(Line::raw(
            look.fit(&format!("   {}; trying again", sight.trouble), width),
        ));
        lines.push(Line::raw(""));
        let fix = sight.fix.lines();
        lines.extend(fix.map(|l| Line::raw(look.fit(&format!("   {l}"), width))));
    }
    for (row, line) in lines.into_iter().enumerate() {
        put(buf, area, row as u16, line);
    }
}
