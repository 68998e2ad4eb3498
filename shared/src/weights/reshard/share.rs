//! Which holder sends what, where several could.
use super::Run;
use super::index::Index;

/// Bytes of a target rank that several source ranks hold.
#[derive(Clone, Debug)]
struct Claim {
    target: usize,
    atom: (usize, usize),
    /// From the atom's packed bytes to the target's buffer.
    run: Run,
}

/// Collects who could send what, then divides it.
pub(super) struct Shares<'a> {
    index: &'a Index,
    grain: u64,
    /// By set of holders; each by target, then as the target's pieces lie.
    claims: Vec<Vec<Claim>>,
    /// Bytes that each source rank sends.
    loads: Vec<u64>,
    pairs: Vec<Vec<Vec<Run>>>,
}

impl<'a> Shares<'a> {
    pub fn new(index: &'a Index, sources: usize, targets: usize, grain: u64) -> Self {
        Self {
            index,
            grain,
            claims: vec![Vec::new(); index.sets()],
            loads: vec![0; sources],
            pairs: vec![vec![Vec::new(); sources]; targets],
        }
    }

    /// A target rank needs bytes of an atom. A single holder sends them; others are divided later.
    pub fn claim(&mut self, target: usize, atom: (usize, usize), run: Run) {
        let set = self.index.atom(atom).set;
        let claim = Claim { target, atom, run };
        match self.index.ranks(set).len() {
            1 => self.send(&claim, 0, run),
            _ => self.claims[set].push(claim),
        }
    }

    /// Divides what several could send, those with the fewest alternatives first.
    pub fn divide(mut self) -> Vec<Vec<Vec<Run>>> {
        let mut sets: Vec<_> = (0..self.claims.len()).collect();
        sets.sort_by_key(|&set| self.index.ranks(set).len());
        for set in sets {
            let claims = std::mem::take(&mut self.claims[set]);
            for of_target in claims.chunk_by(|a, b| a.target == b.target) {
                self.divide_one(set, of_target);
            }
        }
        for runs in self.pairs.iter_mut().flatten() {
            runs.sort_unstable_by_key(|run| run.dst);
            runs.dedup_by(|next, run| run.extend(next));
        }
        self.pairs
    }

    /// What one target needs of one set of holders: each holder gets its share in turn.
    fn divide_one(&mut self, set: usize, claims: &[Claim]) {
        let ranks = self.index.ranks(set);
        let loads: Vec<_> = ranks.iter().map(|&rank| self.loads[rank]).collect();
        let shares = fill(&loads, claims.iter().map(|claim| claim.run.bytes()).sum());
        // What the present holder has left of its share; less than nothing when no cut was allowed.
        let (mut holder, mut left) = (0, i128::from(shares[0]));
        for claim in claims {
            let mut rest = vec![claim.run];
            while let Some(run) = rest.pop() {
                let (head, tail) = match holder + 1 < shares.len() {
                    true => cut(run, left, self.grain),
                    false => (Some(run), Cut::Uncut),
                };
                if let Some(head) = head {
                    self.send(claim, holder, head);
                    left -= i128::from(head.bytes());
                }
                match tail {
                    Cut::Uncut => {}
                    Cut::Next(tail) => {
                        holder += 1;
                        left += i128::from(shares[holder]);
                        rest.extend(tail);
                    }
                    Cut::Within(row, tail) => rest.extend(tail.into_iter().chain([row])),
                }
            }
        }
    }

    /// The set's holder at `place` sends a part of a claim.
    fn send(&mut self, claim: &Claim, place: usize, run: Run) {
        let atom = self.index.atom(claim.atom);
        let rank = self.index.ranks(atom.set)[place];
        let src = run.src + atom.base(place);
        let run = Run { src, ..run };
        self.loads[rank] += run.bytes();
        let runs = &mut self.pairs[claim.target][rank];
        if !runs.last_mut().is_some_and(|last| last.extend(&run)) {
            runs.push(run);
        }
    }
}

/// What remains of a run after its head.
enum Cut {
    /// Nothing, and the holder goes on.
    Uncut,
    /// The next holder begins with it.
    Next(Option<Run>),
    /// The holder's share ends within the row; rows remain after it.
    Within(Run, Option<Run>),
}

/// Cuts a run after about `left` bytes where that is allowed.
fn cut(run: Run, left: i128, grain: u64) -> (Option<Run>, Cut) {
    if left > i128::from(run.bytes()) {
        return (Some(run), Cut::Uncut);
    }
    let left = u64::try_from(left).unwrap_or_default();
    if run.count == 1 {
        return cut_flat(run, left, grain);
    }
    if run.len < grain {
        let (head, tail) = rows(run, (left + run.len / 2) / run.len);
        return (head, Cut::Next(tail));
    }
    let (head, tail) = rows(run, left / run.len);
    let Some(tail) = tail else {
        return (head, Cut::Next(None));
    };
    let (row, tail) = rows(tail, 1);
    (
        head,
        row.map_or(Cut::Next(None), |row| Cut::Within(row, tail)),
    )
}

/// At the multiple of the grain, in the target's buffer, that is nearest.
fn cut_flat(run: Run, left: u64, grain: u64) -> (Option<Run>, Cut) {
    let nearest = (run.dst + left + grain / 2) / grain * grain;
    let at = match nearest < run.dst {
        true => run.dst.div_ceil(grain) * grain,
        false => nearest,
    };
    if at > run.dst + run.len {
        return (Some(run), Cut::Uncut);
    }
    let len = at - run.dst;
    let head = (len > 0).then(|| Run::flat(run.src, run.dst, len));
    let tail = Run::flat(run.src + len, at, run.len - len);
    (head, Cut::Next((tail.len > 0).then_some(tail)))
}

/// The first so many rows, and the others.
fn rows(run: Run, first: u64) -> (Option<Run>, Option<Run>) {
    let first = first.min(run.count);
    let head = Run {
        count: first,
        ..run
    };
    let tail = Run {
        src: run.src + first * run.src_stride,
        dst: run.dst + first * run.dst_stride,
        count: run.count - first,
        ..run
    };
    let some = |run: Run| (run.count > 0).then(|| run.joined());
    (some(head), some(tail))
}

/// Shares of a volume that make the holders' loads as even as they can be.
fn fill(loads: &[u64], volume: u64) -> Vec<u64> {
    let mut order: Vec<_> = (0..loads.len()).collect();
    order.sort_by_key(|&at| loads[at]);
    let (mut sum, mut level, mut few) = (u128::from(volume), 0, 0);
    for (at, &holder) in order.iter().enumerate() {
        sum += u128::from(loads[holder]);
        few = at + 1;
        level = sum / few as u128;
        let next = order.get(few).map(|&next| u128::from(loads[next]));
        if next.is_none_or(|next| level <= next) {
            break;
        }
    }
    let over = sum - level * few as u128;
    let mut shares = vec![0; loads.len()];
    for (at, &holder) in order.iter().take(few).enumerate() {
        let share = level - u128::from(loads[holder]) + u128::from((at as u128) < over);
        shares[holder] = u64::try_from(share).unwrap_or(u64::MAX);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn whoever_sends_least_so_far_sends_more() {
        assert_eq!(fill(&[0, 0, 0], 9), [3, 3, 3]);
        assert_eq!(fill(&[0, 10, 0], 9), [5, 0, 4]);
        assert_eq!(fill(&[1, 4, 8], 9), [6, 3, 0]);
        assert_eq!(fill(&[1, 4, 5], 20), [9, 6, 5]);
        assert_eq!(fill(&[7], u64::MAX), [u64::MAX]);
        assert_eq!(fill(&[3, 1], 0), [0, 0]);
    }
}
