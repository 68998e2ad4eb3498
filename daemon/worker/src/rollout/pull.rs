//! Fetches weight versions into the spare buffer.
//!
//! All sources of an assignment are read at once, each its run of chunks. What was verified stays
//! verified: when a source fails, the next assignment of the same version asks only for the rest.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use robust_proto::manifest;
use robust_proto::v1::pull_done::Result as Outcome;
use robust_proto::v1::role_message::Body;
use robust_proto::v1::{PullDone, PullError, PullProgress, PullSource, PullWeights, ServedVersion};
use robust_shared::weights::{PullTracker, TensorSpec};
use robust_transport::{Buffer, Part, RegionKey, Transport};

use super::Commands;
use super::engine::Command;
use super::served::Served;
use crate::attach::{Link, StartError};

/// Pause between two progress messages.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Takes assignments; the newest one counts.
pub(super) struct Puller {
    transport: Transport,
    assignments: Sender<(u64, PullWeights)>,
    newest: Arc<AtomicU64>,
    /// Peers of the assignment before, to be cut off when it is superseded.
    peers: Mutex<Vec<SocketAddr>>,
}

struct Worker {
    transport: Transport,
    served: Arc<Served>,
    engine: Commands,
    link: Link,
    layout: Vec<TensorSpec>,
    newest: Arc<AtomicU64>,
    /// What the spare buffer holds so far.
    partial: Option<(usize, PullTracker)>,
}

impl Puller {
    pub fn start(
        transport: Transport,
        served: Arc<Served>,
        engine: Commands,
        link: Link,
        layout: Vec<TensorSpec>,
    ) -> Result<Self, StartError> {
        let newest = Arc::new(AtomicU64::new(0));
        let (assignments, queue) = channel();
        let (own, partial) = (transport.clone(), None);
        let mut worker = Worker {
            transport,
            served,
            engine,
            link,
            layout,
            newest: Arc::clone(&newest),
            partial,
        };
        std::thread::Builder::new()
            .name("puller".into())
            .spawn(move || worker.run(&queue))
            .map_err(|_| StartError::Thread("puller"))?;
        Ok(Self {
            transport: own,
            assignments,
            newest,
            peers: Mutex::default(),
        })
    }

    /// Starts this pull; another one that runs is given up.
    pub fn assign(&self, pull: PullWeights) {
        let ticket = self.newest.fetch_add(1, Ordering::SeqCst) + 1;
        let next = pull
            .sources
            .iter()
            .filter_map(|source| source.transport_addr.parse().ok());
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        for peer in std::mem::replace(&mut *peers, next.collect()) {
            self.transport.disconnect(peer);
        }
        // Fails only if the worker panicked, and then the process is of no use.
        if self.assignments.send((ticket, pull)).is_err() {
            tracing::error!("the puller is gone");
        }
    }
}

impl Worker {
    fn run(&mut self, queue: &Receiver<(u64, PullWeights)>) {
        while let Ok((ticket, pull)) = queue.recv() {
            let version = pull.version;
            let outcome = match self.pull(ticket, pull) {
                Ok(served) => {
                    tracing::info!(version, "serving");
                    Outcome::Ok(served)
                }
                Err(error) => {
                    tracing::warn!(
                        version,
                        kind = error.kind,
                        reason = error.reason,
                        "pull failed"
                    );
                    Outcome::Error(error)
                }
            };
            self.link.pull_done(PullDone {
                version,
                result: Some(outcome),
            });
        }
    }

    fn superseded(&self, ticket: u64) -> Result<(), PullError> {
        if self.newest.load(Ordering::SeqCst) == ticket {
            return Ok(());
        }
        Err(failure("superseded", 0, "a newer assignment came"))
    }

    fn pull(&mut self, ticket: u64, pull: PullWeights) -> Result<ServedVersion, PullError> {
        self.superseded(ticket)?;
        let source = pull.sources.first().map_or(0, |source| source.incarnation);
        let corrupt = |reason: String| failure("corrupt", source, reason);
        match self.served.current() {
            Some(served) if served.version == pull.version => return Ok(served),
            Some(served) if served.version > pull.version => {
                let reason = format!("version {} is served already", served.version);
                return Err(failure("superseded", 0, reason));
            }
            _ => {}
        }
        let published = pull.manifest.unwrap_or_default();
        let manifest = manifest::from_proto(&published).map_err(|e| corrupt(e.to_string()))?;
        if manifest.version.0 != pull.version || !manifest.same_layout(&self.layout) {
            return Err(corrupt(
                "the manifest is not of this model and version".into(),
            ));
        }
        let (at, buffer) = self.served.spare();
        let tracker = match self.partial.take() {
            Some((same, tracker)) if same == at && *tracker.manifest() == manifest => tracker,
            _ => PullTracker::new(manifest).map_err(|e| corrupt(e.to_string()))?,
        };
        let job = Fetch::new(self, ticket, &buffer, tracker);
        let fetched = job.run(&pull.sources);
        let tracker = job
            .tracker
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let complete = tracker.is_complete();
        if !complete {
            self.partial = Some((at, tracker));
        }
        self.superseded(ticket)?;
        match fetched {
            _ if complete => {}
            Err(error) => return Err(error),
            Ok(()) => return Err(failure("source", source, "the sources leave chunks out")),
        }
        self.swap(pull.version, &buffer)
            .map_err(|reason| failure("source", 0, reason))?;
        Ok(self.served.promote(at, pull.version, published))
    }

    fn swap(&self, version: u64, buffer: &Arc<Buffer>) -> Result<(), String> {
        let (done, answer) = channel();
        let ended = "the engine ended";
        self.engine
            .send(Command::Swap(version, Arc::clone(buffer), done))
            .map_err(|_| ended.to_owned())?;
        answer.recv().unwrap_or_else(|_| Err(ended.to_owned()))
    }
}

/// One assignment's fetches.
struct Fetch<'a> {
    worker: &'a Worker,
    ticket: u64,
    buffer: &'a Arc<Buffer>,
    tracker: Mutex<PullTracker>,
    version: u64,
    total: u64,
    /// Bytes done by each source, and when progress was reported.
    progress: Mutex<(Vec<u64>, Instant)>,
}

impl<'a> Fetch<'a> {
    fn new(worker: &'a Worker, ticket: u64, buffer: &'a Arc<Buffer>, tracker: PullTracker) -> Self {
        let (version, total) = (tracker.manifest().version.0, tracker.manifest().bytes);
        let progress = Mutex::new((Vec::new(), Instant::now()));
        let tracker = Mutex::new(tracker);
        Self {
            worker,
            ticket,
            buffer,
            tracker,
            version,
            total,
            progress,
        }
    }

    /// Reads from all sources at once; the first failure, if there is one.
    fn run(&self, sources: &[PullSource]) -> Result<(), PullError> {
        let have = self.tracker().verified_bytes();
        self.progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0 = vec![0; sources.len() + 1];
        self.advance(sources.len(), have, 0);
        std::thread::scope(|scope| {
            let running: Vec<_> = sources
                .iter()
                .enumerate()
                .map(|(at, source)| scope.spawn(move || self.fetch(at, source)))
                .collect();
            let ended = |_| Err(failure("source", 0, "a fetch thread panicked"));
            let results = running
                .into_iter()
                .map(|run| run.join().unwrap_or_else(ended));
            results.fold(Ok(()), Result::and)
        })
    }

    fn fetch(&self, at: usize, source: &PullSource) -> Result<(), PullError> {
        let failed = |reason: String| failure("source", source.incarnation, reason);
        let peer = source.transport_addr.parse();
        let peer = peer.map_err(|e| failed(format!("{:?}: {e}", source.transport_addr)))?;
        let region = source
            .region
            .as_ref()
            .ok_or_else(|| failed("no region".into()))?;
        let key = RegionKey::from_bytes(&region.key).map_err(|e| failed(e.to_string()))?;
        let end = source.first_chunk.saturating_add(source.chunk_count);
        let (chunks, parts) = self.missing(source.first_chunk..end);
        let arrived = |done| self.advance(at, done, source.incarnation);
        let transport = &self.worker.transport;
        let fetched = transport.fetch(peer, &key, &parts, self.buffer, arrived);
        let verified = self.verify(&chunks);
        self.worker.superseded(self.ticket)?;
        // Of a failed fetch some chunks may have come; that others did not is no corruption.
        fetched.map_err(|error| failed(error.to_string()))?;
        verified.map_err(|reason| failure("corrupt", source.incarnation, reason))
    }

    fn missing(&self, served: Range<u64>) -> (Vec<Range<u64>>, Vec<Part>) {
        let tracker = self.tracker();
        let (chunks, manifest) = (tracker.remaining_in(served), tracker.manifest());
        let part = |run: &Range<u64>| {
            let start = manifest.chunk_range(run.start)?.start;
            let end = manifest.chunk_range(run.end.checked_sub(1)?)?.end;
            Some(Part {
                src: start,
                dst: start,
                len: end - start,
            })
        };
        let parts = chunks.iter().filter_map(part).collect();
        (chunks, parts)
    }

    fn verify(&self, chunks: &[Range<u64>]) -> Result<(), String> {
        let mut result = Ok(());
        for chunk in chunks.iter().cloned().flatten() {
            let Some(range) = self.tracker().manifest().chunk_range(chunk) else {
                continue;
            };
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let read = self.buffer.read_at(range.start as usize, &mut bytes);
            let checked = read.map_err(|error| error.to_string()).and_then(|()| {
                self.tracker()
                    .accept(chunk, &bytes)
                    .map_err(|error| error.to_string())
            });
            result = result.and(checked);
        }
        result
    }

    fn advance(&self, at: usize, done: u64, source: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.0[at] = done;
        let bytes = progress.0.iter().sum();
        if progress.1.elapsed() >= PROGRESS_EVERY || bytes == self.total {
            progress.1 = Instant::now();
            let (version, total) = (self.version, self.total);
            let message = PullProgress {
                version,
                bytes,
                total,
                source,
            };
            self.worker.link.report(Body::PullProgress(message));
        }
    }

    fn tracker(&self) -> std::sync::MutexGuard<'_, PullTracker> {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failure(kind: &str, source: u64, reason: impl Into<String>) -> PullError {
    PullError {
        kind: kind.to_owned(),
        source,
        reason: reason.into(),
    }
}
