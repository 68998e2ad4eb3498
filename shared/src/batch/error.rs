//! Why a batch operation is refused.
use super::column::Kind;

/// A mismatch of shape or schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// A column with another number of samples.
    #[error("column `{column}` has {got} samples, the batch {expected}")]
    Length {
        /// The column.
        column: String,
        /// Samples of the batch.
        expected: usize,
        /// Entries of the column.
        got: usize,
    },
    /// A token column that does not fit another token by token.
    #[error(
        "column `{column}` has {got} entries in sample {sample}, expected {expected} to fit `{to}`"
    )]
    Row {
        /// The column.
        column: String,
        /// The column it must fit.
        to: String,
        /// The sample.
        sample: usize,
        /// Entries it must have there.
        expected: usize,
        /// Entries it has there.
        got: usize,
    },
    /// A column of another type.
    #[error("column `{column}` is {got}, expected {expected}")]
    Kind {
        /// The column.
        column: String,
        /// The type asked for.
        expected: Kind,
        /// Its type.
        got: Kind,
    },
    /// A scalar column where one per token is due.
    #[error("column `{column}` is {got}, expected one entry per token")]
    NotTokens {
        /// The column.
        column: String,
        /// Its type.
        got: Kind,
    },
    /// No such column.
    #[error("there is no column `{column}`; there are {}", known.join(", "))]
    Missing {
        /// The column.
        column: String,
        /// The columns there are.
        known: Vec<String>,
    },
    /// A column of that name is there already.
    #[error("there is a column `{column}` already")]
    Exists {
        /// The column.
        column: String,
    },
    /// Parts of a concatenation have different columns.
    #[error("column `{column}` is missing in part {part} ({samples} samples)")]
    Schema {
        /// The column.
        column: String,
        /// The part that lacks it.
        part: usize,
        /// Samples of that part.
        samples: usize,
    },
    /// Both batches of a union have the column, with different content.
    #[error("column `{column}` differs between the two batches of {samples} samples")]
    Conflict {
        /// The column.
        column: String,
        /// Samples of each.
        samples: usize,
    },
    /// The batches of a union have different numbers of samples.
    #[error("cannot unite {expected} samples with {got} (column `{column}`)")]
    Union {
        /// The first column of the other batch, or empty when it has none.
        column: String,
        /// Samples of this batch.
        expected: usize,
        /// Samples of the other.
        got: usize,
    },
    /// Metadata differ between batches that are put together.
    #[error("metadata `{key}` differs between the batches")]
    Meta {
        /// The key.
        key: String,
    },
    /// No such sample.
    #[error("there is no sample {index}; the batch has {len}")]
    Index {
        /// The index.
        index: usize,
        /// Samples of the batch.
        len: usize,
    },
    /// A mask of another length.
    #[error("the mask has {got} entries, the batch {len} samples")]
    Mask {
        /// Samples of the batch.
        len: usize,
        /// Entries of the mask.
        got: usize,
    },
    /// A batch that cannot be cut into equal parts.
    #[error("{len} samples cannot be cut into {parts} equal parts")]
    NotDivisible {
        /// Samples.
        len: usize,
        /// Parts asked for.
        parts: usize,
    },
    /// Nothing to concatenate.
    #[error("no batches to concatenate")]
    NoParts,
}
