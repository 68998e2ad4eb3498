//! A version made of one that was served before it, by the patches of a source.
use std::collections::BTreeSet;
use std::ops::Range;

use robust_shared::weights::{Manifest, PullTracker};
use robust_transport::{Arrived, Buffer, Cancel, FetchError, RegionKey, RoadKind, Transport};

use super::code::Decoder;
use super::index::{Index, WHOLE};
use super::passing::{Group, Known, Passing, groups};
use super::{Chain, Patches};
use crate::types::{Link, Source};

/// Why patches make no version. Everything that they made so far is verified and stays.
pub(crate) enum NotTaken {
    /// These patches cannot be used: whole chunks can.
    Unusable(String),
    /// The fetch failed, as one of whole chunks would have.
    Failed(FetchError),
}

impl From<FetchError> for NotTaken {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Refused { .. }
            | FetchError::StaleKey { .. }
            | FetchError::Bounds { .. } => Self::Unusable(error.to_string()),
            error => Self::Failed(error),
        }
    }
}

fn unusable(error: impl ToString) -> NotTaken {
    NotTaken::Unusable(error.to_string())
}

/// Two slots as those see them who make chunks in one of them.
pub(crate) trait Filled {
    /// The readers of this slot may have these bytes.
    fn ready(&self, at: usize, range: Range<u64>);

    /// Keeps so many of the links that led to what is served, and so many bytes of their patches.
    fn keep_links(&self, links: usize, bytes: u64);
}

/// Where chunks are made.
pub(crate) struct Take<'a> {
    pub transport: &'a Transport,
    pub slots: &'a dyn Filled,
    /// What they are checked by.
    pub manifest: &'a Manifest,
    /// The version that they are made of, and its bytes.
    pub base: &'a Manifest,
    pub from: &'a Buffer,
    /// The slot that they come into, and its buffer.
    pub at: usize,
    pub into: &'a Buffer,
    pub cancel: &'a Cancel,
}

/// What a part of the patches brought.
#[derive(Default)]
pub(crate) struct Part {
    /// Bytes of the chunks that it made.
    pub bytes: u64,
    /// Patches that did not make what they should.
    pub wrong: u64,
    /// How it came.
    pub road: Option<RoadKind>,
}

impl Take<'_> {
    /// Makes every chunk that is missing and has patches; `came` hears of it as they come. Answers how
    /// many words the version changed. Chunks whose patches do not make what the manifest says stay
    /// missing.
    ///
    /// Links are taken in their order, so what led to the version before is here while the source still makes
    /// the newest patches. Which link a chunk is complete with is known with the newest index.
    pub fn run(
        &self,
        source: &Source,
        way: &[Link],
        passing: &mut Option<Passing>,
        tracker: &mut PullTracker,
        mut came: impl FnMut(&PullTracker, Part),
    ) -> Result<u64, NotTaken> {
        let Some(on) = passing.as_mut() else {
            return Ok(0);
        };
        let mut maker = Maker::new().map_err(unusable)?;
        let newest = way.len().saturating_sub(1);
        for (at, link) in way.iter().enumerate() {
            let key = self.learn(source, link, (&mut *on, at))?;
            self.check_worth(on)?;
            if at == newest && !std::mem::replace(&mut on.older_applied, true) {
                for chunk in on.complete_before(newest) {
                    let part = self.make_all(&mut maker, &[chunk], on, tracker);
                    came(tracker, part);
                }
            }
            let Some(key) = key else { continue };
            self.fetch(source, &key, (&mut *on, at), |on, chunks, road| {
                let complete = |chunk: &u64| at == newest && on.last(*chunk) == Some(newest);
                let complete: Vec<u64> = chunks.iter().copied().filter(complete).collect();
                let part = self.make_all(&mut maker, &complete, on, tracker);
                came(tracker, Part { road, ..part });
            })?;
        }
        let known = on.links.last().and_then(|passed| passed.known.as_ref());
        Ok(known.map_or(0, |known| known.index.changed))
    }

    /// Makes those of these chunks that are missing.
    fn make_all(
        &self,
        maker: &mut Maker,
        chunks: &[u64],
        on: &Passing,
        tracker: &mut PullTracker,
    ) -> Part {
        let mut part = Part::default();
        for &chunk in chunks {
            if tracker.has(chunk) {
                continue;
            }
            match self.make(maker, chunk, on) {
                Ok(range) => {
                    tracker.verified(chunk);
                    part.bytes += range.end - range.start;
                    self.slots.ready(self.at, range);
                }
                Err(reason) => {
                    tracing::warn!(chunk, reason, "a patch is of no use; the chunk comes whole");
                    part.wrong += 1;
                }
            }
        }
        part
    }

    /// Gets the index of a link, as soon as the source has it, and lets others wait for its patches here;
    /// where they are.
    fn learn(
        &self,
        source: &Source,
        link: &Link,
        (on, at): (&mut Passing, usize),
    ) -> Result<Option<RegionKey>, NotTaken> {
        let (index, key) = self.index(source, link)?;
        let passed = on.links.get_mut(at);
        let passed = passed.ok_or_else(|| unusable("there is no such link"))?;
        match &passed.known {
            Some(mine) if mine.index == index => {}
            Some(_) => return Err(unusable("its patches are other ones than those before")),
            None => {
                let hand_out = &mut passed.hand_out;
                passed.known = Some(Known {
                    room: hand_out.prepare(self.transport, &index).map_err(unusable)?,
                    places: index.patches().collect(),
                    index,
                    here: BTreeSet::new(),
                });
            }
        }
        Ok(key)
    }

    /// Refuses links that, as far as they are known, take more memory than a process has for them, or, of
    /// several, more bytes than what they save. A chunk's patches are all fetched, since others may have them
    /// from nobody else; so it is for the version that this is decided, and not for each chunk.
    fn check_worth(&self, on: &Passing) -> Result<(), NotTaken> {
        let known = on.links.iter().filter_map(|passed| passed.known.as_ref());
        let indexes: Vec<&Index> = known.map(|known| &known.index).collect();
        let total: u64 = indexes.iter().map(|index| index.total()).sum();
        let left = (2 * Patches::most(self.manifest.bytes)).checked_sub(total);
        let left = left.ok_or_else(|| unusable("so many patches have no room here"))?;
        let same: BTreeSet<u64> = self.manifest.same_chunks(self.base).collect();
        let (mut all, mut whole) = (0, 0);
        for chunk in (0..self.manifest.chunks()).filter(|chunk| !same.contains(chunk)) {
            let range = self.manifest.chunk_range(chunk).unwrap_or_default();
            let bytes = range.end - range.start;
            let is_whole = |index: &&Index| index.lengths.get(chunk as usize) == Some(&WHOLE);
            all += bytes;
            whole += if indexes.iter().any(is_whole) {
                bytes
            } else {
                0
            };
        }
        if on.links.len() > 1 && total + whole >= all {
            return Err(unusable("what changed since is no shorter than all of it"));
        }
        // What is kept of the versions before makes room.
        self.slots.keep_links(Chain::MOST_LINKS, left);
        Ok(())
    }

    /// Waits until the source has made it.
    fn index(&self, source: &Source, link: &Link) -> Result<(Index, Option<RegionKey>), NotTaken> {
        let chunks = self.manifest.chunk_xxh3.len();
        let bytes = Buffer::new(Index::bytes(chunks)).map_err(unusable)?;
        let whole = robust_transport::Part {
            src: 0,
            dst: 0,
            len: bytes.len() as u64,
        };
        self.transport.fetch(
            source.addr,
            &link.key,
            &[whole],
            &bytes,
            self.cancel,
            |_| (),
        )?;
        let read = bytes.with_bytes(Index::from_bytes).map_err(unusable)?;
        let most = Patches::most(self.manifest.bytes);
        let fits = |index: &Index| index.lengths.len() == chunks && index.total() <= most;
        let read = read.filter(|(index, _)| fits(index));
        read.ok_or_else(|| unusable("it is no index of this version's patches"))
    }

    /// Fetches the patches of a link that are missing here; `arrived` hears of the chunks of each group, which
    /// others can read here by then: they check for themselves, and what is wrong may be the version here.
    fn fetch(
        &self,
        source: &Source,
        key: &RegionKey,
        (on, link): (&mut Passing, usize),
        mut arrived: impl FnMut(&Passing, &[u64], Option<RoadKind>),
    ) -> Result<(), NotTaken> {
        let Some(known) = on.links[link].known.as_ref() else {
            return Ok(());
        };
        let Some(room) = known.room.clone() else {
            return Ok(());
        };
        // Also those of chunks that are here: others may have them from nobody else.
        let groups = groups(known);
        if groups.is_empty() {
            return Ok(());
        }
        let part = |group: &Group| robust_transport::Part {
            src: group.patches.start,
            dst: group.patches.start,
            len: group.patches.end - group.patches.start,
        };
        let parts: Vec<robust_transport::Part> = groups.iter().map(part).collect();
        let came = |came: Arrived<'_>| {
            let Some(group) = groups.get(came.part) else {
                return;
            };
            let passed = &mut on.links[link];
            passed.hand_out.ready(group.patches.clone());
            if let Some(known) = &mut passed.known {
                known.here.extend(&group.chunks);
            }
            arrived(on, &group.chunks, came.road());
        };
        self.transport
            .fetch(source.addr, key, &parts, &room, self.cancel, came)?;
        Ok(())
    }

    /// Makes a chunk by the patches of all links that have one, if what comes of it is what the manifest
    /// says; where it lies.
    fn make(&self, maker: &mut Maker, chunk: u64, on: &Passing) -> Result<Range<u64>, String> {
        let range = self
            .manifest
            .chunk_range(chunk)
            .ok_or("there is no such chunk")?;
        let start = range.start as usize;
        let Maker { bytes, decoder } = maker;
        bytes.resize((range.end - range.start) as usize, 0);
        let text = |error: &dyn std::fmt::Display| error.to_string();
        self.from.read_at(start, bytes).map_err(|e| text(&e))?;
        for (patch, room) in on.patches(chunk) {
            let applied = room.with_range(patch, |patch| decoder.apply(patch, bytes));
            applied.map_err(|e| text(&e))?.map_err(|e| text(&e))?;
        }
        // Nobody is told of the chunk before it turned out right.
        let digest = self.into.write_digested(start, bytes);
        let digest = digest.map_err(|e| text(&e))?;
        let verified = self
            .manifest
            .verify_digest(chunk, bytes.len() as u64, || digest);
        verified.map_err(|e| text(&e))?;
        // Patches travel between machines, where the quick digest is no proof.
        let blake3 = *blake3::hash(bytes).as_bytes();
        let verified = self.manifest.verify_blake3(chunk, &blake3);
        verified.map_err(|e| text(&e))?;
        Ok(range)
    }
}

/// A chunk while it is made, so that it is digested where it is in the cache.
struct Maker {
    bytes: Vec<u8>,
    decoder: Decoder,
}

impl Maker {
    fn new() -> std::io::Result<Self> {
        let (bytes, decoder) = (Vec::new(), Decoder::new()?);
        Ok(Self { bytes, decoder })
    }
}
