//! What is passed on of the patches that a pull uses, link by link.
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use robust_shared::weights::Manifest;
use robust_transport::{Buffer, Transport, TransportError};

use super::chain::Kept;
use super::hand_out::HandOut;
use super::index::{Index, WHOLE};
use crate::types::Link;

/// Patches that lie one after the other are fetched as one part, to so many bytes: a part costs the same
/// however short it is.
const PART_BYTES: u64 = 128 << 10;

/// What is passed on of the patches that a pull uses.
pub(crate) struct Passing {
    /// The oldest first.
    pub(super) links: Vec<Passed>,
    /// The chunks that the newest link does not change were tried.
    pub(super) older_applied: bool,
}

/// One link.
pub(super) struct Passed {
    base: [u8; 32],
    pub hand_out: HandOut,
    pub known: Option<Known>,
}

/// A link whose index is here.
pub(super) struct Known {
    pub index: Index,
    /// Where each chunk's patch lies in the room.
    pub places: BTreeMap<u64, Range<u64>>,
    pub room: Option<Arc<Buffer>>,
    /// Chunks whose patches are in the room.
    pub here: BTreeSet<u64>,
}

impl Passing {
    /// Readers may wait for the patches that make a version of these chunks by these links.
    pub fn open(
        transport: &Transport,
        way: &[Link],
        manifest: &Manifest,
    ) -> Result<Self, TransportError> {
        let chunks = manifest.chunk_xxh3.len();
        let open = |link: &Link| {
            Ok(Passed {
                base: link.base,
                hand_out: HandOut::open(transport, chunks)?,
                known: None,
            })
        };
        let links = way
            .iter()
            .map(open)
            .collect::<Result<_, TransportError>>()?;
        let older_applied = false;
        Ok(Self {
            links,
            older_applied,
        })
    }

    /// Whether these are links of the same versions.
    pub fn is_along(&self, way: &[Link]) -> bool {
        let bases = self.links.iter().map(|passed| passed.base);
        bases.eq(way.iter().map(|link| link.base))
    }

    /// What readers need.
    pub fn links(&self) -> Vec<Link> {
        let link = |passed: &Passed| Link {
            base: passed.base,
            key: *passed.hand_out.key(),
        };
        self.links.iter().map(link).collect()
    }

    /// The links that made this content, to be kept; none if patches are missing.
    pub fn kept(self, content: [u8; 32]) -> Vec<Kept> {
        let complete = |passed: &Passed| {
            let known = passed.known.as_ref();
            known.is_some_and(|known| known.here.len() == known.places.len())
        };
        if !self.links.iter().all(complete) {
            return Vec::new();
        }
        let next = self.links.iter().skip(1).map(|passed| passed.base);
        let makes: Vec<_> = next.chain([content]).collect();
        let kept = |(passed, makes): (Passed, [u8; 32])| Kept {
            base: passed.base,
            makes,
            hand_out: passed.hand_out,
        };
        self.links.into_iter().zip(makes).map(kept).collect()
    }

    /// The link that a chunk is complete with: the last one that changes it. None where it comes whole, or
    /// did not change.
    pub(super) fn last(&self, chunk: u64) -> Option<usize> {
        let of = |passed: &Passed| {
            passed
                .known
                .as_ref()?
                .index
                .lengths
                .get(chunk as usize)
                .copied()
        };
        let mut last = None;
        for (link, passed) in self.links.iter().enumerate() {
            match of(passed)? {
                0 => {}
                WHOLE => return None,
                _ => last = Some(link),
            }
        }
        last
    }

    /// The chunks that are complete before this link.
    pub(super) fn complete_before(&self, link: usize) -> Vec<u64> {
        let older = self.links.iter().take(link);
        let known = older.filter_map(|passed| passed.known.as_ref());
        let changed: BTreeSet<u64> = known
            .flat_map(|known| known.places.keys().copied())
            .collect();
        let complete = |chunk: &u64| self.last(*chunk).is_some_and(|last| last < link);
        changed.into_iter().filter(complete).collect()
    }

    /// Where the patches of a chunk lie, in the order in which they are applied.
    pub(super) fn patches(&self, chunk: u64) -> impl Iterator<Item = (Range<usize>, &Buffer)> {
        self.links.iter().filter_map(move |passed| {
            let known = passed.known.as_ref()?;
            let patch = known.places.get(&chunk)?;
            let patch = patch.start as usize..patch.end as usize;
            Some((patch, known.room.as_deref()?))
        })
    }
}

/// Patches that travel together.
pub(super) struct Group {
    pub patches: Range<u64>,
    /// The chunks that they change.
    pub chunks: Vec<u64>,
}

/// The patches that are missing, together where they lie together.
pub(super) fn groups(known: &Known) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let missing = known
        .places
        .iter()
        .filter(|(chunk, _)| !known.here.contains(chunk));
    for (&chunk, patch) in missing {
        let fits = |group: &&mut Group| {
            let together = patch.end - group.patches.start <= PART_BYTES;
            group.patches.end == patch.start && together
        };
        match groups.last_mut().filter(fits) {
            Some(group) => {
                group.patches.end = patch.end;
                group.chunks.push(chunk);
            }
            None => groups.push(Group {
                patches: patch.clone(),
                chunks: vec![chunk],
            }),
        }
    }
    groups
}
