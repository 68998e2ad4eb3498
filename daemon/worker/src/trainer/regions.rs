//! The memory of a rank that others may read.

use std::net::SocketAddr;

use robust_proto::v1::Hello;
use robust_role::serve::{Layout, Publisher, as_region};
use robust_shared::job::Job;
use robust_transport::{Buffer, Exposed, Transport, TransportError};

use super::exchange::STATISTICS;
use crate::manifest::tensor_specs;
use crate::model::flat::TensorSpec;

/// Two regions for gradients, by the step's parity, and what is published of the weights: what is
/// still being read is not overwritten by the next one.
pub(super) struct Regions {
    pub gradients: [Exposed; 2],
    pub weights: Publisher,
}

impl Regions {
    pub fn new(
        transport: &Transport,
        layout: &[TensorSpec],
        job: &Job,
    ) -> Result<Self, TransportError> {
        let elements: usize = layout.iter().map(|spec| spec.len).sum();
        let expose = |bytes: usize| transport.expose(Buffer::new(bytes)?);
        let (gradient, weights) = (elements * 4 + STATISTICS * 8, elements * 4);
        let layout = Layout {
            bytes: weights,
            tensors: tensor_specs(layout),
            chunk_bytes: job.weights.chunk_bytes(),
            ranks: job.trainer.ranks as usize,
        };
        Ok(Self {
            gradients: [expose(gradient)?, expose(gradient)?],
            weights: Publisher::new(transport, layout)?,
        })
    }

    pub fn gradient_bytes(&self) -> usize {
        self.gradients[0].buffer().len()
    }

    /// What a rank says first: where its gradients are.
    pub fn hello(&self, addr: SocketAddr) -> Hello {
        let gradients = self.gradients.iter();
        Hello {
            transport_addr: addr.to_string(),
            gradients: gradients.map(|region| as_region(region.key())).collect(),
            ..Default::default()
        }
    }
}
