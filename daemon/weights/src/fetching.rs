//! One order's fetches, all at once; each chunk is verified and passed on as it comes.
use std::ops::Range;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use robust_shared::ids::Incarnation;
use robust_shared::weights::{ChunkError, Manifest, Piece, PullTracker};
use robust_transport::{
    Arrived, Buffer, BufferError, Cancel, Duty, FetchError, Part, RoadKind, Transport,
};

use crate::meter::Meter;
use crate::slots::Slots;
use crate::types::{Observer, Progress, PullError, PullErrorKind, Source};

/// Pause between two reports.
pub(crate) const REPORT_EVERY: Duration = Duration::from_millis(100);

/// The first bytes are reported sooner: they say that the sources work.
const FIRST_REPORT: Duration = Duration::from_millis(10);

/// Where a pull goes and who hears of it.
pub(crate) struct Fetching<'a> {
    pub transport: &'a Transport,
    pub slots: &'a Slots,
    pub observer: &'a dyn Observer,
    pub manifest: Arc<Manifest>,
    /// The slot that is filled, and its buffer.
    pub at: usize,
    pub buffer: &'a Arc<Buffer>,
    /// Bytes that earlier orders of this version fetched.
    pub fetched_before: u64,
    /// What patches made before.
    pub made: Made,
    pub cancels: Vec<Cancel>,
    pub state: Mutex<State>,
}

/// Who sent the latest piece, and the road that it took.
pub(crate) type Latest = Option<(Incarnation, Option<RoadKind>)>;

/// What patches made of a version.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Made {
    /// Bytes of the chunks.
    pub bytes: u64,
    /// Words of two bytes that the version changed in them.
    pub changed_words: u64,
    /// Patches that did not make what they should: those chunks came whole.
    pub wrong_patches: u64,
}

pub(crate) struct State {
    pub tracker: PullTracker,
    pub meter: Meter,
    pub latest: Latest,
    /// The first reason to stop.
    pub failure: Option<PullError>,
}

/// One fetch: pieces of one source.
pub(crate) struct Lane<'a> {
    pub source: &'a Source,
    pub pieces: Vec<Piece>,
}

impl Fetching<'_> {
    /// Fetches all lanes, and reports meanwhile; the first failure ends all.
    pub fn run(&self, lanes: &[Lane<'_>]) {
        std::thread::scope(|scope| {
            let (running, ended) = channel::<()>();
            let start = |(lane, cancel)| {
                // Gone with the thread, also by a panic.
                let running = running.clone();
                let fetch = move || {
                    self.fetch(lane, cancel);
                    drop(running);
                };
                let started = std::thread::Builder::new().spawn_scoped(scope, fetch);
                let failed = |error: std::io::Error| {
                    let reason = format!("starting a thread: {error}");
                    self.fail(PullErrorKind::Source, None, &reason);
                };
                started.map_err(failed).ok()
            };
            let threads: Vec<_> = lanes.iter().zip(&self.cancels).filter_map(start).collect();
            drop(running);
            let (mut reported, mut pause) = (self.extent(), FIRST_REPORT);
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let extent = self.extent();
                if reported != extent {
                    (reported, pause) = (extent, REPORT_EVERY);
                    self.report();
                }
            }
            for thread in threads {
                if thread.join().is_err() {
                    self.fail(PullErrorKind::Source, None, "a fetch's thread panicked");
                }
            }
        });
        self.report();
    }

    /// Bytes that came over the network for this version.
    pub fn fetched(&self) -> u64 {
        self.fetched_before + self.cancels.iter().map(Cancel::fetched).sum::<u64>()
    }

    fn fetch(&self, lane: &Lane<'_>, cancel: &Cancel) {
        let Source { id, addr, key, .. } = lane.source;
        let part = |piece: &Piece| Part {
            src: piece.src,
            dst: piece.dst,
            len: piece.len,
        };
        let parts: Vec<Part> = lane.pieces.iter().map(part).collect();
        let mut duty = self.transport.share().duty();
        let fetched = self
            .transport
            .fetch(*addr, key, &parts, self.buffer, cancel, |arrived| {
                if let Some(piece) = lane.pieces.get(arrived.part) {
                    self.arrived(*id, piece, &arrived, &mut duty);
                }
            });
        match fetched {
            Ok(_) | Err(FetchError::Cancelled) => {}
            Err(error) => {
                let source = Some(*id).filter(|_| !is_own(&error));
                self.fail(PullErrorKind::Source, source, &error.to_string());
            }
        }
    }

    fn arrived(&self, source: Incarnation, piece: &Piece, arrived: &Arrived<'_>, duty: &mut Duty) {
        let mut state = self.state();
        state.latest = Some((source, arrived.road()));
        let whole = state.tracker.arrived(piece);
        drop(state);
        if crossed(arrived) && !self.manifest.has_blake3() {
            self.state().tracker.refused(piece.chunk);
            let reason = ChunkError::Nameless.to_string();
            return self.fail(PullErrorKind::Corrupt, None, &reason);
        }
        if let Some(range) = self.manifest.chunk_range(piece.chunk).filter(|_| whole) {
            let (kind, to_blame, reason) = match self.verify(piece, &range, arrived, duty) {
                Ok(Ok(())) => {
                    self.state().tracker.verified(piece.chunk);
                    return self.slots.ready(self.at, range);
                }
                // Of a chunk that came from several, nobody knows whose part is wrong.
                Ok(Err(wrong)) => {
                    let whose = (piece.range() == range).then_some(source);
                    (PullErrorKind::Corrupt, whose, wrong.to_string())
                }
                // Our own memory cannot be read: no source is to blame.
                Err(own) => (PullErrorKind::Source, None, own.to_string()),
            };
            self.state().tracker.refused(piece.chunk);
            self.fail(kind, to_blame, &reason);
        }
    }

    /// Checks a chunk whose last piece this is. Of one that came in one piece the digest was taken on
    /// the way; others are read once more. What crossed machines, or may have in part, has to have the
    /// BLAKE3 that was published besides.
    fn verify(
        &self,
        piece: &Piece,
        range: &Range<u64>,
        arrived: &Arrived<'_>,
        duty: &mut Duty,
    ) -> Result<Result<(), ChunkError>, BufferError> {
        let (manifest, chunk) = (&self.manifest, piece.chunk);
        let at_once = piece.range() == *range;
        let bytes = range.start as usize..range.end as usize;
        let digest = match at_once {
            true => arrived.digest()?,
            false => self.buffer.digest(bytes.clone())?,
        };
        let length = range.end - range.start;
        if let Err(wrong) = manifest.verify_digest(chunk, length, || digest) {
            return Ok(Err(wrong));
        }
        if !manifest.has_blake3() || (at_once && !crossed(arrived)) {
            return Ok(Ok(()));
        }
        let digest = match at_once {
            true => arrived.blake3()?,
            false => self.buffer.blake3(bytes)?,
        };
        duty.rest_fully();
        Ok(manifest.verify_blake3(chunk, &digest))
    }

    fn fail(&self, kind: PullErrorKind, source: Option<Incarnation>, reason: &str) {
        let mut state = self.state();
        let error = || PullError::new(kind, source, reason);
        state.failure.get_or_insert_with(error);
        drop(state);
        self.cancels.iter().for_each(Cancel::cancel);
    }

    /// How far it is: bytes over the network, bytes in whole pieces, chunks. The first run ahead.
    fn extent(&self) -> (u64, u64, u64) {
        let fetched = self.fetched();
        let tracker = &self.state().tracker;
        (fetched, tracker.bytes_here(), tracker.verified_chunks())
    }

    fn report(&self) {
        let mut state = self.state();
        let fetched = self.fetched();
        let since = fetched - self.fetched_before;
        let bytes_per_s = state.meter.mark(Instant::now(), since);
        let progress = progress(
            &state.tracker,
            state.latest,
            bytes_per_s,
            fetched,
            self.made,
        );
        drop(state);
        self.observer.progress(progress);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether it came from another machine, or may have.
fn crossed(arrived: &Arrived<'_>) -> bool {
    arrived.road() != Some(RoadKind::Shm)
}

/// How far a pull is.
pub(crate) fn progress(
    tracker: &PullTracker,
    latest: Latest,
    bytes_per_s: u64,
    fetched: u64,
    made: Made,
) -> Progress {
    let manifest = tracker.manifest();
    Progress {
        version: manifest.version,
        bytes: tracker.bytes_here(),
        total: manifest.bytes,
        chunks: tracker.verified_chunks(),
        chunks_total: manifest.chunks(),
        source: latest.map(|(source, _)| source),
        road: latest.and_then(|(_, road)| road),
        bytes_per_s,
        fetched,
        patched: made.bytes,
        changed_words: made.changed_words,
        wrong_patches: made.wrong_patches,
    }
}

/// Whether a fetch failed for a reason on this side: no source is to blame.
pub(crate) fn is_own(error: &FetchError) -> bool {
    matches!(
        error,
        FetchError::Buffer(_)
            | FetchError::Overlap { .. }
            | FetchError::Bounds { .. }
            | FetchError::Shutdown
    )
}
