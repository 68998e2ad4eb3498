//! The memory of a rank that others may read.

use robust_proto::v1::Hello;
use robust_role::serve::as_region;
use robust_shared::job::{Dtype, Job};
use robust_transport::{Address, Buffer, BufferError, Exposed, Transport, TransportError};
use robust_weights::{Layout, Publisher};

use super::exchange::STATISTICS;
use crate::manifest::tensor_specs_of;
use crate::model::flat::{FlatParams, TensorSpec, kind_of, size_of_element, tensor_bytes};

/// Elements that are rounded at once.
const PIECE: usize = 1 << 20;

/// Two regions for gradients, by the step's parity, and what is published of the weights: what is
/// still being read is not overwritten by the next one.
pub(super) struct Regions {
    pub gradients: [Exposed; 2],
    pub weights: Publisher,
    /// The numbers of what is published.
    pub dtype: Dtype,
}

impl Regions {
    pub fn new(
        transport: &Transport,
        layout: &[TensorSpec],
        rank: u32,
        job: &Job,
    ) -> Result<Self, TransportError> {
        let elements: usize = layout.iter().map(|spec| spec.len).sum();
        let expose = |bytes: usize| transport.expose(Buffer::new(bytes)?);
        let dtype = job.wire();
        // A rank that is alone has nobody who reads its gradient.
        let read_by_others = if job.trainer.ranks > 1 { elements } else { 0 };
        let gradient = read_by_others * 4 + STATISTICS * 8;
        let layout = Layout {
            bytes: elements * size_of_element(dtype),
            tensors: tensor_specs_of(layout, dtype),
            chunk_bytes: job.weights.chunk_bytes(),
            ranks: job.trainer.ranks as usize,
            full_every: job.weights.full_every_of(rank),
        };
        Ok(Self {
            gradients: [expose(gradient)?, expose(gradient)?],
            weights: Publisher::new(transport, layout)?,
            dtype,
        })
    }

    pub fn gradient_bytes(&self) -> usize {
        self.gradients[0].buffer().len()
    }

    /// What a rank says first: where its gradients are.
    pub fn hello(&self, addr: Address) -> Hello {
        let gradients = self.gradients.iter();
        Hello {
            transport_addr: addr.to_string(),
            gradients: gradients.map(|region| as_region(region.key())).collect(),
            ..Default::default()
        }
    }
}

/// Writes all weights into a buffer as such numbers, rounded to the nearest.
pub(super) fn fill(to: &Buffer, params: &FlatParams, dtype: Dtype) -> Result<(), BufferError> {
    if dtype == Dtype::Float32 {
        return to.write_at(0, params.as_bytes());
    }
    for first in (0..params.len()).step_by(PIECE) {
        let count = PIECE.min(params.len() - first);
        let part = params.tensor().narrow(0, first as i64, count as i64);
        let rounded = part.to_kind(kind_of(dtype));
        to.write_at(first * size_of_element(dtype), tensor_bytes(&rounded))?;
    }
    Ok(())
}
