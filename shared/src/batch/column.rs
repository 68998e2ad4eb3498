//! Columns of a batch.
use std::fmt;

/// Lists of different lengths, one per sample, in one allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Jagged<T> {
    values: Vec<T>,
    /// End of each row in `values`.
    ends: Vec<usize>,
}

impl<T> Default for Jagged<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            ends: Vec::new(),
        }
    }
}

impl<T: Clone> Jagged<T> {
    /// Number of rows (samples).
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// A sample's list; empty when there is no such sample.
    pub fn row(&self, sample: usize) -> &[T] {
        let Some(&end) = self.ends.get(sample) else {
            return &[];
        };
        let start = sample
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        self.values
            .get(start.copied().unwrap_or(0)..end)
            .unwrap_or(&[])
    }

    /// Every sample's list, in order.
    pub fn rows(&self) -> impl Iterator<Item = &[T]> {
        (0..self.len()).map(|sample| self.row(sample))
    }

    /// All rows' values, one after the other.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Appends a row.
    pub fn push(&mut self, row: &[T]) {
        self.values.extend_from_slice(row);
        self.ends.push(self.values.len());
    }
}

impl<T: Clone, R: AsRef<[T]>> FromIterator<R> for Jagged<T> {
    fn from_iter<I: IntoIterator<Item = R>>(rows: I) -> Self {
        let mut jagged = Self::default();
        rows.into_iter().for_each(|row| jagged.push(row.as_ref()));
        jagged
    }
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `u32` per token.
    U32Tokens,
    /// `f32` per token.
    F32Tokens,
    /// `bool` per token.
    BoolTokens,
    /// `f64` per sample.
    F64,
    /// `u64` per sample.
    U64,
    /// Text per sample.
    Text,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::U32Tokens => "u32 per token",
            Kind::F32Tokens => "f32 per token",
            Kind::BoolTokens => "bool per token",
            Kind::F64 => "f64 per sample",
            Kind::U64 => "u64 per sample",
            Kind::Text => "text per sample",
        })
    }
}

/// One entry per sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Token ids.
    U32Tokens(Jagged<u32>),
    /// Logprobs and the like.
    F32Tokens(Jagged<f32>),
    /// Masks over tokens.
    BoolTokens(Jagged<bool>),
    /// Rewards, advantages.
    F64(Vec<f64>),
    /// Keys, counts, versions.
    U64(Vec<u64>),
    /// Answers, names.
    Text(Vec<String>),
}

/// Does the same with the content of whatever column it is.
macro_rules! each {
    ($column:expr, $values:ident => $do:expr) => {
        match $column {
            Column::U32Tokens($values) => $do,
            Column::F32Tokens($values) => $do,
            Column::BoolTokens($values) => $do,
            Column::F64($values) => $do,
            Column::U64($values) => $do,
            Column::Text($values) => $do,
        }
    };
}

impl Column {
    /// Number of samples.
    pub fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its type.
    pub fn kind(&self) -> Kind {
        match self {
            Column::U32Tokens(_) => Kind::U32Tokens,
            Column::F32Tokens(_) => Kind::F32Tokens,
            Column::BoolTokens(_) => Kind::BoolTokens,
            Column::F64(_) => Kind::F64,
            Column::U64(_) => Kind::U64,
            Column::Text(_) => Kind::Text,
        }
    }

    /// Tokens of a sample; none for scalar columns.
    pub(super) fn row_len(&self, sample: usize) -> Option<usize> {
        match self {
            Column::U32Tokens(values) => Some(values.row(sample).len()),
            Column::F32Tokens(values) => Some(values.row(sample).len()),
            Column::BoolTokens(values) => Some(values.row(sample).len()),
            Column::F64(_) | Column::U64(_) | Column::Text(_) => None,
        }
    }

    /// The entries at these places, in their order; all must exist.
    pub(super) fn pick(&self, places: &[usize]) -> Column {
        fn rows<T: Clone>(values: &Jagged<T>, places: &[usize]) -> Jagged<T> {
            places.iter().map(|&at| values.row(at)).collect()
        }
        fn scalars<T: Clone>(values: &[T], places: &[usize]) -> Vec<T> {
            places
                .iter()
                .filter_map(|&at| values.get(at).cloned())
                .collect()
        }
        match self {
            Column::U32Tokens(values) => Column::U32Tokens(rows(values, places)),
            Column::F32Tokens(values) => Column::F32Tokens(rows(values, places)),
            Column::BoolTokens(values) => Column::BoolTokens(rows(values, places)),
            Column::F64(values) => Column::F64(scalars(values, places)),
            Column::U64(values) => Column::U64(scalars(values, places)),
            Column::Text(values) => Column::Text(scalars(values, places)),
        }
    }

    /// Appends another column of the same type; false (and nothing done) for another type.
    pub(super) fn append(&mut self, other: &Column) -> bool {
        fn rows<T: Clone>(to: &mut Jagged<T>, from: &Jagged<T>) {
            from.rows().for_each(|row| to.push(row));
        }
        match (self, other) {
            (Column::U32Tokens(to), Column::U32Tokens(from)) => rows(to, from),
            (Column::F32Tokens(to), Column::F32Tokens(from)) => rows(to, from),
            (Column::BoolTokens(to), Column::BoolTokens(from)) => rows(to, from),
            (Column::F64(to), Column::F64(from)) => to.extend_from_slice(from),
            (Column::U64(to), Column::U64(from)) => to.extend_from_slice(from),
            (Column::Text(to), Column::Text(from)) => to.extend_from_slice(from),
            _ => return false,
        }
        true
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),*) => {$(
        impl From<$type> for Column {
            fn from(values: $type) -> Self {
                Column::$variant(values)
            }
        }
    )*};
}

from!(
    Jagged<u32> => U32Tokens, Jagged<f32> => F32Tokens, Jagged<bool> => BoolTokens,
    Vec<f64> => F64, Vec<u64> => U64, Vec<String> => Text
);
