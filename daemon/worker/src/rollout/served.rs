//! Two buffers: one is served, the other is being filled.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use robust_proto::v1::{Hello, Manifest, Region, ServedVersion};
use robust_transport::{Buffer, Exposed, Transport, TransportError};

pub(super) struct Served {
    buffers: [Exposed; 2],
    current: Mutex<Option<(usize, ServedVersion)>>,
}

impl Served {
    pub fn new(transport: &Transport, bytes: usize) -> Result<Self, TransportError> {
        let expose = || transport.expose(Buffer::new(bytes)?);
        Ok(Self {
            buffers: [expose()?, expose()?],
            current: Mutex::new(None),
        })
    }

    /// The version served, if any.
    pub fn version(&self) -> Option<u64> {
        self.lock().as_ref().map(|(_, served)| served.version)
    }

    /// What is served, for those who want to fetch it.
    pub fn current(&self) -> Option<ServedVersion> {
        self.lock().as_ref().map(|(_, served)| served.clone())
    }

    /// The buffer that may be written, and its number.
    pub fn spare(&self) -> (usize, Arc<Buffer>) {
        let spare = self.lock().as_ref().map_or(0, |(at, _)| 1 - at);
        (spare, Arc::clone(self.buffers[spare].buffer()))
    }

    /// From now on this buffer is what is served.
    pub fn promote(&self, at: usize, version: u64, manifest: Manifest) -> ServedVersion {
        let exposed = &self.buffers[at];
        let bytes = exposed.buffer().len() as u64;
        let region = Region {
            key: exposed.key().to_bytes(),
            bytes,
        };
        let served = ServedVersion {
            version,
            manifest: Some(manifest),
            region: Some(region),
        };
        *self.lock() = Some((at, served.clone()));
        served
    }

    pub fn hello(&self, transport: SocketAddr, http: SocketAddr) -> Hello {
        let served = self.current();
        Hello {
            transport_addr: transport.to_string(),
            http_addr: http.to_string(),
            version: served.as_ref().map(|served| served.version),
            served,
            ..Default::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(usize, ServedVersion)>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
