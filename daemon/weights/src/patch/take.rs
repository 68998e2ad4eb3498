//! A version made of the one that is served, by the patches of a source.
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use robust_shared::weights::{Manifest, PullTracker};
use robust_transport::{Arrived, Buffer, Cancel, FetchError, RoadKind, Transport, TransportError};

use super::code::Decoder;
use super::hand_out::HandOut;
use super::index::Index;
use super::{Offer, Patches};
use crate::slots::Slots;
use crate::types::Source;

/// Patches that lie one after the other are fetched as one part, to so many bytes: a part costs the same
/// however short it is.
const PART_BYTES: u64 = 128 << 10;

/// What is passed on of the patches that a pull uses.
pub(crate) struct Passing {
    base: [u8; 32],
    hand_out: HandOut,
    index: Option<Index>,
    room: Option<Arc<Buffer>>,
    /// Chunks whose patches are in the room.
    here: BTreeSet<u64>,
}

impl Passing {
    /// Readers may wait for the patches that make a version of these chunks of `base`.
    pub fn open(
        transport: &Transport,
        base: [u8; 32],
        manifest: &Manifest,
    ) -> Result<Self, TransportError> {
        Ok(Self {
            base,
            hand_out: HandOut::open(transport, manifest.chunk_xxh3.len())?,
            index: None,
            room: None,
            here: BTreeSet::new(),
        })
    }

    /// What readers need.
    pub fn offer(&self) -> Offer {
        let (base, key) = (self.base, *self.hand_out.key());
        Offer { base, key }
    }
}

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

/// Where chunks are made.
pub(crate) struct Take<'a> {
    pub transport: &'a Transport,
    pub slots: &'a Slots,
    /// What they are checked by.
    pub manifest: &'a Manifest,
    /// The version that they are made of.
    pub from: &'a Buffer,
    /// The slot that they come into, and its buffer.
    pub at: usize,
    pub into: &'a Buffer,
    pub cancel: &'a Cancel,
}

/// Patches that travel together.
struct Group {
    patches: Range<u64>,
    /// The chunks that they make, and where each one's patch lies.
    chunks: Vec<(u64, Range<u64>)>,
}

/// What a part of the patches brought.
pub(crate) struct Part {
    /// Bytes of the chunks that it made.
    pub bytes: u64,
    /// Patches that did not make what they should.
    pub wrong: u64,
    /// How it came.
    pub road: Option<RoadKind>,
}

impl Take<'_> {
    /// Makes every chunk that is missing and has a patch; `made` hears of it as they come. Answers how
    /// many words the version changed. Chunks whose patches do not make what the manifest says stay
    /// missing.
    pub fn run(
        &self,
        source: &Source,
        offer: &Offer,
        passing: &mut Option<Passing>,
        tracker: &mut PullTracker,
        mut made: impl FnMut(&PullTracker, Part),
    ) -> Result<u64, NotTaken> {
        let Some(on) = passing.as_mut() else {
            return Ok(0);
        };
        let (index, key) = self.index(source, offer)?;
        if on.index.as_ref().is_some_and(|mine| *mine != index) {
            return Err(unusable("its patches are other ones than those before"));
        }
        let changed = index.changed;
        if on.index.is_none() {
            on.room = on
                .hand_out
                .prepare(self.transport, &index)
                .map_err(unusable)?;
            on.index = Some(index);
        }
        let (Some(index), Some(key), Some(room)) = (&on.index, key, &on.room) else {
            return Ok(changed);
        };
        // Also those of chunks that are here: others may have them from nobody else.
        let groups = groups(index, &on.here);
        let part = |group: &Group| robust_transport::Part {
            src: group.patches.start,
            dst: group.patches.start,
            len: group.patches.end - group.patches.start,
        };
        let parts: Vec<robust_transport::Part> = groups.iter().map(part).collect();
        let mut maker = Maker::new().map_err(unusable)?;
        let (hand_out, here, transport) = (&on.hand_out, &mut on.here, self.transport);
        let arrived = |arrived: Arrived<'_>| {
            let Some((group, patches)) = groups.get(arrived.part).zip(arrived.bytes()) else {
                return;
            };
            // First of all: readers check for themselves, and what is wrong may be the version here.
            hand_out.ready(group.patches.clone());
            here.extend(group.chunks.iter().map(|(chunk, _)| *chunk));
            let (mut bytes, mut wrong) = (0, 0);
            for (chunk, patch) in &group.chunks {
                if tracker.has(*chunk) {
                    continue;
                }
                let within = within(patch, &group.patches);
                match self.make(&mut maker, *chunk, patches.get(within)) {
                    Ok(range) => {
                        tracker.verified(*chunk);
                        bytes += range.end - range.start;
                        self.slots.ready(self.at, range);
                    }
                    Err(reason) => {
                        tracing::warn!(
                            chunk,
                            reason,
                            "a patch is of no use; the chunk comes whole"
                        );
                        wrong += 1;
                    }
                }
            }
            let road = arrived.road();
            made(tracker, Part { bytes, wrong, road });
        };
        transport.fetch(source.addr, &key, &parts, room, self.cancel, arrived)?;
        Ok(changed)
    }

    /// Waits until the source has made it.
    fn index(
        &self,
        source: &Source,
        offer: &Offer,
    ) -> Result<(Index, Option<robust_transport::RegionKey>), NotTaken> {
        let chunks = self.manifest.chunk_xxh3.len();
        let bytes = Buffer::new(Index::bytes(chunks)).map_err(unusable)?;
        let whole = robust_transport::Part {
            src: 0,
            dst: 0,
            len: bytes.len() as u64,
        };
        self.transport.fetch(
            source.addr,
            &offer.key,
            &[whole],
            &bytes,
            self.cancel,
            |_| (),
        )?;
        let read = bytes.with_bytes(Index::from_bytes).map_err(unusable)?;
        let most = (self.manifest.bytes as f64 * Patches::MOST) as u64;
        let fits = |index: &Index| index.lengths.len() == chunks && index.total() <= most;
        let read = read.filter(|(index, _)| fits(index));
        read.ok_or_else(|| unusable("it is no index of this version's patches"))
    }

    /// Makes a chunk, if what comes of it is what the manifest says; where it lies.
    fn make(
        &self,
        maker: &mut Maker,
        chunk: u64,
        patch: Option<&[u8]>,
    ) -> Result<Range<u64>, String> {
        let range = self
            .manifest
            .chunk_range(chunk)
            .ok_or("there is no such chunk")?;
        let patch = patch.ok_or("it lies outside of its part")?;
        let start = range.start as usize;
        maker.bytes.resize((range.end - range.start) as usize, 0);
        let text = |error: &dyn std::fmt::Display| error.to_string();
        self.from
            .read_at(start, &mut maker.bytes)
            .map_err(|e| text(&e))?;
        maker
            .decoder
            .apply(patch, &mut maker.bytes)
            .map_err(|e| text(&e))?;
        // Nobody is told of the chunk before it turned out right.
        let digest = self.into.write_digested(start, &maker.bytes);
        let digest = digest.map_err(|e| text(&e))?;
        let verified = self
            .manifest
            .verify_digest(chunk, maker.bytes.len() as u64, || digest);
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

/// The patches that are missing, together where they lie together.
fn groups(index: &Index, here: &BTreeSet<u64>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (chunk, patch) in index.patches().filter(|(chunk, _)| !here.contains(chunk)) {
        let fits = |group: &&mut Group| {
            let together = patch.end - group.patches.start <= PART_BYTES;
            group.patches.end == patch.start && together
        };
        match groups.last_mut().filter(fits) {
            Some(group) => {
                group.patches.end = patch.end;
                group.chunks.push((chunk, patch));
            }
            None => groups.push(Group {
                patches: patch.clone(),
                chunks: vec![(chunk, patch)],
            }),
        }
    }
    groups
}

/// Where a patch lies in what its group brought.
fn within(patch: &Range<u64>, group: &Range<u64>) -> Range<usize> {
    (patch.start - group.start) as usize..(patch.end - group.start) as usize
}
