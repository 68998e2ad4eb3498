//! Links, transports and weights for tests.

use robust_proto::v1::{ByteRange, PullSource, PullWeights, ServedVersion};
use robust_role::serve::as_served;
use robust_shared::weights::TensorSpec;
use robust_transport::{Config, JobToken, Transport};
use robust_weights::{Layout, Publisher};
use tokio::runtime::Runtime;

/// What all members of a test's job know.
pub const TOKEN: &str = "a token of the tests";
/// Length of a version of the tests' weights.
pub const BYTES: usize = 4 * CHUNK_BYTES;
pub const CHUNK_BYTES: usize = 1024;
/// The incarnation that the tests' publisher has.
pub const PUBLISHER: u64 = 99;

/// A runtime as a role's: one thread for all talk.
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

pub fn transport() -> Transport {
    Transport::start(Config::new(JobToken::new(TOKEN.as_bytes()))).unwrap()
}

/// One flat tensor.
pub fn tensors() -> Vec<TensorSpec> {
    vec![TensorSpec {
        name: "w".to_owned(),
        dtype: "F32".to_owned(),
        shape: vec![BYTES as u64 / 4],
        offset: 0,
        bytes: BYTES as u64,
    }]
}

/// Other bytes in each version.
pub fn bytes_of(version: u64) -> Vec<u8> {
    (0..BYTES).map(|at| at as u8 ^ version as u8).collect()
}

/// Somebody who publishes versions, as a trainer's rank does.
pub struct Source {
    pub transport: Transport,
    pub publisher: Publisher,
}

impl Source {
    pub fn start() -> Self {
        let transport = transport();
        let layout = Layout {
            bytes: BYTES,
            tensors: tensors(),
            chunk_bytes: CHUNK_BYTES as u64,
            ranks: 1,
            full_every: 1,
        };
        let publisher = Publisher::new(&transport, layout).unwrap();
        Self {
            transport,
            publisher,
        }
    }

    pub fn publish(&mut self, version: u64) -> ServedVersion {
        let bytes = bytes_of(version);
        let published = self.publisher.publish(version, |to| to.write_at(0, &bytes));
        as_served(&published.unwrap())
    }

    /// An order to pull all of a version from here.
    pub fn order(&self, served: &ServedVersion) -> PullWeights {
        let bytes = BYTES as u64;
        let whole = ByteRange {
            src: 0,
            dst: 0,
            bytes,
        };
        let source = PullSource {
            incarnation: PUBLISHER,
            transport_addr: self.transport.addr().to_string(),
            region: served.region.clone(),
            parts: vec![whole],
            starts: Vec::new(),
        };
        PullWeights {
            version: served.version,
            manifest: served.manifest.clone(),
            sources: vec![source],
            canary: served.canary.clone(),
            order: 3,
        }
    }
}
