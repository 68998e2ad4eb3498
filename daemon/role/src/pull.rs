//! Orders to pull, from the daemon's messages to the puller, and its reports back.
//!
//! ```text
//!   daemon ── PullWeights ──► Puller::assign ──► Engine::supersede
//!                                  │
//!                                  ▼             every chunk verified
//!          PullStarted ◄── a slot of `Slots` fills ──────────────────► Engine::swap ─┐
//!          PullProgress ◄──────┘                                                     │
//!          PullDone ◄──────────── served to others from here on ◄────────────────────┘
//! ```
//! A failed pull never touches what is served: a version is fetched into the slot that is not in
//! use, and the engine is asked to go over to it only when it is whole (I-4), and when all of it, read
//! again, still is what was published.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use robust_proto::manifest;
use robust_proto::v1::pull_done::Result as Outcome;
use robust_proto::v1::role_message::Body;
use robust_proto::v1::{self, Hello, PullDone, PullStarted, PullWeights};
use robust_shared::fault::At;
use robust_shared::ids::{Incarnation, WeightVersion};
use robust_shared::phase::Phase;
use robust_shared::weights::{Manifest, TensorSpec};
use robust_transport::{Buffer, Part, RegionKey, Share, Transport};
use robust_weights::{
    Observer, Order, Progress, PullError, PullErrorKind, Served, Slots, Source, SwapError,
    wrong_chunks,
};

use crate::serve::{as_served, as_weights};
use crate::{Deed, Link, StartError, network};

/// Whoever computes with pulled weights.
pub trait Engine: Send + Sync {
    /// Weights older than this version are wanted no more: a [`Self::swap`] to them that still waits
    /// returns [`SwapError::Superseded`].
    fn supersede(&self, version: u64);

    /// Returns when the engine uses the version, which lies whole and verified in `buffer`. An error
    /// fails the pull; the version stays complete, and ordered again it is swapped to at once.
    fn swap(&self, version: WeightVersion, buffer: &Arc<Buffer>) -> Result<(), SwapError>;
}

/// The pull under way, as a hello tells it: others can read from it. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Pulling(Arc<Mutex<Option<PullStarted>>>);

impl Pulling {
    /// What can be read here of a version that is not whole yet.
    pub fn get(&self) -> Option<PullStarted> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The weights' part of a hello. What is served is looked at first: a pull that ends in between
    /// is then told as under way, and its end follows.
    pub fn hello(&self, slots: &Slots) -> Hello {
        let served = slots.served().map(|served| as_served(&served));
        Hello {
            version: served.as_ref().map(|served| served.version),
            served,
            pulling: self.get(),
            ..Default::default()
        }
    }

    fn set(&self, pulling: Option<PullStarted>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pulling;
    }
}

/// Takes orders; the newest one counts.
pub struct Puller {
    puller: robust_weights::Puller,
    engine: Arc<dyn Engine>,
    link: Link,
    reports: Arc<Reports>,
}

impl Puller {
    /// Starts the puller's thread. Only versions of exactly these tensors are taken; `pulling` says
    /// from then on what the hello has to tell.
    pub fn start(
        transport: Transport,
        slots: Arc<Slots>,
        tensors: Vec<TensorSpec>,
        engine: Arc<dyn Engine>,
        link: Link,
        pulling: Pulling,
    ) -> Result<Self, StartError> {
        let reports = Arc::new(Reports {
            link: link.clone(),
            engine: Arc::clone(&engine),
            pulling,
            share: transport.share().clone(),
            ordered: Mutex::default(),
        });
        let observer = Arc::clone(&reports);
        let puller = robust_weights::Puller::start(transport, slots, tensors, observer)
            .map_err(|_| StartError::Thread("puller"))?;
        Ok(Self {
            puller,
            engine,
            link,
            reports,
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
                    order: pull.order,
                    result: Some(Outcome::Error(error)),
                });
            }
        };
        // The puller may wait for the engine to take over an older version.
        self.engine.supersede(pull.version);
        self.reports.expect(&order);
        self.puller.assign(order);
    }
}

impl std::fmt::Debug for Puller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Puller").finish_non_exhaustive()
    }
}

/// Hands of a role that pulls: faults on request change the bits of what it holds, or hinder its
/// transport.
pub fn hands(
    slots: Arc<Slots>,
    transport: Transport,
) -> impl Fn(Deed, Option<At>) -> Result<(), String> + Send + Sync + 'static {
    let network = network(transport);
    move |deed, at| match deed {
        Deed::CorruptWeights if at.is_some_and(|at| at.phase == Phase::PullWeights) => {
            slots.damage_filling();
            Ok(())
        }
        Deed::CorruptWeights => match slots.damage_served() {
            0 => Err("it serves no weights yet".to_owned()),
            _ => Ok(()),
        },
        other => network(other, at),
    }
}

fn order(pull: &PullWeights) -> Result<Order, v1::PullError> {
    let published = pull.manifest.as_ref();
    let corrupt = |reason: String| v1::PullError {
        kind: PullErrorKind::Corrupt.word().to_owned(),
        source: pull.sources.first().map_or(0, |first| first.incarnation),
        reason,
    };
    let manifest = published.ok_or_else(|| corrupt("there is no manifest".into()))?;
    let manifest = manifest::from_proto(manifest).map_err(|e| corrupt(e.to_string()))?;
    if manifest.version.0 != pull.version {
        return Err(corrupt("the manifest is of another version".into()));
    }
    Ok(Order {
        number: pull.order,
        version: WeightVersion(pull.version),
        manifest: Arc::new(manifest),
        sources: pull.sources.iter().map(source).collect::<Result<_, _>>()?,
    })
}

fn source(source: &v1::PullSource) -> Result<Source, v1::PullError> {
    let failed = |reason: String| v1::PullError {
        kind: PullErrorKind::Source.word().to_owned(),
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
    let patches = region.patches.iter().map(link).collect::<Result<_, _>>();
    Ok(Source {
        id: Incarnation(source.incarnation),
        addr,
        key,
        parts: source.parts.iter().map(part).collect(),
        starts: source.starts.clone(),
        patches: patches.map_err(failed)?,
    })
}

fn link(patches: &v1::Patches) -> Result<robust_weights::Link, String> {
    let base = patches.base.as_slice().try_into();
    Ok(robust_weights::Link {
        base: base.map_err(|_| "patches of a version that is not named")?,
        key: RegionKey::from_bytes(&patches.key).map_err(|e| e.to_string())?,
    })
}

/// Tells the daemon how pulls go, and the engine which weights to use.
struct Reports {
    link: Link,
    engine: Arc<dyn Engine>,
    pulling: Pulling,
    share: Share,
    /// What the versions that are ordered consist of.
    ordered: Mutex<BTreeMap<WeightVersion, Arc<Manifest>>>,
}

impl Reports {
    fn expect(&self, order: &Order) {
        self.ordered()
            .insert(order.version, Arc::clone(&order.manifest));
    }

    /// Reads all of a version again that is about to be served: bytes may have changed since they were
    /// verified, and an engine that computes with wrong ones tells nobody.
    fn verify_again(&self, version: WeightVersion, buffer: &Buffer) -> Result<(), SwapError> {
        let Some(manifest) = self.ordered().get(&version).cloned() else {
            return Ok(());
        };
        let mut duty = self.share.duty();
        let wrong = wrong_chunks(&manifest, buffer, &mut duty)
            .map_err(|error| SwapError::Failed(error.to_string()))?;
        match wrong {
            0 => Ok(()),
            wrong => Err(SwapError::Damaged(format!(
                "{wrong} of {} chunks of {version} that it pulled",
                manifest.chunks()
            ))),
        }
    }

    fn ordered(&self) -> MutexGuard<'_, BTreeMap<WeightVersion, Arc<Manifest>>> {
        self.ordered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Reports {
    fn started(&self, order: &Order, key: &RegionKey, patches: &[robust_weights::Link]) {
        let started = PullStarted {
            version: order.version.0,
            order: order.number,
            region: Some(as_weights(key, patches)),
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
            patched: p.patched,
            changed_words: p.changed_words,
            wrong_patches: p.wrong_patches,
            road: p
                .road
                .map_or_else(String::new, |road| road.as_str().to_owned()),
        }));
        self.link.pulled(Some((p.bytes, p.total)));
    }

    fn swap(&self, version: WeightVersion, buffer: &Arc<Buffer>) -> Result<(), SwapError> {
        self.verify_again(version, buffer)?;
        self.engine.swap(version, buffer)
    }

    fn done(&self, order: &Order, result: Result<Served, PullError>) {
        let version = order.version;
        self.link.pulled(None);
        self.ordered().retain(|ordered, _| *ordered >= version);
        let result = match result {
            Ok(served) => {
                // It is said to be served from now on.
                self.pulling.set(None);
                Outcome::Ok(as_served(&served))
            }
            Err(error) => Outcome::Error(v1::PullError {
                kind: error.kind.word().to_owned(),
                source: error.source_id.map_or(0, |source| source.0),
                reason: error.reason,
            }),
        };
        self.link.pull_done(PullDone {
            version: version.0,
            order: order.number,
            result: Some(result),
        });
    }
}
