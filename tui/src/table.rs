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

    /// The text, a newline after every line.
    pub fn render(&self, paint: Paint) -> String {
        let name = |head: &'static str| head.trim_start_matches('>');
        let width = |i: usize, head: &'static str| {
            let cells = self.rows.iter().map(|r| r[i].chars().count());
            cells.max().unwrap_or(0).max(name(head).len())
        };
        let widths: Vec<usize> = self
            .heads
            .iter()
            .enumerate()
            .map(|(i, &h)| width(i, h))
            .collect();
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
