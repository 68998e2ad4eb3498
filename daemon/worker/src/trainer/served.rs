//! The memory that others may read, and what the daemon is told of it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use robust_proto::v1::{Hello, Region, ServedVersion};
use robust_shared::ids::WeightVersion;
use robust_shared::weights::{Manifest, ManifestError};
use robust_transport::{Buffer, BufferError, Exposed, Transport, TransportError};

use super::exchange::STATISTICS;
use crate::attach::manifest::tensor_specs;
use crate::model::flat::FlatParams;
use robust_proto::manifest::to_proto;

/// Why a version could not be published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The region is in use or of another size.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The transport does not take the region.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The layout makes no manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// Two regions for gradients, by the step's parity, and two buffers for weights, by the version's:
/// what is still being read is not overwritten by the next one.
pub(super) struct Regions {
    pub gradients: [Exposed; 2],
    transport: Transport,
    weights: [Arc<Buffer>; 2],
    /// A region is of one version: whoever reads an older one is refused, not given other bytes.
    published: [Option<Exposed>; 2],
    /// Of the trainer.
    ranks: usize,
}

impl Regions {
    pub fn new(
        transport: &Transport,
        elements: usize,
        ranks: usize,
    ) -> Result<Self, TransportError> {
        let expose = |bytes: usize| transport.expose(Buffer::new(bytes)?);
        let (gradient, weights) = (elements * 4 + STATISTICS * 8, elements * 4);
        Ok(Self {
            gradients: [expose(gradient)?, expose(gradient)?],
            transport: transport.clone(),
            weights: [Buffer::new(weights)?, Buffer::new(weights)?],
            published: [None, None],
            ranks,
        })
    }

    pub fn gradient_bytes(&self) -> usize {
        self.gradients[0].buffer().len()
    }

    /// Copies the weights where pullers can read them: all of them, as every one of the ranks does.
    pub fn publish(
        &mut self,
        version: u64,
        params: &FlatParams,
        chunk_bytes: u64,
    ) -> Result<ServedVersion, PublishError> {
        let at = (version % 2) as usize;
        let buffer = &self.weights[at];
        if let Some(before) = self.published[at].take() {
            before.withdraw();
        }
        buffer.write_at(0, params.as_bytes())?;
        let tensors = tensor_specs(params.layout());
        let manifest = buffer.with_bytes(|bytes| {
            let whole = 0..bytes.len() as u64;
            let built = Manifest::build(WeightVersion(version), bytes, chunk_bytes, tensors);
            built?.held_by(vec![whole; self.ranks])
        })??;
        let region = self.transport.expose(Arc::clone(buffer))?;
        let served = ServedVersion {
            version,
            manifest: Some(to_proto(&manifest)),
            region: Some(as_region(&region)),
            canary: None,
        };
        self.published[at] = Some(region);
        Ok(served)
    }
}

impl Regions {
    /// For drills: memory that fails. A bit flips in every chunk of what was published.
    pub fn damage(&self, version: u64, chunk_bytes: u64) {
        let buffer = &self.weights[(version % 2) as usize];
        let chunk = usize::try_from(chunk_bytes).unwrap_or(usize::MAX).max(1);
        for offset in (0..buffer.len()).step_by(chunk) {
            if let Err(error) = buffer.damage(offset) {
                tracing::warn!(%error, offset, "memory that is to fail does not");
            }
        }
    }
}

/// An exposed buffer as the protocol names it.
fn as_region(exposed: &Exposed) -> Region {
    Region {
        key: exposed.key().to_bytes(),
        bytes: exposed.buffer().len() as u64,
    }
}

/// What the hello says of this rank; clones share it.
#[derive(Clone)]
pub(super) struct Facts {
    hello: Arc<Mutex<Hello>>,
}

impl Facts {
    pub fn new(addr: SocketAddr, regions: &Regions) -> Self {
        let hello = Hello {
            transport_addr: addr.to_string(),
            gradients: regions.gradients.iter().map(as_region).collect(),
            ..Default::default()
        };
        Self {
            hello: Arc::new(Mutex::new(hello)),
        }
    }

    pub fn hello(&self) -> Hello {
        self.hello
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn set_step(&self, step: Option<u64>) {
        self.hello
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .step = step;
    }

    pub fn set_served(&self, served: ServedVersion) {
        let mut hello = self.hello.lock().unwrap_or_else(PoisonError::into_inner);
        hello.version = Some(served.version);
        hello.served = Some(served);
    }
}
