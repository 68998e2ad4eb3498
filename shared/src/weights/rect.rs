//! Rectangles of a tensor's bytes, which is what ranks hold, and what two of them share.
//!
//! ```text
//!  one tensor as rows of `row_bytes`            a flat shard of it is a rectangle of one row
//!   row 0  |.......|#####|......|               |..............########...............|
//!   row 1  |.......|#####|......|
//!   row 2  |.......|#####|......|    held packed: 3 x width bytes, row after row
//!           first_col  width
//! ```
//! What a row cut and a column cut of one tensor share is at most a partial row, whole rows at a
//! stride, and a partial row: the number of [`Shared`] parts does not grow with the tensor.

/// Bytes of one tensor: `rows` of its rows from `first_row`, of each `width` bytes from `first_col`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rect {
    /// The tensor is seen as rows of so many bytes.
    pub row_bytes: u64,
    /// First row.
    pub first_row: u64,
    /// Number of rows.
    pub rows: u64,
    /// First byte within a row.
    pub first_col: u64,
    /// Bytes of each row.
    pub width: u64,
}

/// A part of two rectangles: `count` pieces of `len` bytes, at strides in either's packed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// First byte among the packed bytes of the one.
    pub one: u64,
    /// Bytes from a piece to the next there.
    pub one_stride: u64,
    /// First byte among the packed bytes of the other.
    pub other: u64,
    /// Bytes from a piece to the next there.
    pub other_stride: u64,
    /// Bytes of a piece.
    pub len: u64,
    /// Pieces.
    pub count: u64,
}

impl Rect {
    /// The bytes `from..to` of a tensor of `total` bytes.
    pub fn flat(total: u64, from: u64, to: u64) -> Self {
        Self {
            row_bytes: total,
            first_row: 0,
            rows: 1,
            first_col: from,
            width: to - from,
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.rows * self.width
    }

    /// Whether it lies within a tensor of `total` bytes and nothing overflows.
    pub fn fits(&self, total: u64) -> bool {
        let rows = self.first_row.checked_add(self.rows);
        let end = rows.and_then(|rows| rows.checked_mul(self.row_bytes));
        let cols = self.first_col.checked_add(self.width);
        end.is_some_and(|end| end <= total) && cols.is_some_and(|cols| cols <= self.row_bytes)
    }

    /// The same bytes in the one form that equal sets of bytes have: whole rows, or part of one row,
    /// are a single row of the whole tensor.
    #[must_use]
    pub fn normal(self, total: u64) -> Self {
        if self.rows != 1 && self.width != self.row_bytes {
            return self;
        }
        let from = self.first_row * self.row_bytes + self.first_col;
        Self::flat(total, from, from + self.bytes())
    }

    /// First byte of the tensor that it holds.
    pub fn start(&self) -> u64 {
        self.first_row * self.row_bytes + self.first_col
    }

    /// The byte after the last that it holds.
    pub fn end(&self) -> u64 {
        self.start() + (self.rows.max(1) - 1) * self.row_bytes + self.width
    }

    /// The rectangles that hold the packed bytes `from..to` of this one, in order: at most three.
    pub fn packed(&self, from: u64, to: u64) -> Vec<Self> {
        let (width, mut at, mut parts) = (self.width.max(1), from, Vec::new());
        while at < to {
            let (row, col) = (at / width, at % width);
            let whole = (to - at) / width;
            let (rows, len) = match col == 0 && whole > 0 {
                true => (whole, width),
                false => (1, (width - col).min(to - at)),
            };
            parts.push(Self {
                row_bytes: self.row_bytes,
                first_row: self.first_row + row,
                rows,
                first_col: self.first_col + col,
                width: len,
            });
            at += rows * len;
        }
        parts
    }

    /// What two rectangles of one tensor have in common.
    pub fn shared(&self, other: &Self) -> Vec<Shared> {
        let mut found = Vec::new();
        if self.row_bytes == other.row_bytes {
            found.extend(self.same_rows(other));
        } else if self.row_bytes > other.row_bytes {
            self.each_row(other, &mut found);
        } else {
            other.each_row(self, &mut found);
            for shared in &mut found {
                *shared = shared.swapped();
            }
        }
        found
    }

    fn same_rows(&self, other: &Self) -> Option<Shared> {
        let row = self.first_row.max(other.first_row);
        let rows = (self.first_row + self.rows).min(other.first_row + other.rows);
        let col = self.first_col.max(other.first_col);
        let cols = (self.first_col + self.width).min(other.first_col + other.width);
        let place = |rect: &Self| (row - rect.first_row) * rect.width + (col - rect.first_col);
        (row < rows && col < cols).then(|| Shared {
            one: place(self),
            one_stride: self.width,
            other: place(other),
            other_stride: other.width,
            len: cols - col,
            count: rows - row,
        })
    }

    /// Row by row of the rectangle with the longer rows: there are few.
    fn each_row(&self, fine: &Self, found: &mut Vec<Shared>) {
        let (start, end) = (self.start(), self.end());
        if fine.end() <= start || end <= fine.start() {
            return;
        }
        let first = fine.start().saturating_sub(start + self.width - 1);
        let first = first.div_ceil(self.row_bytes);
        let last = ((fine.end() - 1).min(end - 1) - start) / self.row_bytes;
        for row in first..=last.min(self.rows - 1) {
            let from = start + row * self.row_bytes;
            fine.interval(from, from + self.width, row * self.width, found);
        }
    }

    /// What it shares with the tensor's bytes `from..to`, which are packed at `packed`.
    fn interval(&self, from: u64, to: u64, packed: u64, found: &mut Vec<Shared>) {
        let base = self.start();
        let first = match from < base + self.width {
            true => 0,
            false => (from - base - self.width) / self.row_bytes + 1,
        };
        let end = match to <= base {
            true => 0,
            false => ((to - 1 - base) / self.row_bytes + 1).min(self.rows),
        };
        let mut row = first;
        while row < end {
            let start = base + row * self.row_bytes;
            let (lo, hi) = (start.max(from), (start + self.width).min(to));
            let last_whole = start + (end - 1 - row) * self.row_bytes + self.width <= to;
            let whole = end - row - u64::from(!last_whole);
            let count = match hi - lo == self.width {
                true => whole.max(1),
                false => 1,
            };
            found.push(Shared {
                one: packed + (lo - from),
                one_stride: self.row_bytes,
                other: row * self.width + (lo - start),
                other_stride: self.width,
                len: hi - lo,
                count,
            });
            row += count;
        }
    }
}

impl Shared {
    fn swapped(self) -> Self {
        Self {
            one: self.other,
            one_stride: self.other_stride,
            other: self.one,
            other_stride: self.one_stride,
            ..self
        }
    }
}
