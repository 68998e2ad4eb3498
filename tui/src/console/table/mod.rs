//! A table as a part of a screen: what an operator did to it, by keys and by mouse, and its rows as they
//! are shown. The rows themselves are of the screen, or of the job.
mod marks;
mod spec;

pub use marks::Marks;
pub use spec::{Cell, Column, Sort, Spec, View, figures, words};

use crate::console::input::Input;
use crate::console::line::edit_until_done;
use crate::console::names::TableId;
use crate::console::state::Sight;
use crate::console::ui::look::Look;
use crate::console::ui::{Drawn, Spot, grid};
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::collections::BTreeSet;

/// Selection, order and filter of a table.
#[derive(Debug)]
pub struct Table<T: 'static> {
    id: TableId,
    spec: &'static Spec<T>,
    view: View,
    /// Keys go into its filter.
    typing: bool,
    /// Rows that keys act on together; none: its rows are not marked.
    marks: Option<Marks>,
}

/// What an input did to a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// Nothing to its selection.
    No,
    /// A key went into its filter.
    Typed,
    /// Another row is selected, or the table has just come into sight.
    Anew,
}

impl<T> Table<T> {
    /// One that shows all rows as the daemon gives them.
    pub fn new(id: TableId, spec: &'static Spec<T>) -> Table<T> {
        Table {
            id,
            spec,
            view: View::default(),
            typing: false,
            marks: None,
        }
    }

    /// Its rows can be marked.
    pub fn markable(mut self) -> Table<T> {
        self.marks = Some(Marks::default());
        self
    }

    /// How many rows are marked.
    pub fn marked_count(&self) -> usize {
        self.marks.as_ref().map_or(0, Marks::count)
    }

    /// Whether a row is.
    pub fn is_marked(&self, row: &T) -> bool {
        let marks = self.marks.as_ref().filter(|marks| marks.count() > 0);
        marks.is_some_and(|marks| marks.has(&(self.spec.name)(row)))
    }

    /// The rows that are, in their order, also those that the filter leaves out.
    pub fn marked<'a>(&self, rows: &'a [T]) -> Vec<&'a T> {
        rows.iter().filter(|row| self.is_marked(row)).collect()
    }

    /// Nothing is marked any more.
    pub fn unmark(&mut self) {
        if let Some(marks) = &mut self.marks {
            marks.clear();
        }
    }

    /// Other rows than before: marks of those that are gone go with them. A daemon that has just started again names
    /// nobody at first, of whom nobody is gone.
    pub fn heard(&mut self, rows: &[T]) {
        let spec = self.spec;
        if rows.is_empty() {
            return;
        }
        if let Some(marks) = self.marks.as_mut().filter(|marks| marks.count() > 0) {
            let names: BTreeSet<String> = rows.iter().map(spec.name).collect();
            marks.keep(&names);
        }
    }

    /// Ordered from the beginning.
    pub fn sorted(mut self, column: usize, down: bool) -> Table<T> {
        self.view = View::sorted(column, down);
        self
    }

    /// Its name.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// What is typed into its filter.
    pub fn typing(&self) -> Option<(&'static str, &str)> {
        self.typing.then_some(("filter", self.view.filter.as_str()))
    }

    /// Only rows with these words are shown.
    pub fn filter(&self) -> &str {
        &self.view.filter
    }

    /// Whether the mouse is on it.
    pub fn is_at(&self, spot: Spot) -> bool {
        match spot {
            Spot::Row(id, _) | Spot::Head(id, _) | Spot::Body(id) => id == self.id,
            Spot::Tab(_) | Spot::Text | Spot::Cell { .. } => false,
        }
    }

    /// Takes an input, if it is one for a table.
    pub fn on(&mut self, input: &Input, rows: &[T], sight: &Sight) -> Option<Turned> {
        match *input {
            Input::Shown => {
                self.typing = false;
                Some(Turned::Anew)
            }
            Input::Key(code) if self.typing => {
                self.on_typed(code);
                Some(Turned::Typed)
            }
            Input::Key(code) => self.on_key(code, rows, sight),
            Input::Click(Spot::Row(id, at)) if id == self.id => {
                Some(self.select(rows, sight.look, |view, names| view.choose(names, at)))
            }
            Input::Click(Spot::Head(id, column)) if id == self.id => {
                self.view.sort_by(column);
                Some(Turned::No)
            }
            Input::Wheel(spot, by) if self.is_at(spot) => Some(self.step(rows, sight.look, by)),
            _ => None,
        }
    }

    /// Takes a key for marks; none: it is none.
    fn on_mark(&mut self, code: KeyCode, rows: &[T], sight: &Sight) -> Option<Turned> {
        let marks = self.marks.as_ref()?;
        match code {
            // In a recording it holds that, and nothing can be done with marks.
            KeyCode::Char(' ') => {
                let name = self.chosen(rows, sight.look).map(self.spec.name);
                if let (Some(marks), Some(name)) = (&mut self.marks, name) {
                    marks.turn(name);
                }
                Some(self.step(rows, sight.look, 1))
            }
            KeyCode::Char('a') => {
                let names = self.names(rows, sight.look);
                if let Some(marks) = &mut self.marks {
                    marks.add(names);
                }
                Some(Turned::No)
            }
            KeyCode::Esc if marks.count() > 0 => {
                self.unmark();
                Some(Turned::No)
            }
            _ => None,
        }
    }

    fn on_key(&mut self, code: KeyCode, rows: &[T], sight: &Sight) -> Option<Turned> {
        if let Some(turned) = self.on_mark(code, rows, sight) {
            return Some(turned);
        }
        let page = sight.drawn.room(self.id).saturating_sub(1).max(1) as isize;
        let columns = self.spec.columns.len();
        let by = match code {
            KeyCode::Up | KeyCode::Char('k') => -1,
            KeyCode::Down | KeyCode::Char('j') => 1,
            KeyCode::PageUp => -page,
            KeyCode::PageDown => page,
            KeyCode::Home | KeyCode::Char('g') => isize::MIN,
            KeyCode::End | KeyCode::Char('G') => isize::MAX,
            other => {
                match other {
                    KeyCode::Char('/') => self.typing = true,
                    KeyCode::Esc => self.view.filter.clear(),
                    KeyCode::Char('>') => self.view.sort_next(columns, 1),
                    KeyCode::Char('<') => self.view.sort_next(columns, -1),
                    KeyCode::Char('=') => self.view.turn(),
                    _ => return None,
                }
                return Some(Turned::No);
            }
        };
        Some(self.step(rows, sight.look, by))
    }

    fn on_typed(&mut self, code: KeyCode) {
        self.typing = edit_until_done(&mut self.view.filter, code);
    }

    /// Selects the row of this name, if it is there.
    pub fn choose(&mut self, rows: &[T], look: Look, name: &str) {
        let names = self.names(rows, look);
        if let Some(at) = names.iter().position(|other| other == name) {
            self.view.choose(&names, at);
        }
    }

    fn step(&mut self, rows: &[T], look: Look, by: isize) -> Turned {
        self.select(rows, look, |view, names| view.step(names, by))
    }

    fn select(
        &mut self,
        rows: &[T],
        look: Look,
        change: impl FnOnce(&mut View, &[String]),
    ) -> Turned {
        let names = self.names(rows, look);
        let before = self.view.position(&names);
        change(&mut self.view, &names);
        match self.view.position(&names) == before {
            true => Turned::No,
            false => Turned::Anew,
        }
    }

    /// Names of the rows as they are shown.
    pub fn names(&self, rows: &[T], look: Look) -> Vec<String> {
        let order = self.spec.order(&self.view, rows, look);
        self.spec.names(&order, rows)
    }

    /// The selected row.
    pub fn chosen<'a>(&self, rows: &'a [T], look: Look) -> Option<&'a T> {
        rows.get(self.chosen_row(rows, look)?)
    }

    /// Where the selected row stands among all of them.
    pub fn chosen_row(&self, rows: &[T], look: Look) -> Option<usize> {
        // The order matters only once the row is gone, or is not shown.
        let found = match self.view.filter.is_empty() {
            true => self.row_named(rows),
            false => None,
        };
        found.or_else(|| {
            let (order, at) = self.order(self.spec, rows, look);
            order.get(at?).copied()
        })
    }

    /// The row that has the selected name, wherever it is.
    fn row_named(&self, rows: &[T]) -> Option<usize> {
        let chosen = self.view.chosen()?;
        let is = |at: usize| (self.spec.name)(&rows[at]) == chosen;
        let at = self.view.position_of(rows.len(), |at, _| is(at))?;
        is(at).then_some(at)
    }

    /// The rows that the filter leaves, as they stand among all of them.
    pub fn left(&self, rows: &[T]) -> Vec<usize> {
        self.spec.left(&self.view, rows)
    }

    /// Selects the row that stands there among all of them, where the filter leaves it.
    pub fn choose_row(&mut self, rows: &[T], row: usize, look: Look) {
        let order = self.spec.order(&self.view, rows, look);
        if let Some(at) = order.iter().position(|&other| other == row) {
            self.view.point((self.spec.name)(&rows[row]), at);
        }
    }

    /// The rows as this kind of table shows them, as indices, and where the selected one is.
    pub fn order(&self, spec: &Spec<T>, rows: &[T], look: Look) -> (Vec<usize>, Option<usize>) {
        let order = spec.order(&self.view, rows, look);
        let at = spec.position(&self.view, &order, rows);
        (order, at)
    }

    /// Draws it.
    pub fn draw(&self, rows: &[T], sight: &Sight, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        self.draw_as(self.spec, rows, sight, area, buf, drawn);
    }

    /// Draws it with other columns.
    pub fn draw_as(
        &self,
        spec: &Spec<T>,
        rows: &[T],
        sight: &Sight,
        area: Rect,
        buf: &mut Buffer,
        drawn: &mut Drawn,
    ) {
        let is_marked = |row: &T| self.is_marked(row);
        let of = (self.id, spec, &self.view);
        grid::draw(sight, of, (rows, &is_marked), area, buf, drawn);
    }
}
