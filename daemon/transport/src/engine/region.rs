//! Regions that peers may read, and reads that wait for their bytes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::road::LinkId;

/// A buffer that peers may read.
pub(super) struct Region {
    pub buffer: Arc<Buffer>,
    ready: Ready,
    /// Reads of bytes that are not there yet, oldest first.
    parked: Vec<Parked>,
}

enum Ready {
    All,
    Only(RangeSet),
}

/// A read within the region's bounds that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parked {
    pub link: LinkId,
    pub token: u64,
    pub offset: usize,
    pub len: usize,
}

impl Parked {
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

impl Region {
    pub fn new(buffer: Arc<Buffer>, growing: bool) -> Region {
        let ready = if growing {
            Ready::Only(RangeSet::default())
        } else {
            Ready::All
        };
        Region {
            buffer,
            ready,
            parked: Vec::new(),
        }
    }

    pub fn is_ready(&self, range: &Range<usize>) -> bool {
        match &self.ready {
            Ready::All => true,
            Ready::Only(set) => set.covers(range),
        }
    }

    pub fn park(&mut self, read: Parked) {
        self.parked.push(read);
    }

    /// Adds what is there now; answers the reads that waited for it.
    #[must_use]
    pub fn grow(&mut self, range: Range<usize>) -> Vec<Parked> {
        let Ready::Only(set) = &mut self.ready else {
            return Vec::new();
        };
        set.insert(range);
        self.parked
            .extract_if(.., |read| set.covers(&read.range()))
            .collect()
    }

    /// Takes out the reads for which `which` holds.
    pub fn take_parked(&mut self, which: impl Fn(&Parked) -> bool) -> Vec<Parked> {
        self.parked.extract_if(.., |read| which(read)).collect()
    }

    pub fn parked(&self) -> &[Parked] {
        &self.parked
    }
}

/// Disjoint ranges by their start, neighbours merged.
#[derive(Default)]
struct RangeSet(BTreeMap<usize, usize>);

impl RangeSet {
    fn insert(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        // Whatever touches it becomes part of it; the last first, so that each look is the last.
        while let Some((&other, &until)) = self.0.range(..=end).next_back()
            && until >= start
        {
            self.0.remove(&other);
            (start, end) = (start.min(other), end.max(until));
        }
        self.0.insert(start, end);
    }

    fn covers(&self, range: &Range<usize>) -> bool {
        let last = self.0.range(..=range.start).next_back();
        range.is_empty() || last.is_some_and(|(_, until)| *until >= range.end)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against one flag for each byte.
        #[test]
        fn a_read_waits_until_all_its_bytes_are_ready(
            grown in proptest::collection::vec((0..50usize, 0..14usize), 0..30),
            reads in proptest::collection::vec((0..50usize, 1..14usize), 0..12),
        ) {
            let mut region = Region::new(Buffer::new(64).unwrap(), true);
            let mut there = [false; 64];
            let mut waiting: Vec<Parked> = Vec::new();
            for (token, (offset, len)) in (0..).zip(reads) {
                let read = Parked { link: 1, token, offset, len };
                prop_assert!(!region.is_ready(&read.range()));
                region.park(read);
                waiting.push(read);
            }
            for (start, len) in grown {
                there[start..start + len].fill(true);
                let woken = region.grow(start..start + len);
                let all = |read: &Parked| there[read.range()].iter().all(|byte| *byte);
                let due: Vec<Parked> = waiting.extract_if(.., |read| all(read)).collect();
                prop_assert_eq!(woken, due);
                for at in 0..64 {
                    for end in at..64 {
                        let ready = there[at..end].iter().all(|byte| *byte);
                        prop_assert_eq!(region.is_ready(&(at..end)), ready);
                    }
                }
            }
            prop_assert_eq!(region.parked(), &waiting[..]);
        }
    }
}
