//! Weight versions as bytes: manifests, chunk digests, shards, and what a puller has so far.
//!
//! ```text
//!  one flat little-endian buffer   |t0|  t1  |t2|    t3     |      tensors, without gaps
//!  chunks of `chunk_bytes`         |c0 |c1 |c2 |c3 |c4 |c5|        xxh3-64 each, in the manifest
//!  shards of two trainer ranks     |rank 0     |rank 1    |        whole chunks
//! ```
//!
//! A puller checks the manifest against its blake3 digest (which the controller published), then
//! each chunk against the manifest: together they say that the buffer is the published one (I-4).

mod canary;
pub mod layout;
mod manifest;
mod ranges;
pub mod rect;
pub mod reshard;
mod tracker;

pub use canary::{Canary, CanaryError};
pub use layout::{Layout, LayoutError, Split};
pub use manifest::{ChunkError, Manifest, ManifestError, TensorSpec};
pub use reshard::{PlanCache, ReshardError, ReshardPlan};
pub use tracker::{Piece, PullTracker};
