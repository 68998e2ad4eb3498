//! The screens and their keys.
use crate::console::names::ScreenId;
use crate::console::ui::look::Look;
use crate::console::ui::{Drawn, Spot};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// The screen that is shown stands out by brackets too, where names do not fit the others are digits.
pub fn draw(look: Look, on_top: ScreenId, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
    let whole: usize = ScreenId::ALL.iter().map(|s| s.title().len() + 3).sum();
    let names = whole < usize::from(area.width);
    let gap = u16::from(whole + 8 + 1 < usize::from(area.width));
    let mut x = area.x + gap;
    for (number, screen) in ScreenId::ALL.into_iter().enumerate() {
        let shown = screen == on_top;
        let name = match names || shown {
            true => format!("{} {}", number + 1, screen.title()),
            false => (number + 1).to_string(),
        };
        let (text, style) = match shown {
            true => (format!("[{name}]"), look.strong().patch(look.accent())),
            false => (format!(" {name} "), look.faint()),
        };
        // Neighbours share the cell between them.
        let width = text.len() as u16;
        let place = Rect::new(x, area.y, width.min(area.right().saturating_sub(x)), 1);
        let text = match shown {
            true => text.as_str(),
            false => &text[1..text.len() - 1],
        };
        let at = if shown { x } else { x + 1 };
        buf.set_stringn(
            at,
            area.y,
            text,
            usize::from(area.right().saturating_sub(at)),
            style,
        );
        drawn.spot(place, Spot::Tab(screen));
        x += width - 1 + gap;
    }
}
