//! Pulled weights on their way to the engine's thread.

use std::sync::Arc;
use std::sync::mpsc::channel;

use robust_role::pull::Engine;
use robust_shared::ids::WeightVersion;
use robust_shared::job::Dtype;
use robust_transport::Buffer;
use robust_weights::SwapError;

use super::Commands;
use super::engine::{Command, NotSwapped, SwapRequest};
use crate::model::flat::{FlatParams, TensorSpec};

/// The engine's thread as the puller knows it.
pub(super) struct Pulled {
    pub commands: Commands,
    pub layout: Vec<TensorSpec>,
    /// The numbers of a version.
    pub dtype: Dtype,
}

impl Engine for Pulled {
    fn supersede(&self, version: u64) {
        if self.commands.send(Command::Supersede(version)).is_err() {
            tracing::error!("the engine is gone");
        }
    }

    /// Returns when the engine uses the version: in turns, when running requests ended.
    fn swap(&self, version: WeightVersion, buffer: &Arc<Buffer>) -> Result<(), SwapError> {
        let failed = |reason: String| SwapError::Failed(reason);
        let gone = || failed("the engine ended".to_owned());
        let weights = FlatParams::lying_as(self.dtype, self.layout.clone(), buffer)
            .map_err(|error| failed(error.to_string()))?;
        let (done, answer) = channel();
        let request = SwapRequest {
            version: version.0,
            weights,
            done,
        };
        self.commands
            .send(Command::Swap(request))
            .map_err(|_| gone())?;
        let swapped = answer.recv().map_err(|_| gone())?;
        swapped.map_err(|error @ NotSwapped::Superseded { .. }| {
            SwapError::Superseded(error.to_string())
        })
    }
}
