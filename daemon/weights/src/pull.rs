//! What the puller's thread does with an order.
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use robust_shared::weights::{Manifest, PullTracker, TensorSpec};
use robust_transport::{Buffer, Cancel, RegionKey, Transport, TransportError};

use crate::fetching::{Fetching, Lane, Latest, Made, REPORT_EVERY, State, is_own, progress};
use crate::lanes::lanes;
use crate::meter::Meter;
use crate::patch::{Chain, NotTaken, Part, Passing, Patches, Take, since};
use crate::slots::Slots;
use crate::turns::Turns;
use crate::types::{Link, Observer, Order, PullError, PullErrorKind, Served, Source, SwapError};

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
    /// Who sent the latest bytes, and the road that they took.
    latest: Latest,
    made: Made,
    /// The patches that it is pulled by, while they are of use.
    passing: Option<Passing>,
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
        self.observer.done(order, result);
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
        let mut partial = self.resume(at, buffer, &order.manifest)?;
        let key = partial.key;
        let patched = self.pass_on(&mut partial, order);
        let links = self.links(&partial);
        // Kept before anything can fail: the region is open, its bytes are good.
        self.partial = Some(partial);
        self.observer.started(order, &key, &links);
        self.reuse(ticket, at, buffer)?;
        if let Some((source, way)) = patched {
            self.patch(ticket, source, way, at, buffer)?;
        }
        self.fetch(ticket, order, at, buffer)?;
        let swapped = self.observer.swap(order.version, buffer);
        if let Err(SwapError::Damaged(_)) = &swapped {
            self.partial = None;
        }
        swapped.map_err(|error| match error {
            SwapError::Superseded(reason) => PullError::superseded(reason),
            SwapError::Failed(reason) => PullError::new(PullErrorKind::Source, None, reason),
            SwapError::Damaged(reason) => PullError::new(PullErrorKind::Damaged, None, reason),
        })?;
        let passing = self.partial.take().and_then(|partial| partial.passing);
        Ok(slots.promote(at, Arc::clone(&order.manifest), key, passing))
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
            latest: None,
            made: Made::default(),
            passing: None,
        })
    }

    /// The source whose patches make the version of the one that is served, and those patches; from here on
    /// others can wait for them here.
    fn pass_on<'a>(
        &self,
        partial: &mut Partial,
        order: &'a Order,
    ) -> Option<(&'a Source, &'a [Link])> {
        let base = self.slots.served()?.manifest.content_digest();
        // By RDMA a whole version is there sooner than its patches are made.
        let own = self.transport.addr().rdma().is_some();
        let slow = |source: &&'a Source| !(own && source.addr.rdma().is_some());
        let way = |source: &'a Source| Some((source, since(&source.patches, &base)?));
        let patched = order.sources.iter().filter(slow).find_map(way);
        // What patches make is verified by BLAKE3.
        let Some((_, way)) = patched.filter(|_| order.manifest.has_blake3()) else {
            partial.passing = None;
            return None;
        };
        partial.passing.take_if(|passing| !passing.is_along(way));
        if partial.passing.is_none() {
            let passing = Passing::open(&self.transport, way, &order.manifest);
            let failed = |error: &TransportError| tracing::warn!(%error, "patches are not used");
            partial.passing = passing.inspect_err(failed).ok();
        }
        patched.filter(|_| partial.passing.is_some())
    }

    /// What makes the version here, for others: what it is pulled by, and what led to the one that is served.
    fn links(&self, partial: &Partial) -> Vec<Link> {
        let (Some(passing), Some(served)) = (&partial.passing, self.slots.served()) else {
            return Vec::new();
        };
        let pulled_by = passing.links();
        let room = Chain::MOST_LINKS.saturating_sub(pulled_by.len());
        let most = Patches::most(partial.tracker.manifest().bytes);
        let base = served.manifest.content_digest();
        self.slots.keep_links(room, most);
        let mut links = self.slots.links_to(&base);
        links.extend(pulled_by);
        links
    }

    /// Copies the chunks that the served version has in common with the one that is pulled.
    fn reuse(&mut self, ticket: u64, at: usize, buffer: &Buffer) -> Result<(), PullError> {
        let (Some(partial), Some(served)) = (&mut self.partial, self.slots.served()) else {
            return Ok(());
        };
        let (manifest, from) = (Arc::clone(partial.tracker.manifest()), self.slots.current());
        let mut duty = self.transport.share().duty();
        for chunk in manifest.same_chunks(&served.manifest) {
            let Some(range) = manifest.chunk_range(chunk) else {
                continue;
            };
            if partial.tracker.has(chunk) {
                continue;
            }
            self.turns.check(ticket)?;
            duty.rest_fully();
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

    /// Makes what the source's patches make of the served version; the rest is left to be fetched.
    fn patch(
        &mut self,
        ticket: u64,
        source: &Source,
        way: &[Link],
        at: usize,
        buffer: &Arc<Buffer>,
    ) -> Result<(), PullError> {
        let (Some(partial), Some(served)) = (&mut self.partial, self.slots.served()) else {
            return Ok(());
        };
        let (manifest, from) = (Arc::clone(partial.tracker.manifest()), self.slots.current());
        let cancel = Cancel::new();
        self.turns.begin(ticket, std::slice::from_ref(&cancel))?;
        let take = Take {
            transport: &self.transport,
            slots: &*self.slots,
            manifest: &manifest,
            base: &served.manifest,
            from: &from,
            at,
            into: buffer,
            cancel: &cancel,
        };
        let (fetched_before, mut made) = (partial.fetched, partial.made);
        let latest = &mut partial.latest;
        let (mut meter, mut reported) = (Meter::new(Instant::now()), None::<Instant>);
        let mut duty = self.transport.share().duty();
        let heard = |tracker: &PullTracker, part: Part| {
            duty.rest_fully();
            // What is made of patches that are here came by no road of now.
            let road = part.road.or(latest.and_then(|(_, road)| road));
            *latest = Some((source.id, road));
            made.bytes += part.bytes;
            made.wrong_patches += part.wrong;
            if reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
                reported = Some(Instant::now());
                let since = cancel.fetched();
                let rate = meter.mark(Instant::now(), since);
                let so_far = progress(tracker, *latest, rate, fetched_before + since, made);
                self.observer.progress(so_far);
            }
        };
        let taken = take.run(
            source,
            way,
            &mut partial.passing,
            &mut partial.tracker,
            heard,
        );
        partial.fetched += cancel.fetched();
        partial.made = made;
        match taken {
            Ok(changed_words) => {
                partial.made.changed_words = changed_words;
                Ok(())
            }
            Err(NotTaken::Unusable(reason)) => {
                tracing::info!(
                    version = manifest.version.0,
                    reason,
                    "pulled without patches"
                );
                // Who waits for them here is refused, and does the same.
                partial.passing = None;
                Ok(())
            }
            Err(NotTaken::Failed(error)) => {
                self.turns.check(ticket)?;
                let to_blame = Some(source.id).filter(|_| !is_own(&error));
                let reason = error.to_string();
                Err(PullError::new(PullErrorKind::Source, to_blame, reason))
            }
        }
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
            made: partial.made,
            cancels: lanes.iter().map(|_| Cancel::new()).collect(),
            state: Mutex::new(State {
                tracker: partial.tracker,
                meter: Meter::new(Instant::now()),
                latest: partial.latest,
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
            latest: state.latest,
            made: partial.made,
            passing: partial.passing,
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
