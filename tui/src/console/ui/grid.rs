//! Tables that drop their least important columns until they fit, scroll with the selection and
//! know where their rows and headings lie for the mouse.
use super::look::Look;
use super::{Drawn, Spot};
use crate::console::names::TableId;
use crate::console::state::Sight;
use crate::console::table::{Column, Sort, Spec, View};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Fewer cells for the last column are not worth having.
const REST: u16 = 14;
/// Cells for the sign beside the selected row, and for the one beside marked ones.
const GUTTER: u16 = 2;

/// The columns that fit into `width` cells with a gap of one between two, with their numbers.
fn fitting<T>(columns: &[Column<T>], width: u16) -> Vec<(usize, &Column<T>)> {
    let highest = columns.iter().map(|c| c.rank).max().unwrap_or(0);
    for rank in (0..=highest).rev() {
        let kept = columns.iter().enumerate().filter(|(_, c)| c.rank <= rank);
        let kept: Vec<_> = kept.collect();
        let cells: u16 = kept
            .iter()
            .map(|(_, c)| (if c.width == 0 { REST } else { c.width }) + 1)
            .sum();
        if cells <= width + 1 || rank == 0 {
            return kept;
        }
    }
    Vec::new()
}

/// Rows without selection, in the order given: a list within another screen.
pub fn plain<T>(columns: &[Column<T>], rows: &[&T], look: Look, area: Rect, buf: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let columns = fitting(columns, area.width);
    heading(&columns, None, look, area, buf);
    let room = usize::from(area.height - 1);
    for (line, row) in rows.iter().take(room).enumerate() {
        one_row(&columns, *row, look, area, area.y + 1 + line as u16, buf);
    }
}

/// Whether a row is marked.
pub type IsMarked<'a, T> = dyn Fn(&T) -> bool + 'a;

/// A table with its selection, of which as many rows are drawn as there is room for.
pub fn draw<T>(
    sight: &Sight,
    (id, spec, view): (TableId, &Spec<T>, &View),
    (rows, is_marked): (&[T], &IsMarked<T>),
    area: Rect,
    buf: &mut Buffer,
    drawn: &mut Drawn,
) {
    if area.height < 2 || area.width <= GUTTER {
        return;
    }
    let look = sight.look;
    let order = spec.order(view, rows, look);
    let chosen = spec.position(view, &order, rows);
    let inner = Rect {
        x: area.x + GUTTER,
        width: area.width - GUTTER,
        ..area
    };
    let columns = fitting(spec.columns, inner.width);
    buf.set_style(Rect { height: 1, ..area }, look.heading());
    heading(&columns, view.sort, look, inner, buf);
    drawn.spot(area, Spot::Body(id));
    for (number, _, x, width) in places(&columns, inner) {
        let at = Rect::new(x, area.y, width as u16, 1);
        drawn.spot(at, Spot::Head(id, number));
    }
    let room = usize::from(area.height - 1);
    let first = first_row(
        sight.drawn.first(id),
        chosen.unwrap_or(0),
        room,
        order.len(),
    );
    drawn.table(id, first, room);
    for (line, &index) in order.iter().skip(first).take(room).enumerate() {
        let y = area.y + 1 + line as u16;
        one_row(&columns, &rows[index], look, inner, y, buf);
        let whole = Rect {
            y,
            height: 1,
            ..area
        };
        drawn.spot(whole, Spot::Row(id, first + line));
        if is_marked(&rows[index]) {
            buf.set_string(area.x + 1, y, look.glyph("◆", "*"), look.strong());
        }
        if chosen == Some(first + line) {
            // The sign beside the row: reversed video alone would be lost in a copied screen.
            buf.set_style(
                Rect {
                    y,
                    height: 1,
                    ..inner
                },
                look.selection(),
            );
            buf.set_string(area.x, y, look.glyph("▶", ">"), look.strong());
        }
    }
    if order.is_empty() {
        let text = match rows.is_empty() {
            true => "none".to_owned(),
            false => format!("none of {} has `{}`", rows.len(), view.filter),
        };
        let text = look.fit(&text, usize::from(inner.width));
        buf.set_string(inner.x, area.y + 1, text, look.faint());
    }
}

/// The first row to show: where it was, moved as little as the selection needs.
fn first_row(was: usize, chosen: usize, room: usize, rows: usize) -> usize {
    let last_start = rows.saturating_sub(room);
    was.min(chosen)
        .max((chosen + 1).saturating_sub(room))
        .min(last_start)
}

fn heading<T>(
    columns: &[(usize, &Column<T>)],
    sort: Option<Sort>,
    look: Look,
    area: Rect,
    buf: &mut Buffer,
) {
    buf.set_style(Rect { height: 1, ..area }, look.heading());
    for (number, column, x, width) in places(columns, area) {
        let mut head = column.head.to_owned();
        if let Some(sort) = sort.filter(|s| s.column == number) {
            let sign = match sort.down {
                true => look.glyph("▼", "v"),
                false => look.glyph("▲", "^"),
            };
            head = match head.chars().count() < width {
                true => head + sign,
                false => {
                    head.chars()
                        .take(width.saturating_sub(1))
                        .collect::<String>()
                        + sign
                }
            };
        }
        buf.set_string(x, area.y, align(&head, width, column.right), look.heading());
    }
}

fn one_row<T>(
    columns: &[(usize, &Column<T>)],
    row: &T,
    look: Look,
    area: Rect,
    y: u16,
    buf: &mut Buffer,
) {
    for (_, column, x, width) in places(columns, area) {
        let (text, style) = (column.cell)(row, look);
        let text = align(&look.fit(&text, width), width, column.right);
        buf.set_string(x, y, text, style);
    }
}

fn places<'a, T>(
    columns: &'a [(usize, &'a Column<T>)],
    area: Rect,
) -> impl Iterator<Item = (usize, &'a Column<T>, u16, usize)> {
    let mut x = area.x;
    columns.iter().filter_map(move |(number, column)| {
        let at = x;
        let rest = area.right().saturating_sub(at);
        let width = if column.width == 0 {
            rest
        } else {
            column.width.min(rest)
        };
        x = at + width + 1;
        (width > 0).then_some((*number, *column, at, usize::from(width)))
    })
}

fn align(text: &str, width: usize, right: bool) -> String {
    if right {
        format!("{text:>width$}")
    } else {
        format!("{text:<width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::first_row;

    #[test]
    fn a_table_moves_as_little_as_its_selection_needs() {
        assert_eq!(first_row(0, 4, 5, 20), 0, "still in sight");
        assert_eq!(first_row(0, 5, 5, 20), 1, "one down");
        assert_eq!(first_row(6, 5, 5, 20), 5, "one up");
        assert_eq!(first_row(6, 8, 5, 20), 6, "stays");
        assert_eq!(first_row(15, 3, 5, 4), 0, "fewer rows than room");
    }
}
