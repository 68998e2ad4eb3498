//! Orders to pull, from the daemon's messages to the puller, and its reports back.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

use robust_proto::manifest;
use robust_proto::v1::pull_done::Result as Outcome;
use robust_proto::v1::role_message::Body;
use robust_proto::v1::{self, PullDone, PullStarted, PullWeights, Region, ServedVersion};
use robust_shared::ids::{Incarnation, WeightVersion};
use robust_transport::{Buffer, Part, RegionKey, Transport};
use robust_weights::{Observer, Order, Progress, PullError, Served, Slots, Source, SwapError};

use super::Commands;
use super::engine::{Command, NotSwapped, SwapRequest};
use crate::attach::manifest::tensor_specs;
use crate::attach::{Link, StartError};
use crate::model::flat::{FlatParams, TensorSpec};

/// The pull under way, as a hello tells it: others can read from it.
#[derive(Clone, Default)]
pub(super) struct Pulling(Arc<Mutex<Option<PullStarted>>>);

impl Pulling {
    /// What can be read here of a version that is not whole yet.
    pub fn get(&self) -> Option<PullStarted> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, pulling: Option<PullStarted>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pulling;
    }
}

/// Takes orders; the newest one counts.
pub(super) struct Puller {
    puller: robust_weights::Puller,
    engine: Commands,
    link: Link,
}

impl Puller {
    pub fn start(
        transport: Transport,
        slots: Arc<Slots>,
        engine: Commands,
        (link, pulling): (Link, Pulling),
        layout: Vec<TensorSpec>,
    ) -> Result<Self, StartError> {
        let tensors = tensor_specs(&layout);
        let reports = Arc::new(Reports {
            link: link.clone(),
            engine: engine.clone(),
            layout,
            pulling,
        });
        let puller = robust_weights::Puller::start(transport, slots, tensors, reports)
            .map_err(|_| StartError::Thread("puller"))?;
        Ok(Self {
            puller,
            engine,
            link,
        })
    }

    /// Starts this pull; another one that runs is given up.
    pub fn assign(&self, pull: &PullWeights) {
        let order = match order(pull) {
            Ok(order) => order,
            Err(error) => {
                tracing::warn!(version = pull.version, error.reason, "an impossible order");
                return self.link.pull_done(PullDone {
                    version: pull.version,
                    result: Some(Outcome::Error(error)),
                });
            }
        };
        // The puller may wait for the engine to take over an older version.
        if self.engine.send(Command::Supersede(pull.version)).is_err() {
            tracing::error!("the engine is gone");
        }
        self.puller.assign(order);
    }
}

fn order(pull: &PullWeights) -> Result<Order, v1::PullError> {
    let published = pull.manifest.as_ref();
    let corrupt = |reason: String| v1::PullError {
        kind: "corrupt".to_owned(),
        source: pull.sources.first().map_or(0, |first| first.incarnation),
        reason,
    };
    let manifest = published.ok_or_else(|| corrupt("there is no manifest".into()))?;
    let manifest = manifest::from_proto(manifest).map_err(|e| corrupt(e.to_string()))?;
    if manifest.version.0 != pull.version {
        return Err(corrupt("the manifest is of another version".into()));
    }
    Ok(Order {
        version: WeightVersion(pull.version),
        manifest: Arc::new(manifest),
        sources: pull.sources.iter().map(source).collect::<Result<_, _>>()?,
    })
}

fn source(source: &v1::PullSource) -> Result<Source, v1::PullError> {
    let failed = |reason: String| v1::PullError {
        kind: "source".to_owned(),
        source: source.incarnation,
        reason,
    };
    let addr = source.transport_addr.parse();
    let addr = addr.map_err(|e| failed(format!("{:?}: {e}", source.transport_addr)))?;
    let region = source.region.as_ref();
    let region = region.ok_or_else(|| failed("no region".into()))?;
    let key = RegionKey::from_bytes(&region.key).map_err(|e| failed(e.to_string()))?;
    let part = |range: &v1::ByteRange| Part {
        src: range.src,
        dst: range.dst,
        len: range.bytes,
    };
    Ok(Source {
        id: Incarnation(source.incarnation),
        addr,
        key,
        parts: source.parts.iter().map(part).collect(),
        starts: source.starts.clone(),
    })
}

/// What is served, as the protocol names it.
pub(super) fn as_served(served: &Served) -> ServedVersion {
    ServedVersion {
        version: served.version.0,
        manifest: Some(manifest::to_proto(&served.manifest)),
        region: Some(as_region(&served.key)),
        canary: None,
    }
}

fn as_region(key: &RegionKey) -> Region {
    Region {
        key: key.to_bytes(),
        bytes: key.len,
    }
}

/// Tells the daemon how pulls go, and the engine which weights to use.
struct Reports {
    link: Link,
    engine: Commands,
    layout: Vec<TensorSpec>,
    pulling: Pulling,
}

impl Observer for Reports {
    fn started(&self, version: WeightVersion, key: &RegionKey) {
        let started = PullStarted {
            version: version.0,
            region: Some(as_region(key)),
        };
        // Before it is said: a link that breaks now says it with its next hello.
        self.pulling.set(Some(started.clone()));
        self.link.report(Body::PullStarted(started));
        self.link.pulled(Some((0, key.len)));
    }

    fn progress(&self, p: Progress) {
        self.link.report(Body::PullProgress(v1::PullProgress {
            version: p.version.0,
            bytes: p.bytes,
            total: p.total,
            source: p.source.map_or(0, |source| source.0),
            chunks: p.chunks,
            chunks_total: p.chunks_total,
            bytes_per_s: p.bytes_per_s as f64,
            fetched: p.fetched,
        }));
        self.link.pulled(Some((p.bytes, p.total)));
    }

    /// Returns when the engine uses the version: in turns, when running requests ended.
    fn swap(&self, version: WeightVersion, buffer: &Arc<Buffer>) -> Result<(), SwapError> {
        let failed = |reason: String| SwapError::Failed(reason);
        let gone = || failed("the engine ended".to_owned());
        let weights = FlatParams::lying_in(self.layout.clone(), buffer)
            .map_err(|error| failed(error.to_string()))?;
        let (done, answer) = channel();
        let request = SwapRequest {
            version: version.0,
            weights,
            done,
        };
        self.engine
            .send(Command::Swap(request))
            .map_err(|_| gone())?;
        let swapped = answer.recv().map_err(|_| gone())?;
        swapped.map_err(|error @ NotSwapped::Superseded { .. }| {
            SwapError::Superseded(error.to_string())
        })
    }

    fn done(&self, version: WeightVersion, result: Result<Served, PullError>) {
        self.link.pulled(None);
        let result = match result {
            Ok(served) => {
                // It is said to be served from now on.
                self.pulling.set(None);
                Outcome::Ok(as_served(&served))
            }
            Err(error) => Outcome::Error(v1::PullError {
                kind: error.kind.name().to_owned(),
                source: error.source_id.map_or(0, |source| source.0),
                reason: error.reason,
            }),
        };
        self.link.pull_done(PullDone {
            version: version.0,
            result: Some(result),
        });
    }
}
