//! Operations on batches: all of them pick rows or join columns.
use super::error::BatchError;
use super::{Batch, Meta};
use std::collections::BTreeMap;

/// How a batch is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// a a b b: the responses of a group stand together.
    Interleaved,
    /// a b a b.
    Tiled,
}

impl Batch {
    /// The samples at these places, in their order; a place may occur more than once.
    pub fn index(&self, places: &[usize]) -> Result<Batch, BatchError> {
        if let Some(&index) = places.iter().find(|&&at| at >= self.len) {
            return Err(BatchError::Index {
                index,
                len: self.len,
            });
        }
        Ok(self.pick(places))
    }

    /// The samples where the mask is true.
    pub fn mask(&self, mask: &[bool]) -> Result<Batch, BatchError> {
        if mask.len() != self.len {
            return Err(BatchError::Mask {
                len: self.len,
                got: mask.len(),
            });
        }
        let places: Vec<usize> = (0..self.len).filter(|&at| mask[at]).collect();
        Ok(self.pick(&places))
    }

    /// `parts` runs of the same number of samples, in order. The samples must divide: see
    /// [`Self::pad_to_divisor`].
    pub fn chunk(&self, parts: usize) -> Result<Vec<Batch>, BatchError> {
        if parts == 0 || !self.len.is_multiple_of(parts) {
            return Err(BatchError::NotDivisible {
                len: self.len,
                parts,
            });
        }
        let size = self.len / parts;
        let run = |part: usize| (part * size..(part + 1) * size).collect::<Vec<_>>();
        Ok((0..parts).map(|part| self.pick(&run(part))).collect())
    }

    /// All samples of all parts, in order. Columns must be the same by name and type, metadata
    /// equal.
    pub fn concat(parts: &[Batch]) -> Result<Batch, BatchError> {
        let (first, rest) = parts.split_first().ok_or(BatchError::NoParts)?;
        let mut whole = first.clone();
        for (at, part) in rest.iter().enumerate() {
            let extra = part
                .columns
                .keys()
                .find(|name| !whole.columns.contains_key(*name));
            if let Some(column) = extra.cloned() {
                return Err(BatchError::Schema {
                    column,
                    part: 0,
                    samples: first.len,
                });
            }
            for (name, column) in &mut whole.columns {
                let (part_at, samples, column_name) = (at + 1, part.len, name.clone());
                let other = part.columns.get(name).ok_or(BatchError::Schema {
                    column: column_name,
                    part: part_at,
                    samples,
                })?;
                if !column.append(other) {
                    let (expected, got) = (column.kind(), other.kind());
                    return Err(BatchError::Kind {
                        column: name.clone(),
                        expected,
                        got,
                    });
                }
            }
            if let Some(key) = differing(&whole.meta, &part.meta) {
                return Err(BatchError::Meta { key });
            }
            whole.len += part.len;
        }
        Ok(whole)
    }

    /// Appends copies of its first samples until `divisor` divides their number. Returns how many
    /// were added; [`Self::truncate`] takes them away again. An empty batch stays empty.
    pub fn pad_to_divisor(&self, divisor: usize) -> Result<(Batch, usize), BatchError> {
        if divisor == 0 {
            return Err(BatchError::NotDivisible {
                len: self.len,
                parts: 0,
            });
        }
        let padding = self.len.next_multiple_of(divisor) - self.len;
        let places: Vec<usize> = (0..self.len + padding)
            .map(|at| at % self.len.max(1))
            .collect();
        Ok((self.pick(&places), padding))
    }

    /// The first `len` samples, or all when there are fewer.
    pub fn truncate(&self, len: usize) -> Batch {
        self.pick(&(0..len.min(self.len)).collect::<Vec<_>>())
    }

    /// Every sample `times` times.
    pub fn repeat(&self, times: usize, order: Repeat) -> Batch {
        let total = self.len * times;
        let places: Vec<usize> = match order {
            Repeat::Interleaved => (0..total).map(|at| at / times.max(1)).collect(),
            Repeat::Tiled => (0..total).map(|at| at % self.len.max(1)).collect(),
        };
        self.pick(&places)
    }

    /// Only these columns; metadata stay.
    pub fn select(&self, names: &[&str]) -> Result<Batch, BatchError> {
        let mut selected = Batch {
            len: self.len,
            meta: self.meta.clone(),
            ..Batch::default()
        };
        for name in names {
            selected
                .columns
                .insert((*name).to_owned(), self.column(name)?.clone());
        }
        Ok(selected)
    }

    /// The columns of both, for the same samples. What both have must be equal.
    pub fn union(&self, other: &Batch) -> Result<Batch, BatchError> {
        if self.len != other.len {
            let column = other.columns.keys().next().cloned().unwrap_or_default();
            return Err(BatchError::Union {
                column,
                expected: self.len,
                got: other.len,
            });
        }
        let mut united = self.clone();
        for (name, column) in &other.columns {
            let same = united
                .columns
                .entry(name.clone())
                .or_insert_with(|| column.clone());
            if same.kind() != column.kind() {
                let (expected, got) = (same.kind(), column.kind());
                return Err(BatchError::Kind {
                    column: name.clone(),
                    expected,
                    got,
                });
            }
            if same != column {
                return Err(BatchError::Conflict {
                    column: name.clone(),
                    samples: self.len,
                });
            }
        }
        for (key, value) in &other.meta {
            if united
                .meta
                .entry(key.clone())
                .or_insert_with(|| value.clone())
                != value
            {
                return Err(BatchError::Meta { key: key.clone() });
            }
        }
        Ok(united)
    }

    /// The samples at these places, which must exist.
    fn pick(&self, places: &[usize]) -> Batch {
        let columns = self
            .columns
            .iter()
            .map(|(name, c)| (name.clone(), c.pick(places)))
            .collect();
        Batch {
            len: places.len(),
            columns,
            meta: self.meta.clone(),
        }
    }
}

fn differing(a: &BTreeMap<String, Meta>, b: &BTreeMap<String, Meta>) -> Option<String> {
    a.keys()
        .chain(b.keys())
        .find(|key| a.get(*key) != b.get(*key))
        .cloned()
}
