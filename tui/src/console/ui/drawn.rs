//! What a frame showed where: the mouse is held against it, and the next frame scrolls from there.
use crate::console::names::ScreenId;
use crate::console::names::TableId;
use ratatui::layout::{Position, Rect};

/// A place that the mouse can be at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// The name of a screen.
    Tab(ScreenId),
    /// A row of a table, counted in its present order.
    Row(TableId, usize),
    /// The heading of a column.
    Head(TableId, usize),
    /// Anywhere on a table.
    Body(TableId),
    /// Text that scrolls.
    Text,
    /// A cell of a field of them, counted from its upper left corner.
    Cell {
        /// To the right.
        x: u16,
        /// Down.
        y: u16,
    },
}

impl Spot {
    /// The same at a place within its area.
    fn within(self, x: u16, y: u16) -> Spot {
        match self {
            Spot::Cell { .. } => Spot::Cell { x, y },
            other => other,
        }
    }
}

/// The rows of a table that a frame showed.
#[derive(Clone, Copy, Debug)]
struct Rows {
    of: TableId,
    first: usize,
    room: usize,
}

/// What a frame showed where.
#[derive(Clone, Debug, Default)]
pub struct Drawn {
    spots: Vec<(Rect, Spot)>,
    /// Of tables that the frame did not show, what the last one did that showed them.
    tables: Vec<Rows>,
    /// Lines of the dialog below its last one.
    left: usize,
    /// Columns and lines of the field that was shown last.
    field: (u16, u16),
    /// Cells and lines of the text that is read, where any was.
    page: Option<(u16, u16)>,
}

impl Drawn {
    /// Of the frame after this one, before anything is drawn.
    pub fn next(&self) -> Drawn {
        Drawn {
            tables: self.tables.clone(),
            field: self.field,
            ..Drawn::default()
        }
    }

    /// What was at a cell; what was drawn last lies on top.
    pub fn at(&self, x: u16, y: u16) -> Option<Spot> {
        let here = Position { x, y };
        let mut found = self
            .spots
            .iter()
            .rev()
            .filter(|(area, _)| area.contains(here));
        let (area, spot) = found.next()?;
        Some(spot.within(x - area.x, y - area.y))
    }

    fn rows(&self, of: TableId) -> Option<&Rows> {
        self.tables.iter().find(|rows| rows.of == of)
    }

    /// The first row of a table.
    pub fn first(&self, of: TableId) -> usize {
        self.rows(of).map_or(0, |rows| rows.first)
    }

    /// How many rows of a table there was room for.
    pub fn room(&self, of: TableId) -> usize {
        self.rows(of).map_or(0, |rows| rows.room)
    }

    /// Columns and lines of a field of cells.
    pub fn field_size(&self) -> (u16, u16) {
        self.field
    }

    /// How many lines of a dialog are still to come.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Cells of a line, and lines, that there was room for in the text that is read; none: the frame showed none.
    pub fn page(&self) -> Option<(u16, u16)> {
        self.page
    }

    /// Something lies here.
    pub fn spot(&mut self, area: Rect, spot: Spot) {
        self.spots.push((area, spot));
    }

    /// A table begins with this row, and there is room for so many.
    pub fn table(&mut self, of: TableId, first: usize, room: usize) {
        self.tables.retain(|rows| rows.of != of);
        self.tables.push(Rows { of, first, room });
    }

    /// A field of cells lies here.
    pub fn field(&mut self, area: Rect) {
        self.field = (area.width, area.height);
        self.spot(area, Spot::Cell { x: 0, y: 0 });
    }

    /// There is room for text that is read: cells of a line, and lines.
    pub fn read_on(&mut self, width: u16, height: u16) {
        self.page = Some((width, height));
    }

    /// So many lines of the dialog are out of sight.
    pub fn below(&mut self, left: usize) {
        self.left = left;
    }
}
