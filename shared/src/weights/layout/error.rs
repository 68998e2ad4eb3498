//! Why a layout is refused.

/// Why a layout cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A tensor's type, shape and size do not agree, or its name occurs twice.
    #[error("tensor `{name}` of {dtype} {shape:?} cannot have {bytes} bytes, or occurs twice")]
    Tensor {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: String,
        /// Its shape.
        shape: Vec<u64>,
        /// Its size.
        bytes: u64,
    },
    /// Cuts that do not ascend from the beginning to the end of what they cut.
    #[error("{what} cannot be cut at {cuts:?}: they do not ascend from 0 to {end}")]
    Cuts {
        /// A tensor, or the flat buffer.
        what: String,
        /// Where it was to be cut.
        cuts: Vec<u64>,
        /// Its size.
        end: u64,
    },
    /// A dimension that the tensor does not have.
    #[error("tensor `{name}` has no dimension {dim}")]
    Dimension {
        /// The tensor.
        name: String,
        /// The dimension.
        dim: usize,
    },
    /// A part that lies outside its tensor.
    #[error("rank {rank}: a part of tensor {tensor} lies outside it")]
    Outside {
        /// The rank.
        rank: usize,
        /// The tensor's place in the list.
        tensor: usize,
    },
    /// More parts than ranks: some would be held by nobody.
    #[error("tensor `{name}` is cut into {parts} parts for {ranks} ranks")]
    Parts {
        /// The tensor.
        name: String,
        /// Parts.
        parts: usize,
        /// Ranks.
        ranks: usize,
    },
    /// No ranks at all.
    #[error("a layout of no ranks")]
    NoRanks,
}
