//! What the puller's thread does with an order.
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use robust_shared::weights::{Manifest, PullTracker, TensorSpec};
use robust_transport::{Buffer, Cancel, RegionKey, Transport, TransportError};

use crate::fetching::{Fetching, Lane, State};
use crate::lanes::lanes;
use crate::meter::Meter;
use crate::puller::Turns;
use crate::slots::Slots;
use crate::types::{Observer, Order, PullError, PullErrorKind, Served, Source, SwapError};

/// The state between orders.
pub(crate) struct Pulls {
    transport: Transport,
    slots: Arc<Slots>,
    layout: Vec<TensorSpec>,
    observer: Arc<dyn Observer>,
    turns: Arc<Turns>,
    partial: Option<Partial>,
}

/// What the spare slot holds so far.
struct Partial {
    at: usize,
    key: RegionKey,
    tracker: PullTracker,
    fetched: u64,
}

impl Pulls {
    pub fn new(
        transport: Transport,
        slots: Arc<Slots>,
        layout: Vec<TensorSpec>,
        observer: Arc<dyn Observer>,
        turns: Arc<Turns>,
    ) -> Self {
        Self {
            transport,
            slots,
            layout,
            observer,
            turns,
            partial: None,
        }
    }

    /// Does one order, and tells how it ended.
    pub fn run(&mut self, ticket: u64, order: &Order) {
        let version = order.version;
        let result = self.pull(ticket, order);
        match &result {
            Ok(_) => tracing::info!(version = version.0, "serving"),
            Err(error) => tracing::warn!(version = version.0, %error, "pull failed"),
        }
        self.observer.done(version, result);
    }

    fn pull(&mut self, ticket: u64, order: &Order) -> Result<Served, PullError> {
        self.turns.check(ticket)?;
        match self.slots.served() {
            Some(served) if served.version == order.version => return Ok(served),
            Some(served) if served.version > order.version => {
                let reason = format!("version {} is served already", served.version.0);
                return Err(PullError::superseded(reason));
            }
            _ => {}
        }
        let slots = Arc::clone(&self.slots);
        let (at, buffer) = slots.spare();
        let partial = self.resume(at, buffer, &order.manifest)?;
        let key = partial.key;
        // Kept before anything can fail: the region is open, its bytes are good.
        self.partial = Some(partial);
        self.observer.started(order.version, &key);
        self.reuse(ticket, at, buffer)?;
        self.fetch(ticket, order, at, buffer)?;
        let swapped = self.observer.swap(order.version, buffer);
        swapped.map_err(|error| match error {
            SwapError::Superseded(reason) => PullError::superseded(reason),
            SwapError::Failed(reason) => PullError::new(PullErrorKind::Source, None, reason),
        })?;
        self.partial = None;
        Ok(slots.promote(at, Arc::clone(&order.manifest), key))
    }

    /// What is here of this version. Another version's region is withdrawn and a new one opened; the
    /// chunks that both have in common can be read in it at once.
    fn resume(
        &mut self,
        at: usize,
        buffer: &Buffer,
        manifest: &Arc<Manifest>,
    ) -> Result<Partial, PullError> {
        let corrupt = |reason: String| PullError::new(PullErrorKind::Corrupt, None, reason);
        if manifest.bytes != buffer.len() as u64 || !manifest.same_layout(&self.layout) {
            return Err(corrupt("the manifest is not of this model".into()));
        }
        let kept = self.partial.take().filter(|partial| partial.at == at);
        let tracker = match kept {
            Some(same) if same.tracker.manifest() == manifest => return Ok(same),
            Some(other) => other.tracker.succeed(Arc::clone(manifest)),
            None => PullTracker::new(Arc::clone(manifest)),
        };
        let tracker = tracker.map_err(|error| corrupt(error.to_string()))?;
        let key = self.slots.open(at).map_err(own)?;
        let ranges = |chunks: std::ops::Range<u64>| chunks.filter_map(|c| manifest.chunk_range(c));
        for range in tracker.verified_runs().into_iter().flat_map(ranges) {
            self.slots.ready(at, range);
        }
        Ok(Partial {
            at,
            key,
            tracker,
            fetched: 0,
        })
    }

    /// Copies the chunks that the served version has in common with the one that is pulled.
    fn reuse(&mut self, ticket: u64, at: usize, buffer: &Buffer) -> Result<(), PullError> {
        let (Some(partial), Some(served)) = (&mut self.partial, self.slots.served()) else {
            return Ok(());
        };
        let (manifest, from) = (Arc::clone(partial.tracker.manifest()), self.slots.current());
        for chunk in manifest.same_chunks(&served.manifest) {
            let Some(range) = manifest.chunk_range(chunk) else {
                continue;
            };
            if partial.tracker.has(chunk) {
                continue;
            }
            self.turns.check(ticket)?;
            let bytes = range.start as usize..range.end as usize;
            let length = range.end - range.start;
            let copied = from.copy_to(bytes, buffer);
            let good = |digest| manifest.verify_digest(chunk, length, || digest).is_ok();
            // One that cannot be copied, or was damaged since, is fetched as the others are.
            if copied.is_ok_and(good) {
                partial.tracker.verified(chunk);
                self.slots.ready(at, range);
            }
        }
        Ok(())
    }

    fn fetch(
        &mut self,
        ticket: u64,
        order: &Order,
        at: usize,
        buffer: &Arc<Buffer>,
    ) -> Result<(), PullError> {
        let Some(partial) = self.partial.take() else {
            return Ok(());
        };
        let lanes = plan(&partial.tracker, &order.sources);
        let job = Fetching {
            transport: &self.transport,
            slots: &self.slots,
            observer: &*self.observer,
            manifest: Arc::clone(&order.manifest),
            at,
            buffer,
            fetched_before: partial.fetched,
            cancels: lanes.iter().map(|_| Cancel::new()).collect(),
            state: Mutex::new(State {
                tracker: partial.tracker,
                meter: Meter::new(Instant::now()),
                latest: None,
                failure: None,
            }),
        };
        let begun = self.turns.begin(ticket, &job.cancels);
        if begun.is_ok() {
            job.run(&lanes);
        }
        let fetched = job.fetched();
        let state = job
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let complete = state.tracker.is_complete();
        self.partial = Some(Partial {
            at,
            key: partial.key,
            tracker: state.tracker,
            fetched,
        });
        begun?;
        self.turns.check(ticket)?;
        match state.failure {
            _ if complete => Ok(()),
            Some(error) => Err(error),
            None => {
                let reason = "the sources leave bytes out";
                Err(PullError::new(PullErrorKind::Source, None, reason))
            }
        }
    }
}

/// Which source is asked for what, in which fetches.
fn plan<'a>(tracker: &PullTracker, sources: &'a [Source]) -> Vec<Lane<'a>> {
    let runs = |source: &Source| {
        let run = |part: &robust_transport::Part| (part.src, part.dst, part.len);
        source.parts.iter().map(run).collect()
    };
    let runs: Vec<Vec<_>> = sources.iter().map(runs).collect();
    let of_each = sources.iter().zip(tracker.pieces(&runs));
    of_each
        .flat_map(|(source, pieces)| {
            let lanes = lanes(source, pieces).into_iter();
            lanes.map(move |pieces| Lane { source, pieces })
        })
        .filter(|lane| !lane.pieces.is_empty())
        .collect()
}

/// A failure of our own, nobody's fault.
fn own(error: TransportError) -> PullError {
    PullError::new(PullErrorKind::Source, None, error.to_string())
}
