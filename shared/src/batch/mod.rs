//! The driver's batch: samples as rows, in columns of three kinds.
//!
//! | kind | per sample | types |
//! | --- | --- | --- |
//! | token columns | a list, of another length in each sample (jagged) | `u32`, `f32`, `bool` |
//! | scalar columns | one value | `f64`, `u64`, text |
//! | metadata | one value for the whole batch | `f64`, `u64`, text |
//!
//! Every operation returns a new batch; every mismatch is a [`BatchError`] that names the column and
//! both lengths or types. Nothing is padded to the longest sample, nothing is broadcast.

mod column;
mod error;
mod ops;

#[cfg(test)]
mod tests;

pub use column::{Column, Jagged, Kind};
pub use error::BatchError;
pub use ops::Repeat;

use std::collections::BTreeMap;

/// A value that holds for the whole batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Meta {
    /// A number.
    F64(f64),
    /// A count, a step, a version.
    U64(u64),
    /// A name.
    Text(String),
}

/// Samples in columns; see the module's documentation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    len: usize,
    columns: BTreeMap<String, Column>,
    meta: BTreeMap<String, Meta>,
}

impl Batch {
    /// `len` samples without any column.
    pub fn new(len: usize) -> Self {
        Self {
            len,
            columns: BTreeMap::new(),
            meta: BTreeMap::new(),
        }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a column, one entry per sample. A name that is there already is refused.
    pub fn insert(
        &mut self,
        name: &str,
        column: impl Into<Column>,
    ) -> Result<&mut Self, BatchError> {
        let (column, name) = (column.into(), name.to_owned());
        if column.len() != self.len {
            let (expected, got) = (self.len, column.len());
            return Err(BatchError::Length {
                column: name,
                expected,
                got,
            });
        }
        if self.columns.contains_key(&name) {
            return Err(BatchError::Exists { column: name });
        }
        self.columns.insert(name, column);
        Ok(self)
    }

    /// [`Self::insert`] for building a batch in one expression.
    pub fn with(mut self, name: &str, column: impl Into<Column>) -> Result<Self, BatchError> {
        self.insert(name, column)?;
        Ok(self)
    }

    /// Takes a column out.
    pub fn remove(&mut self, name: &str) -> Result<Column, BatchError> {
        self.columns.remove(name).ok_or_else(|| self.missing(name))
    }

    /// Sets a metadata value.
    pub fn set_meta(&mut self, key: &str, value: Meta) {
        self.meta.insert(key.to_owned(), value);
    }

    /// A metadata value, if set.
    pub fn meta(&self, key: &str) -> Option<&Meta> {
        self.meta.get(key)
    }

    /// The columns' names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.keys().map(String::as_str)
    }

    /// A column of any type.
    pub fn column(&self, name: &str) -> Result<&Column, BatchError> {
        self.columns.get(name).ok_or_else(|| self.missing(name))
    }

    /// Token ids.
    pub fn u32_tokens(&self, name: &str) -> Result<&Jagged<u32>, BatchError> {
        match self.column(name)? {
            Column::U32Tokens(values) => Ok(values),
            other => Err(wrong_kind(name, Kind::U32Tokens, other)),
        }
    }

    /// A number per token.
    pub fn f32_tokens(&self, name: &str) -> Result<&Jagged<f32>, BatchError> {
        match self.column(name)? {
            Column::F32Tokens(values) => Ok(values),
            other => Err(wrong_kind(name, Kind::F32Tokens, other)),
        }
    }

    /// A mask over tokens.
    pub fn bool_tokens(&self, name: &str) -> Result<&Jagged<bool>, BatchError> {
        match self.column(name)? {
            Column::BoolTokens(values) => Ok(values),
            other => Err(wrong_kind(name, Kind::BoolTokens, other)),
        }
    }

    /// A number per sample.
    pub fn f64s(&self, name: &str) -> Result<&[f64], BatchError> {
        match self.column(name)? {
            Column::F64(values) => Ok(values),
            other => Err(wrong_kind(name, Kind::F64, other)),
        }
    }

    /// A count or key per sample.
    pub fn u64s(&self, name: &str) -> Result<&[u64], BatchError> {
        match self.column(name)? {
            Column::U64(values) => Ok(values),
            other => Err(wrong_kind(name, Kind::U64, other)),
        }
    }

    /// A text per sample.
    pub fn texts(&self, name: &str) -> Result<&[String], BatchError> {
        match self.column(name)? {
            Column::Text(values) => Ok(values),
            other => Err(wrong_kind(name, Kind::Text, other)),
        }
    }

    /// Requires that a token column has, in every sample, `shorter_by` entries fewer than another:
    /// 0 for one per token, 1 for one per token after the first.
    pub fn require_aligned(
        &self,
        name: &str,
        to: &str,
        shorter_by: usize,
    ) -> Result<(), BatchError> {
        let (this, other) = (self.column(name)?, self.column(to)?);
        for sample in 0..self.len {
            let tokens = other.row_len(sample).ok_or_else(|| not_tokens(to, other))?;
            let got = this.row_len(sample).ok_or_else(|| not_tokens(name, this))?;
            let expected = tokens.saturating_sub(shorter_by);
            if got != expected {
                let (column, to) = (name.to_owned(), to.to_owned());
                return Err(BatchError::Row {
                    column,
                    to,
                    sample,
                    expected,
                    got,
                });
            }
        }
        Ok(())
    }

    fn missing(&self, name: &str) -> BatchError {
        let known = self.columns.keys().cloned().collect();
        BatchError::Missing {
            column: name.to_owned(),
            known,
        }
    }
}

fn wrong_kind(name: &str, expected: Kind, got: &Column) -> BatchError {
    BatchError::Kind {
        column: name.to_owned(),
        expected,
        got: got.kind(),
    }
}

fn not_tokens(name: &str, got: &Column) -> BatchError {
    BatchError::NotTokens {
        column: name.to_owned(),
        got: got.kind(),
    }
}
