//! The screens and their keys.
use crate::console::names::ScreenId;
use crate::console::ui::look::Look;
use crate::console::ui::{Drawn, Spot};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// What is said of a screen beside its key, where it is on top or not.
type Naming = fn(ScreenId, bool) -> &'static str;

/// From the longest to the shortest: all names; short ones, that of the screen on top whole; short ones; keys, and the
/// name of the screen on top.
const NAMINGS: [Naming; 4] = [
    |screen, _| screen.title(),
    |screen, on_top| {
        if on_top {
            screen.title()
        } else {
            screen.short()
        }
    },
    |screen, _| screen.short(),
    |screen, on_top| if on_top { screen.title() } else { "" },
];

/// The screen that is shown stands out by brackets too; the names are as long as there is room for.
pub fn draw(look: Look, on_top: ScreenId, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
    let (labels, gap) = labels(on_top, usize::from(area.width));
    let mut x = area.x + gap;
    for (screen, name) in ScreenId::ALL.into_iter().zip(labels) {
        let shown = screen == on_top;
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

/// What stands on each tab, in the longest way that fits, and whether a cell more fits between two.
fn labels(on_top: ScreenId, width: usize) -> (Vec<String>, u16) {
    let mut last = Vec::new();
    for naming in NAMINGS {
        let label = |screen: ScreenId| match naming(screen, screen == on_top) {
            "" => screen.key().to_string(),
            name => format!("{} {name}", screen.key()),
        };
        last = ScreenId::ALL.map(label).to_vec();
        let cells = last.iter().map(|label| label.len() + 1).sum::<usize>() + 1;
        if cells <= width {
            let gap = u16::from(cells + last.len() < width);
            return (last, gap);
        }
    }
    (last, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_long_as_there_is_room_for_and_never_cut_within() {
        let line = |width| labels(ScreenId::Overview, width).0.join(" ");
        assert!(line(120).starts_with("1 Overview 2 Roles 3 Timeline 4 Weights"));
        let short = line(80);
        assert!(short.contains(" 3 Line 4 Wgts 5 Store 6 Incid"), "{short}");
        assert!(short.ends_with(" 0 Time"), "{short}");
        assert!(line(60).starts_with("1 Overview 2 3 4 "), "{}", line(60));
    }

    #[test]
    fn whatever_is_on_top_the_line_fits_into_the_smallest_screen() {
        for on_top in ScreenId::ALL {
            for width in [60, 72, 80, 96, 120] {
                let (labels, _) = labels(on_top, width);
                let cells: usize = labels.iter().map(|label| label.len() + 1).sum();
                assert!(cells < width, "{on_top:?} at {width}: {labels:?}");
            }
        }
    }
}
