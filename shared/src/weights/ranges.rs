//! Sets of byte ranges: what arrived, what somebody already fetches.
use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges, merged where they touch; each start with its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range; what of it is in already stays.
    pub fn insert(&mut self, mut range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Some((&start, &end)) = self.0.range(..=range.start).next_back()
            && end >= range.start
        {
            range = start..end.max(range.end);
        }
        while let Some((&start, &end)) = self.0.range(range.start..=range.end).next() {
            range.end = range.end.max(end);
            self.0.remove(&start);
        }
        self.0.insert(range.start, range.end);
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: Range<u64>) {
        while let Some((start, end)) = self.overlap(&range) {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, range.start);
            }
            if end > range.end {
                self.0.insert(range.end, end);
            }
        }
    }

    /// Whether all of a range is in.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        let before = self.0.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, &end)| end >= range.end)
    }

    /// The parts of a range that are not in, in order.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        let before = self.0.range(..range.start).next_back();
        let within = self.0.range(range.start..range.end.max(range.start));
        for (&start, &end) in before.into_iter().chain(within) {
            if start > at {
                gaps.push(at..start);
            }
            at = at.max(end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    fn overlap(&self, range: &Range<u64>) -> Option<(u64, u64)> {
        let (&start, &end) = self.0.range(..range.end).next_back()?;
        (end > range.start && range.end > range.start).then_some((start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_of_ranges_is_the_set_of_its_bytes(
            steps in prop::collection::vec((any::<bool>(), 0_u64..60, 0_u64..20), 0..40),
            asked in (0_u64..60, 0_u64..20),
        ) {
            let mut ranges = Ranges::default();
            let mut bytes = std::collections::BTreeSet::new();
            for (add, start, len) in steps {
                let range = start..start + len;
                if add {
                    ranges.insert(range.clone());
                    bytes.extend(range);
                } else {
                    ranges.remove(range.clone());
                    bytes.retain(|byte| !range.contains(byte));
                }
            }
            let asked = asked.0..asked.0 + asked.1;
            let missing: Vec<u64> = ranges.missing(asked.clone()).into_iter().flatten().collect();
            let expected: Vec<u64> = asked.clone().filter(|byte| !bytes.contains(byte)).collect();
            prop_assert_eq!(ranges.contains(&asked), expected.is_empty());
            prop_assert_eq!(missing, expected);
            let all: Vec<_> = ranges.0.into_iter().collect();
            prop_assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
