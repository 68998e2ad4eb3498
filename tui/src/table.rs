//! Aligned columns for plain output.
use crate::paint::Paint;

/// Rows under a heading; each column is as wide as its widest cell.
pub struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A heading that starts with `>` makes a column of numbers, set to the right.
    pub fn new(heads: &[&'static str]) -> Table {
        Table {
            heads: heads.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<_> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.heads.len());
        self.rows.push(cells);
    }

    /// Columns of its longest line on a terminal, or a few more where the last cells are short.
    pub fn width(&self) -> usize {
        let gaps = 2 * self.heads.len().saturating_sub(1);
        self.widths().iter().sum::<usize>() + gaps
    }

    fn widths(&self) -> Vec<usize> {
        let width = |(i, &head): (usize, &&'static str)| {
            let cells = self.rows.iter().map(|r| r[i].chars().count());
            cells.max().unwrap_or(0).max(name(head).len())
        };
        self.heads.iter().enumerate().map(width).collect()
    }

    /// The text, a newline after every line.
    pub fn render(&self, paint: Paint) -> String {
        let widths = self.widths();
        let pad = |i: usize, text: &str| {
            let w = widths[i];
            if self.heads[i].starts_with('>') {
                format!("{text:>w$}")
            } else if i + 1 == self.heads.len() {
                text.to_owned()
            } else {
                format!("{text:<w$}")
            }
        };
        let heads: Vec<String> = self
            .heads
            .iter()
            .enumerate()
            .map(|(i, &h)| pad(i, name(h)))
            .collect();
        let mut text = paint.bold(heads.join("  ").trim_end()) + "\n";
        for row in &self.rows {
            let cells = row.iter().enumerate().map(|(i, c)| paint.word(&pad(i, c)));
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }
}

/// A heading as it is printed.
fn name(head: &'static str) -> &'static str {
    head.trim_start_matches('>')
}
