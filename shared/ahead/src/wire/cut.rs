//! What a rollout rank pulls, in chunks, and in which order.

/// One rollout rank's bytes in chunks.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Size of each chunk.
    pub bytes: Vec<u64>,
    /// The trainer rank that sends it.
    pub from: Vec<usize>,
}

/// The chunks of a rollout rank in the order in which they are asked for.
#[derive(Clone, Debug)]
pub struct Order {
    /// By trainer rank: what it sends.
    pub lanes: Vec<Vec<usize>>,
    /// All, in the order in which they come from all trainer ranks at once; what relays are asked for.
    pub all: Vec<usize>,
}

impl Cut {
    /// Each trainer rank's share in chunks.
    pub fn of(shares: &[u64], chunk_bytes: u64) -> Self {
        let (mut bytes, mut from) = (Vec::new(), Vec::new());
        for (rank, &share) in shares.iter().enumerate() {
            let mut left = share;
            while left > 0 {
                bytes.push(left.min(chunk_bytes));
                from.push(rank);
                left -= left.min(chunk_bytes);
            }
        }
        Self { bytes, from }
    }
}

impl Order {
    /// The order of a cut that so many trainer ranks send.
    pub fn of(cut: &Cut, ranks: usize) -> Self {
        let mut lanes = vec![Vec::new(); ranks];
        for (chunk, &from) in cut.from.iter().enumerate() {
            lanes[from].push(chunk);
        }
        let mut all = Vec::with_capacity(cut.from.len());
        let longest = lanes.iter().map(Vec::len).max().unwrap_or_default();
        for turn in 0..longest {
            // A lane half as long is half as fast: its chunks come spread over the whole time.
            let due = |lane: &Vec<usize>, turn: usize| turn * lane.len() / longest;
            for lane in &lanes {
                all.extend(&lane[due(lane, turn)..due(lane, turn + 1)]);
            }
        }
        Self { lanes, all }
    }
}
