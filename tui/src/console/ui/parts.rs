//! Parts of an area, and text in them.
use super::look::Look;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// From this width on two charts stand side by side.
pub const WIDE: u16 = 100;

/// One line of an area.
pub fn line(area: Rect, row: u16) -> Rect {
    Rect {
        y: area.y + row,
        height: 1,
        ..area
    }
}

/// All but the first lines.
pub fn below(area: Rect, lines: u16) -> Rect {
    split(area, lines).1
}

/// The first lines of an area, and the rest.
pub fn split(area: Rect, lines: u16) -> (Rect, Rect) {
    let lines = lines.min(area.height);
    let first = Rect {
        height: lines,
        ..area
    };
    let rest = Rect {
        y: area.y + lines,
        height: area.height - lines,
        ..area
    };
    (first, rest)
}

/// A line at `row` of the area, cut at its edge.
pub fn put(buf: &mut Buffer, area: Rect, row: u16, line: Line) {
    if row < area.height {
        buf.set_line(area.x, area.y + row, &line, area.width);
    }
}

/// Text at the left and at the right of one line; the right one gives way when both do not fit.
pub fn put_ends(buf: &mut Buffer, area: Rect, row: u16, left: Line, right: Line) {
    let (l, r) = (left.width() as u16, right.width() as u16);
    put(buf, area, row, left);
    if l + 2 + r <= area.width && row < area.height {
        buf.set_line(area.right() - r, area.y + row, &right, r);
    }
}

/// A section's heading over the whole width, and the area below it.
pub fn section(look: Look, area: Rect, title: &str, buf: &mut Buffer) -> Rect {
    if area.is_empty() {
        return area;
    }
    let style = look.heading();
    buf.set_style(Rect { height: 1, ..area }, style);
    let title = look.fit(title, usize::from(area.width));
    buf.set_string(area.x, area.y, title, style);
    below(area, 1)
}

/// Text broken into lines of at most `width` cells at spaces.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            let fits = line.chars().count() + 1 + word.chars().count() <= width;
            if !line.is_empty() && !fits {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}
