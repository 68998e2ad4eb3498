//! What a puller has: verified chunks stay, whatever source they came from.
//!
//! ```text
//!   missing ──arrived, but not all of it──► partial ──last byte──► whole ──digest right──► verified
//!      ▲                                                            │
//!      └───────────────────────── digest wrong ─────────────────────┘
//! ```
//! Happy path: [`PullTracker::pieces`] cuts what the sources have into pieces of one chunk each, the
//! puller fetches them, says of each that it [`PullTracker::arrived`], checks the chunk when that
//! says it is whole, and notes the result with [`PullTracker::verified`].
use super::manifest::{Manifest, ManifestError};
use super::ranges::Ranges;
use std::ops::Range;
use std::sync::Arc;

/// The progress of one pull. When a source dies, what arrived stays and the rest is asked of others.
#[derive(Clone, Debug)]
pub struct PullTracker {
    manifest: Arc<Manifest>,
    verified: Vec<bool>,
    missing_chunks: u64,
    verified_bytes: u64,
    /// Bytes in the buffer, verified or not yet.
    here: Ranges,
    here_bytes: u64,
}

/// Bytes to fetch from one source, never of two chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The chunk it belongs to.
    pub chunk: u64,
    /// Offset in the source's region.
    pub src: u64,
    /// Offset in our buffer.
    pub dst: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Piece {
    /// Its place in our buffer.
    pub fn range(&self) -> Range<u64> {
        self.dst..self.dst + self.len
    }
}

impl PullTracker {
    /// Nothing fetched yet. Refuses a manifest that describes no buffer.
    pub fn new(manifest: impl Into<Arc<Manifest>>) -> Result<Self, ManifestError> {
        let manifest = manifest.into();
        manifest.check()?;
        let missing_chunks = manifest.chunks();
        Ok(Self {
            verified: vec![false; manifest.chunk_xxh3.len()],
            manifest,
            missing_chunks,
            verified_bytes: 0,
            here: Ranges::default(),
            here_bytes: 0,
        })
    }

    /// The same buffer seen as another version: chunks that are verified and have the same bytes
    /// there stay verified.
    pub fn succeed(&self, manifest: impl Into<Arc<Manifest>>) -> Result<Self, ManifestError> {
        let mut next = Self::new(manifest)?;
        let manifest = Arc::clone(&next.manifest);
        for chunk in manifest.same_chunks(&self.manifest) {
            if self.has(chunk) {
                next.verified(chunk);
            }
        }
        Ok(next)
    }

    /// What is pulled.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// What to fetch from whom: every missing byte that one of the sources has, once, from the first
    /// that has it. A source is its runs of `(src, dst, len)`; what lies outside of the buffer is
    /// ignored. Pieces are in the order of our buffer.
    pub fn pieces(&self, sources: &[Vec<(u64, u64, u64)>]) -> Vec<Vec<Piece>> {
        let mut taken = self.here.clone();
        let mut of_each = Vec::with_capacity(sources.len());
        for runs in sources {
            let mut pieces: Vec<Piece> = Vec::new();
            for &(src, dst, len) in runs {
                let end = dst.saturating_add(len).min(self.manifest.bytes);
                for gap in taken.missing(dst..end) {
                    taken.insert(gap.clone());
                    self.cut(gap, (src, dst), &mut pieces);
                }
            }
            pieces.sort_by_key(|piece| piece.dst);
            of_each.push(pieces);
        }
        of_each
    }

    /// A range without holes as pieces; `at` is where one and the same byte lies in the source's
    /// region and in our buffer.
    fn cut(&self, range: Range<u64>, at: (u64, u64), pieces: &mut Vec<Piece>) {
        let step = self.manifest.chunk_bytes;
        let mut dst = range.start;
        while dst < range.end {
            let chunk = dst / step;
            let len = range.end.min((chunk * step).saturating_add(step)) - dst;
            let src = at.0.saturating_add(dst - at.1);
            pieces.push(Piece {
                chunk,
                src,
                dst,
                len,
            });
            dst += len;
        }
    }

    /// Notes that these bytes of a chunk lie in the buffer; whether now all of it does, so that it
    /// is to be checked and told to [`Self::verified`] or [`Self::refused`].
    pub fn arrived(&mut self, piece: &Piece) -> bool {
        self.put(piece.range());
        let chunk = self.manifest.chunk_range(piece.chunk);
        !self.has(piece.chunk) && chunk.is_some_and(|chunk| self.here.contains(&chunk))
    }

    /// Notes that a chunk's bytes are the published ones: the caller checked with
    /// [`Manifest::verify_chunk`] or [`Manifest::verify_digest`]. Saying it twice changes nothing.
    pub fn verified(&mut self, chunk: u64) {
        let slot = usize::try_from(chunk)
            .ok()
            .and_then(|at| self.verified.get_mut(at));
        if let (Some(slot @ false), Some(range)) = (slot, self.manifest.chunk_range(chunk)) {
            *slot = true;
            self.missing_chunks -= 1;
            self.verified_bytes += range.end - range.start;
            self.put(range);
        }
    }

    /// Notes that a chunk's bytes are others than the published ones: all of it is missing again.
    pub fn refused(&mut self, chunk: u64) {
        if let Some(range) = self.manifest.chunk_range(chunk)
            && !self.has(chunk)
        {
            let gone = range.end - range.start - total(&self.here.missing(range.clone()));
            self.here_bytes -= gone;
            self.here.remove(range);
        }
    }

    fn put(&mut self, range: Range<u64>) {
        self.here_bytes += total(&self.here.missing(range.clone()));
        self.here.insert(range);
    }

    /// Whether the chunk was verified.
    pub fn has(&self, chunk: u64) -> bool {
        usize::try_from(chunk).is_ok_and(|at| self.verified.get(at) == Some(&true))
    }

    /// Chunks verified.
    pub fn verified_chunks(&self) -> u64 {
        self.manifest.chunks() - self.missing_chunks
    }

    /// Bytes verified.
    pub fn verified_bytes(&self) -> u64 {
        self.verified_bytes
    }

    /// Bytes in the buffer: verified, or of chunks that are not whole yet.
    pub fn bytes_here(&self) -> u64 {
        self.here_bytes
    }

    /// Whether every chunk is verified: the buffer is the published version.
    pub fn is_complete(&self) -> bool {
        self.missing_chunks == 0
    }

    /// Runs of chunks that are verified, in order.
    pub fn verified_runs(&self) -> Vec<Range<u64>> {
        runs((0..self.verified.len() as u64).filter(|&chunk| self.has(chunk)))
    }
}

fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Numbers in order as ranges.
fn runs(chunks: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for chunk in chunks {
        match runs.last_mut() {
            Some(run) if run.end == chunk => run.end += 1,
            _ => runs.push(chunk..chunk + 1),
        }
    }
    runs
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
