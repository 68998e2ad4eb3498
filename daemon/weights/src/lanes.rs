//! In which order a source is read.
//!
//! A relay that still fills has one front per source of its own: two trainer ranks with a half each
//! fill its halves at once. Read from start to end in one go, it could be followed through the first
//! half only at half its speed, and the whole would take 1.5 times as long. So it is read in lanes
//! that wait for its fronts independently of each other.

use robust_shared::weights::Piece;

use crate::types::Source;

/// Fetches from one relay at once. Each may have 8 reads waiting there, and a source takes no more
/// than 32 of one peer.
const LANES: usize = 4;

/// A source's pieces as the fetches to be made at once.
pub(crate) fn lanes(source: &Source, pieces: Vec<Piece>) -> Vec<Vec<Piece>> {
    let starts = starts(source);
    let mut lanes = vec![Vec::new(); LANES.min(starts.len())];
    for piece in pieces {
        let at = starts.partition_point(|&start| start <= piece.dst) - 1;
        let lane = at % lanes.len();
        lanes[lane].push((piece.dst - starts[at], piece));
    }
    let in_order = |mut lane: Vec<(u64, Piece)>| {
        lane.sort_by_key(|&(ahead, piece)| (ahead, piece.dst));
        lane.into_iter().map(|(_, piece)| piece).collect()
    };
    lanes.into_iter().map(in_order).collect()
}

/// The fronts in order, the first at 0: the only one where none is named, as of a trainer's rank,
/// which has all its bytes. In one go it costs the least; several ranks are read at the same time.
fn starts(source: &Source) -> Vec<u64> {
    let mut starts: Vec<u64> = [0].iter().chain(&source.starts).copied().collect();
    starts.sort_unstable();
    starts.dedup();
    starts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use robust_shared::ids::Incarnation;
    use robust_transport::{Part, RegionKey};

    use super::*;

    fn source(parts: &[(u64, u64)], starts: &[u64]) -> Source {
        let (owner, region, len) = (1, 1, 64);
        let key = RegionKey { owner, region, len };
        let mut source = Source::relay(Incarnation(1), "127.0.0.1:1".parse().unwrap(), key);
        let part = |&(dst, len): &(u64, u64)| Part { src: dst, dst, len };
        source.parts = parts.iter().map(part).collect();
        source.starts = starts.to_vec();
        source
    }

    fn pieces(count: u64) -> Vec<Piece> {
        let piece = |at| Piece {
            chunk: at,
            src: at,
            dst: at,
            len: 1,
        };
        (0..count).map(piece).collect()
    }

    fn places(lanes: &[Vec<Piece>]) -> Vec<Vec<u64>> {
        let places = |lane: &Vec<Piece>| lane.iter().map(|piece| piece.dst).collect();
        lanes.iter().map(places).collect()
    }

    #[test]
    fn a_rank_is_read_in_one_go_and_a_relay_at_its_fronts() {
        let rank = lanes(&source(&[(0, 4)], &[]), pieces(4));
        assert_eq!(places(&rank), [[0, 1, 2, 3]]);
        let of_one = lanes(&source(&[(0, 4)], &[0]), pieces(4));
        assert_eq!(places(&of_one), [[0, 1, 2, 3]]);
        let of_four = lanes(&source(&[(0, 8)], &[0, 2, 4, 6]), pieces(8));
        assert_eq!(places(&of_four), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    }

    #[test]
    fn more_fronts_than_lanes_share_them_in_the_order_of_arrival() {
        let relay = lanes(&source(&[(0, 12)], &[2, 4, 6, 8, 10]), pieces(12));
        assert_eq!(
            places(&relay),
            [vec![0, 8, 1, 9], vec![2, 10, 3, 11], vec![4, 5], vec![6, 7]]
        );
        let uneven = lanes(&source(&[(0, 8)], &[5]), pieces(8));
        assert_eq!(places(&uneven), [vec![0, 1, 2, 3, 4], vec![5, 6, 7]]);
    }
}
