//! A frame over the middle of the screen, with lines in it.
use crate::console::ui::look::Look;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::symbols::border;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Padding, Paragraph, Widget as _, Wrap};

/// Cells of a question.
pub const WIDTH: u16 = 58;
/// A list has names, or keys, and what they mean side by side.
pub const WIDE: u16 = 76;
const ASCII: border::Set = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// A frame over the middle of the screen.
pub struct Sheet<'a> {
    /// On the upper edge.
    pub title: &'a str,
    /// On the lower edge.
    pub foot: &'a str,
    /// Cells, where there is room for them.
    pub width: u16,
    /// Of the frame.
    pub style: Style,
}

impl Sheet<'_> {
    /// Draws it, with lines that are broken where they are too long.
    pub fn draw(&self, look: Look, lines: &[String], area: Rect, buf: &mut Buffer) {
        let (room, _) = inside(self.width, area);
        let text = lines.iter().map(|l| Line::raw(l.clone())).collect();
        self.draw_text(look, (text, rows(lines, room)), area, buf);
    }

    /// Draws it, with lines that fit and may have a style each.
    pub fn draw_lines(&self, look: Look, lines: Vec<Line<'_>>, area: Rect, buf: &mut Buffer) {
        let rows = lines.len();
        self.draw_text(look, (lines, rows), area, buf);
    }

    /// The frame, and the text in as many rows as it takes.
    fn draw_text(
        &self,
        look: Look,
        (text, rows): (Vec<Line<'_>>, usize),
        area: Rect,
        buf: &mut Buffer,
    ) {
        let width = self.width.min(area.width);
        let (room, most) = inside(width, area);
        let height = rows.min(most) as u16 + 2;
        let place = Rect {
            x: area.x + (area.width - width) / 2,
            y: area.y + (area.height - height) / 2,
            width,
            height,
        };
        Clear.render(place, buf);
        let set = if look.ascii { ASCII } else { border::ROUNDED };
        let strong = self.style.patch(look.strong());
        let mut block = Block::bordered()
            .border_set(set)
            .border_style(self.style)
            .title(Line::styled(self.title.to_owned(), strong))
            .padding(Padding::horizontal(1));
        if !self.foot.is_empty() {
            let foot = Line::styled(self.foot.to_owned(), strong);
            block = block.title_bottom(foot.right_aligned());
        }
        // What fits keeps its indentation, which wrapping takes.
        let fits = text.iter().all(|line| line.width() <= room);
        let text = match fits {
            true => Paragraph::new(text),
            false => Paragraph::new(text).wrap(Wrap { trim: true }),
        };
        text.block(block).render(place, buf);
    }
}

/// Columns and rows for text within a frame so wide.
pub fn inside(width: u16, area: Rect) -> (usize, usize) {
    let room = width.min(area.width).saturating_sub(4);
    (
        usize::from(room),
        usize::from(area.height.saturating_sub(2)),
    )
}

/// Those of the lines that are seen in so many rows, from this one on or from the last at which all rows are full, and how
/// many are still to come.
pub fn scrolled(lines: &[String], first: usize, rows: usize) -> (&[String], usize) {
    let first = first.min(lines.len().saturating_sub(rows));
    let shown = &lines[first..lines.len().min(first + rows)];
    (shown, lines.len() - first - shown.len())
}

/// Rows that lines take. Words wrap at most a line earlier than cells would.
pub fn rows(lines: &[String], room: usize) -> usize {
    let of = |line: &String| match Line::raw(line.as_str()).width() {
        width if width <= room => 1,
        width => (width + 8).div_ceil(room),
    };
    lines.iter().map(of).sum()
}
