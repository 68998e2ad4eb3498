//! Patches of the last versions, kept for those who are several behind.
//!
//! ```text
//!            link        link        link
//!       v4 ───────► v5 ───────► v6 ───────► v7: what is here
//!       └───────────────────────────────────► who serves v4 applies all three to each chunk in turn
//!                   └───────────────────────► who serves v5, the last two
//!   the oldest go first, when there are too many or they have too many bytes
//! ```
//! A version that came whole, or whose patches were not finished, is the end of what was before it.
use super::hand_out::HandOut;
use crate::types::Link;

/// Those of some links that lead from a version to the last one's; none where there is no way, or a longer
/// one than anybody of ours offers.
pub(crate) fn since<'a>(links: &'a [Link], base: &[u8; 32]) -> Option<&'a [Link]> {
    let first = links.iter().rposition(|link| link.base == *base)?;
    let way = links.get(first..)?;
    (way.len() <= Chain::MOST_LINKS).then_some(way)
}

/// A link whose patches are all here.
pub(crate) struct Kept {
    pub(super) base: [u8; 32],
    /// What the patches make.
    pub(super) makes: [u8; 32],
    pub(super) hand_out: HandOut,
}

impl Kept {
    fn link(&self) -> Link {
        let (base, key) = (self.base, *self.hand_out.key());
        Link { base, key }
    }
}

/// Links of which each makes what the next one is applied to, the oldest first.
#[derive(Default)]
pub(crate) struct Chain(Vec<Kept>);

impl Chain {
    /// Links that are offered together, at most. An index is a region of its own with four bytes for each
    /// chunk, a link 68 bytes of every message that names the version; and whoever has missed more
    /// versions has been away for so long that a version more or less does not matter.
    pub const MOST_LINKS: usize = 8;

    /// Takes one more; those that do not lead to it are dropped.
    pub fn add(&mut self, kept: Kept) {
        if !self.leads_to(&kept.base) {
            self.0.clear();
        }
        self.0.push(kept);
    }

    /// Drops them all: their readers are refused, and take whole chunks.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Drops the oldest, until the others are so many at most and have no more than so many bytes.
    pub fn keep(&mut self, links: usize, bytes: u64) {
        let newest = self.0.iter().rev().take(links);
        let room = |left: &mut u64, kept: &Kept| {
            *left = left.checked_sub(kept.hand_out.bytes())?;
            Some(())
        };
        let kept = newest.scan(bytes, room).count();
        self.0.drain(..self.0.len() - kept);
    }

    /// Whether the last one makes this.
    pub fn leads_to(&self, content: &[u8; 32]) -> bool {
        self.0.last().is_some_and(|last| last.makes == *content)
    }

    /// What readers need.
    pub fn links(&self) -> Vec<Link> {
        self.0.iter().map(Kept::link).collect()
    }

    /// The same, if it is this that they make.
    pub fn links_to(&self, content: &[u8; 32]) -> Vec<Link> {
        match self.leads_to(content) {
            true => self.links(),
            false => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_transport::RegionKey;

    fn link(version: u8) -> Link {
        let (owner, region, len) = (1, version.into(), 9);
        let key = RegionKey { owner, region, len };
        let base = [version; 32];
        Link { base, key }
    }

    #[test]
    fn the_way_from_a_version_is_what_was_made_since() {
        let links = [link(4), link(5), link(6)];
        assert_eq!(since(&links, &[4; 32]), Some(&links[..]));
        assert_eq!(since(&links, &[6; 32]), Some(&links[2..]));
        assert_eq!(since(&links, &[7; 32]), None);
        assert_eq!(since(&[], &[4; 32]), None);
        let many: Vec<Link> = (0..20).map(link).collect();
        assert_eq!(since(&many, &[12; 32]), Some(&many[12..]));
        assert_eq!(since(&many, &[11; 32]), None, "nine");
        // Weights that came back to what they were before: the shortest way.
        let circle = [link(4), link(5), link(4), link(6)];
        assert_eq!(since(&circle, &[4; 32]), Some(&circle[2..]));
    }
}
