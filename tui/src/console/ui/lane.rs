//! The phases of an instance over time, a letter for each.
use crate::console::state::Sight;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use std::collections::BTreeSet;

/// The phases of one instance; answers which there were.
pub fn draw(
    sight: &Sight,
    (role, index): (&str, u32),
    from: u64,
    to: u64,
    area: Rect,
    buf: &mut Buffer,
) -> BTreeSet<u16> {
    let cells = sight
        .job
        .history()
        .cells(role, index, from, to, usize::from(area.width));
    let mut seen = BTreeSet::new();
    for (x, phase) in cells.into_iter().enumerate() {
        let Some(phase) = phase else { continue };
        seen.insert(phase);
        let (letter, style) = sight.look.phase(sight.job.history().phase(phase));
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
