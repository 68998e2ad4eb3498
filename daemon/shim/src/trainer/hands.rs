//! What a rank has done for it: all that touches memory and files.

use std::path::PathBuf;

use robust_proto::v1::{SnapshotReply, Train};

use super::words::{CanaryAnswer, Place, Tensor};

/// What a rank does to memory and files; errors are sentences.
pub trait Hands {
    /// Where the tensors of these parts of a state lie.
    fn look_at(&mut self, shards: &[SnapshotReply]) -> Result<Vec<Place>, String>;
    /// What was looked at is still what it was.
    fn is_unchanged(&mut self) -> Result<(), String>;
    /// Lays a batch where the program finds it.
    fn lay_batch(&mut self, train: &Train) -> Result<PathBuf, String>;
    /// Makes room for the state of a step.
    fn begin_state(&mut self, step: u64, tensors: &[Tensor]) -> Result<Place, String>;
    /// The state was written.
    fn end_state(&mut self, step: u64) -> Result<SnapshotReply, String>;
    /// Makes room for a version.
    fn begin_version(&mut self, version: u64, tensors: &[Tensor]) -> Result<Place, String>;
    /// The version was written: it is served from now on, and the rank is told (`Rank::on_served`).
    fn end_version(&mut self, version: u64, canary: Option<CanaryAnswer>) -> Result<(), String>;
    /// An exception on request is due: its sentence.
    fn exception(&mut self) -> Option<String>;
    /// Numbers that are none are due, on request.
    fn spoils(&mut self) -> bool;
    /// The rank's state is of this step now; none: of no step.
    fn is_at(&mut self, step: Option<u64>);
}
