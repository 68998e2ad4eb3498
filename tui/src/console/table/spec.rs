//! What an operator did to a table: which row, which order, which filter. Rows are known by name, so
//! that a selection stays with its instance when rows come, go or change places.
use crate::console::ui::look::Look;
use ratatui::style::Style;
use std::cmp::Ordering;

/// A cell: its text and style.
pub type Cell = (String, Style);

/// A column of a table over rows of type `T`.
#[derive(Debug)]
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
    pub cell: fn(&T, Look) -> Cell,
    /// What it is sorted by; none: by its text, numbers within it as numbers.
    pub value: Option<fn(&T) -> f64>,
}

/// A column of words.
pub const fn words<T>(
    head: &'static str,
    width: u16,
    rank: u8,
    cell: fn(&T, Look) -> Cell,
) -> Column<T> {
    Column {
        head,
        width,
        right: false,
        rank,
        cell,
        value: None,
    }
}

/// A column of figures.
pub const fn figures<T>(
    head: &'static str,
    width: u16,
    rank: u8,
    cell: fn(&T, Look) -> Cell,
    value: fn(&T) -> f64,
) -> Column<T> {
    Column {
        head,
        width,
        right: true,
        rank,
        cell,
        value: Some(value),
    }
}

/// A kind of table.
#[derive(Debug)]
pub struct Spec<T: 'static> {
    /// Its columns.
    pub columns: &'static [Column<T>],
    /// A row's name; no two rows have the same.
    pub name: fn(&T) -> String,
    /// What a filter looks at.
    pub text: fn(&T) -> String,
}

/// The order of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// Which column.
    pub column: usize,
    /// The greatest first.
    pub down: bool,
}

/// What an operator did to one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Name of the selected row; none: the first.
    chosen: Option<String>,
    /// Where it was, for when it goes.
    at: usize,
    /// The order; none: as the daemon gives them.
    pub sort: Option<Sort>,
    /// Only rows that hold these words.
    pub filter: String,
}

impl View {
    /// Ordered from the beginning.
    pub fn sorted(column: usize, down: bool) -> View {
        View {
            sort: Some(Sort { column, down }),
            ..View::default()
        }
    }

    /// Where the selected row is among these names.
    pub fn position(&self, names: &[String]) -> Option<usize> {
        self.position_of(names.len(), |at, chosen| names[at] == chosen)
    }

    /// The same among so many rows, where it can be asked whether one has the selected name. Rows seldom move, and names are
    /// made up when they are wanted: the row that stands where the selected one was is asked first.
    pub fn position_of(&self, rows: usize, is: impl Fn(usize, &str) -> bool) -> Option<usize> {
        let here = self.at.min(rows.checked_sub(1)?);
        let Some(chosen) = self.chosen.as_deref().filter(|&chosen| !is(here, chosen)) else {
            return Some(here);
        };
        Some((0..rows).find(|&at| is(at, chosen)).unwrap_or(here))
    }

    /// Name of the selected row, if one was ever selected.
    pub fn chosen(&self) -> Option<&str> {
        self.chosen.as_deref()
    }

    /// Selects the row of this name, which stands there.
    pub fn point(&mut self, name: String, at: usize) {
        (self.chosen, self.at) = (Some(name), at);
    }

    /// Selects the row at this place, or the last.
    pub fn choose(&mut self, names: &[String], at: usize) {
        if let Some(last) = names.len().checked_sub(1) {
            let at = at.min(last);
            self.point(names[at].clone(), at);
        }
    }

    /// Selects the row so many further down.
    pub fn step(&mut self, names: &[String], by: isize) {
        if let Some(at) = self.position(names) {
            self.choose(names, at.saturating_add_signed(by));
        }
    }

    /// Sorts by a column; once more turns the order around.
    pub fn sort_by(&mut self, column: usize) {
        self.sort = Some(match self.sort {
            Some(sort) if sort.column == column => Sort {
                column,
                down: !sort.down,
            },
            _ => Sort {
                column,
                down: false,
            },
        });
    }

    /// Sorts by the column so many further right; before the first lies the daemon's own order.
    pub fn sort_next(&mut self, columns: usize, by: isize) {
        let places = columns as isize + 1;
        let now = self.sort.map_or(0, |s| s.column as isize + 1);
        let next = (now + by).rem_euclid(places);
        let down = self.sort.is_some_and(|s| s.down);
        self.sort = usize::try_from(next - 1)
            .ok()
            .map(|column| Sort { column, down });
    }

    /// Turns the order around.
    pub fn turn(&mut self) {
        if let Some(sort) = &mut self.sort {
            sort.down = !sort.down;
        }
    }
}

impl<T> Spec<T> {
    /// The rows that the filter leaves, as indices, in the order in which they are given.
    pub fn left(&self, view: &View, rows: &[T]) -> Vec<usize> {
        let wanted: Vec<String> = view
            .filter
            .split_whitespace()
            .map(str::to_lowercase)
            .collect();
        let fits = |row: &T| {
            wanted.is_empty() || {
                let text = (self.text)(row).to_lowercase();
                wanted.iter().all(|word| text.contains(word))
            }
        };
        (0..rows.len()).filter(|&i| fits(&rows[i])).collect()
    }

    /// The same in the order to show them.
    pub fn order(&self, view: &View, rows: &[T], look: Look) -> Vec<usize> {
        let mut order = self.left(view, rows);
        let Some((sort, column)) = view
            .sort
            .and_then(|s| Some((s, self.columns.get(s.column)?)))
        else {
            return order;
        };
        match column.value {
            Some(value) => {
                order.sort_by(|&a, &b| turned(value(&rows[a]).total_cmp(&value(&rows[b])), sort));
            }
            None => {
                let text = |&i: &usize| natural(&(column.cell)(&rows[i], look).0);
                order.sort_by_cached_key(text);
                if sort.down {
                    order.reverse();
                }
            }
        }
        order
    }

    /// Where the selected row is among those rows.
    pub fn position(&self, view: &View, order: &[usize], rows: &[T]) -> Option<usize> {
        view.position_of(order.len(), |at, chosen| {
            (self.name)(&rows[order[at]]) == chosen
        })
    }

    /// The names of those rows.
    pub fn names(&self, order: &[usize], rows: &[T]) -> Vec<String> {
        order.iter().map(|&i| (self.name)(&rows[i])).collect()
    }
}

fn turned(order: Ordering, sort: Sort) -> Ordering {
    if sort.down { order.reverse() } else { order }
}

/// Text that sorts as people count: `rollout-2` before `rollout-10`.
fn natural(text: &str) -> String {
    let mut key = String::with_capacity(text.len() + 16);
    let mut digits = String::new();
    for c in text.chars().chain(std::iter::once('\0')) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            key += &format!("{digits:0>12}");
            digits.clear();
        }
        key.extend(c.to_lowercase());
    }
    key
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cli::ThemeName;

    const SPEC: Spec<(&str, f64)> = Spec {
        columns: &[
            words("NAME", 9, 0, |r, _| (r.0.to_owned(), Style::new())),
            figures("N", 4, 0, |r, _| (r.1.to_string(), Style::new()), |r| r.1),
        ],
        name: |r| r.0.to_owned(),
        text: |r| r.0.to_owned(),
    };

    const ROWS: [(&str, f64); 3] = [("rollout-10", 2.0), ("rollout-2", 9.0), ("agent-1", 10.0)];

    fn names(view: &View) -> Vec<String> {
        let look = Look::new(ThemeName::Dark, false, false);
        SPEC.names(&SPEC.order(view, &ROWS, look), &ROWS)
    }

    #[test]
    fn names_sort_as_people_count_and_figures_by_their_value() {
        let mut view = View::default();
        assert_eq!(names(&view), ["rollout-10", "rollout-2", "agent-1"]);
        view.sort_by(0);
        assert_eq!(names(&view), ["agent-1", "rollout-2", "rollout-10"]);
        view.sort_by(1);
        assert_eq!(names(&view), ["rollout-10", "rollout-2", "agent-1"]);
        view.sort_by(1);
        assert_eq!(names(&view), ["agent-1", "rollout-2", "rollout-10"]);
    }

    #[test]
    fn stepping_through_the_columns_comes_back_to_the_given_order() {
        let mut view = View::default();
        let mut seen = Vec::new();
        for _ in 0..3 {
            view.sort_next(2, 1);
            seen.push(view.sort.map(|s| s.column));
        }
        assert_eq!(seen, [Some(0), Some(1), None]);
        view.sort_next(2, -1);
        assert_eq!(view.sort.map(|s| s.column), Some(1));
    }

    #[test]
    fn a_filter_wants_all_its_words_in_any_case() {
        let view = View {
            filter: "ROLL 10".to_owned(),
            ..View::default()
        };
        assert_eq!(names(&view), ["rollout-10"]);
    }

    #[test]
    fn the_selection_goes_with_its_row_and_stays_near_when_the_row_goes() {
        let mut view = View::default();
        let all = names(&view);
        view.step(&all, 1);
        assert_eq!(view.position(&all), Some(1));
        view.sort_by(0);
        let sorted = names(&view);
        assert_eq!(sorted[view.position(&sorted).unwrap()], "rollout-2");
        assert_eq!(view.position(&all[..1]), Some(0));
        view.step(&all, -9);
        assert_eq!(view.position(&all), Some(0));
        assert_eq!(view.position(&[]), None);
    }
}
