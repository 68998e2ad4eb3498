//! A curve in braille (two by four dots a cell), or in ASCII where there is none.
use super::look::{Look, Tone};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// A curve over `slots` equal places, the newest value at the right edge.
pub struct Plot<'a> {
    /// Oldest first.
    pub values: &'a [f64],
    /// A second curve below it, dotted; it shows where it differs.
    pub dotted: &'a [f64],
    /// Values from the left edge to the right.
    pub slots: usize,
    /// The value at the lower edge.
    pub low: f64,
    /// The value at the upper edge.
    pub high: f64,
    /// Digits of the axis labels.
    pub digits: usize,
    /// Text at the left and right end of the time axis.
    pub ends: (&'a str, &'a str),
    /// Places, counted from the newest, marked on the time axis.
    pub marks: &'a [usize],
    /// A place, counted from the newest, that stands out from top to bottom.
    pub cursor: Option<usize>,
}

impl Plot<'_> {
    /// Draws axis and curve; the time axis only from three lines on.
    pub fn draw(&self, look: Look, area: Rect, buf: &mut Buffer) {
        let labels = [self.high, f64::midpoint(self.low, self.high), self.low]
            .map(|v| format!("{v:.*}", self.digits));
        let gutter = labels.iter().map(String::len).max().unwrap_or(0) as u16 + 1;
        if area.width < gutter + 4 || area.height == 0 {
            return;
        }
        let with_time = area.height >= 3;
        let curve = Rect {
            x: area.x + gutter,
            width: area.width - gutter,
            height: area.height - u16::from(with_time),
            ..area
        };
        for line in 0..curve.height {
            let label = match line {
                0 => Some(&labels[0]),
                l if l + 1 == curve.height => Some(&labels[2]),
                l if curve.height % 2 == 1 && l == curve.height / 2 => Some(&labels[1]),
                _ => None,
            };
            let tick = if label.is_some() {
                look.glyph("┤", "+")
            } else {
                look.glyph("│", "|")
            };
            let text = label.map_or("", String::as_str);
            let width = usize::from(gutter) - 1;
            let text = format!("{text:>width$}{tick}");
            buf.set_string(area.x, curve.y + line, text, look.faint());
        }
        self.draw_curve(look, curve, buf);
        if let Some(ago) = self.cursor.filter(|ago| *ago < self.slots) {
            let x = (self.slots - 1 - ago) * usize::from(curve.width) / self.slots;
            let column = Rect {
                x: curve.x + x as u16,
                width: 1,
                ..curve
            };
            buf.set_style(column, look.selection());
        }
        if with_time {
            self.draw_time_axis(
                look,
                Rect {
                    y: curve.bottom(),
                    height: 1,
                    ..curve
                },
                buf,
            );
        }
    }

    fn draw_time_axis(&self, look: Look, area: Rect, buf: &mut Buffer) {
        let (left, right) = self.ends;
        let width = usize::from(area.width);
        let gap = width.saturating_sub(left.len() + right.len());
        let line = look.glyph("─", "-").repeat(gap);
        buf.set_stringn(
            area.x,
            area.y,
            format!("{left}{line}{right}"),
            width,
            look.faint(),
        );
        for &ago in self.marks.iter().filter(|&&ago| ago < self.slots) {
            // Beside the texts at the ends rather than over them.
            let x = (self.slots - 1 - ago) * width / self.slots;
            let x = x.clamp(
                left.len(),
                (left.len() + gap).saturating_sub(1).max(left.len()),
            );
            let mark = look.glyph("▲", "^");
            buf.set_string(area.x + x as u16, area.y, mark, look.tone(Tone::Bad));
        }
    }

    fn draw_curve(&self, look: Look, area: Rect, buf: &mut Buffer) {
        let (per_x, per_y) = if look.ascii { (1, 1) } else { (2, 4) };
        let columns = usize::from(area.width) * per_x;
        let rows = usize::from(area.height) * per_y;
        let mut before = None;
        for column in 0..columns {
            let row_of = |values| {
                let value = self.value_at(values, column, columns);
                value.map(|v| self.row_of(v, rows))
            };
            let row = row_of(self.values);
            let x = area.x + (column / per_x) as u16;
            // One dot of two, so that the curves are told apart without colour.
            let below = row_of(self.dotted).filter(|r| row != Some(*r) && column % 2 == 0);
            if let Some(r) = below {
                let y = area.y + (r / per_y) as u16;
                match look.ascii {
                    true => buf.set_string(x, y, ".", look.faint()),
                    false => add_dot(buf, x, y, 0, r % 4, look.faint()),
                }
            }
            if let Some(row) = row {
                // The step from the last value is drawn too, so that a fall to 0 is one line.
                let from = before.unwrap_or(row);
                for r in row.min(from)..=row.max(from) {
                    let y = area.y + (r / per_y) as u16;
                    if look.ascii {
                        let glyph = if r == row { "*" } else { "|" };
                        buf.set_string(x, y, glyph, look.accent());
                    } else {
                        add_dot(buf, x, y, column % 2, r % 4, look.accent());
                    }
                }
            }
            before = row;
        }
    }

    /// The mean of the values that fall into a column of dots, or the one it falls into.
    fn value_at(&self, values: &[f64], column: usize, columns: usize) -> Option<f64> {
        let first = column * self.slots / columns;
        let last = ((column + 1) * self.slots / columns).max(first + 1);
        let missing = self.slots.saturating_sub(values.len());
        let skipped = values.len().saturating_sub(self.slots);
        let values: Vec<f64> = (first.max(missing)..last)
            .filter_map(|slot| values.get(slot + skipped - missing).copied())
            .filter(|v| v.is_finite())
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    fn row_of(&self, value: f64, rows: usize) -> usize {
        let span = (self.high - self.low).max(f64::EPSILON);
        let up = ((value - self.low) / span).clamp(0.0, 1.0);
        ((1.0 - up) * (rows - 1) as f64).round() as usize
    }
}

fn add_dot(buf: &mut Buffer, x: u16, y: u16, column: usize, row: usize, style: Style) {
    const DOTS: [[u32; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
    let Some(cell) = buf.cell_mut((x, y)) else {
        return;
    };
    let old = cell.symbol().chars().next().map_or(0, u32::from);
    let old = if (0x2800..0x2900).contains(&old) {
        old
    } else {
        0x2800
    };
    if let Some(glyph) = char::from_u32(old | DOTS[column][row]) {
        cell.set_char(glyph).set_style(style);
    }
}
