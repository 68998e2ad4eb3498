//! Tables that drop their least important columns until they fit.
use super::look::Look;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// A column of a table over rows of type `T`.
pub struct Column<T> {
    /// Its heading; the width is counted in cells.
    pub head: &'static str,
    /// Cells; 0 for the last column means the rest of the line.
    pub width: u16,
    /// Numbers are set to the right.
    pub right: bool,
    /// 0 is always shown; higher goes first when the line is short.
    pub rank: u8,
    /// A cell's text and style.
    pub cell: fn(&T, Look) -> (String, Style),
}

/// Fewer cells for the last column are not worth having.
const REST: u16 = 14;

/// The columns that fit into `width` cells with a gap of one between two.
pub fn fitting<T>(columns: &[Column<T>], width: u16) -> Vec<&Column<T>> {
    let highest = columns.iter().map(|c| c.rank).max().unwrap_or(0);
    for rank in (0..=highest).rev() {
        let kept: Vec<_> = columns.iter().filter(|c| c.rank <= rank).collect();
        let cells: u16 = kept
            .iter()
            .map(|c| (if c.width == 0 { REST } else { c.width }) + 1)
            .sum();
        if cells <= width + 1 || rank == 0 {
            return kept;
        }
    }
    Vec::new()
}

/// Draws the heading and as many rows as there is room for, the selected one always among them.
pub fn draw<T>(
    columns: &[Column<T>],
    rows: &[T],
    selected: Option<usize>,
    look: Look,
    area: Rect,
    buf: &mut Buffer,
) {
    if area.is_empty() {
        return;
    }
    let columns = fitting(columns, area.width);
    buf.set_style(Rect { height: 1, ..area }, look.heading());
    for (column, x, width) in places(&columns, area) {
        let head = align(column.head, width, column.right);
        buf.set_string(x, area.y, head, look.heading());
    }
    let room = usize::from(area.height - 1);
    let first = selected.map_or(0, |s| (s + 1).saturating_sub(room));
    for (line, (i, row)) in rows.iter().enumerate().skip(first).take(room).enumerate() {
        let y = area.y + 1 + line as u16;
        for (column, x, width) in places(&columns, area) {
            let (text, style) = (column.cell)(row, look);
            let text = align(&look.fit(&text, width), width, column.right);
            buf.set_string(x, y, text, style);
        }
        if selected == Some(i) {
            buf.set_style(
                Rect {
                    y,
                    height: 1,
                    ..area
                },
                look.selection(),
            );
        }
    }
}

fn places<'a, T>(
    columns: &'a [&'a Column<T>],
    area: Rect,
) -> impl Iterator<Item = (&'a Column<T>, u16, usize)> {
    let mut x = area.x;
    columns.iter().filter_map(move |column| {
        let at = x;
        let rest = area.right().saturating_sub(at);
        let width = if column.width == 0 {
            rest
        } else {
            column.width.min(rest)
        };
        x = at + width + 1;
        (width > 0).then_some((*column, at, usize::from(width)))
    })
}

fn align(text: &str, width: usize, right: bool) -> String {
    if right {
        format!("{text:>width$}")
    } else {
        format!("{text:<width$}")
    }
}
