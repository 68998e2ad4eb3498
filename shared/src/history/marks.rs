//! Changes of state in time, and how they are made fewer.
use crate::phase::Phase;

/// From so many milliseconds on, that state; none: there is no process.
pub type Change = (u64, Option<Phase>);

/// Adds a change, unless it is none.
pub fn push(changes: &mut Vec<Change>, (at, state): Change) {
    let at = changes.last().map_or(at, |(last, _)| at.max(*last));
    if let Some(last) = changes.last_mut().filter(|(last, _)| *last == at) {
        last.1 = state;
        let before = changes.len().checked_sub(2).and_then(|i| changes.get(i));
        if before.is_some_and(|(_, before)| *before == state) {
            changes.pop();
        }
        return;
    }
    let state_before = changes.last().and_then(|(_, state)| *state);
    if state_before != state {
        changes.push((at, state));
    }
}

/// Stretches between the changes, up to `end`: from, to, state.
pub fn stretches(
    changes: &[Change],
    end: u64,
) -> impl Iterator<Item = (u64, u64, Option<Phase>)> + '_ {
    let ends = changes.iter().skip(1).map(|(at, _)| *at).chain([end]);
    let both = changes.iter().zip(ends);
    both.map(move |((at, state), to)| (*at, to.min(end), *state))
        .filter(|(from, to, _)| from < to)
}

/// At most `limit` changes: where there are more, the time from `from` to `to` is cut into so many
/// cells, each of which gets the state that took most of it.
pub fn thin(changes: Vec<Change>, from: u64, to: u64, limit: usize) -> Vec<Change> {
    if changes.len() <= limit || to <= from {
        return changes;
    }
    let limit = limit.max(1) as u64;
    let edge = |cell: u64| from + (to - from) * cell / limit;
    let mut thin = Vec::new();
    let mut stretches = stretches(&changes, to).peekable();
    for cell in 0..limit {
        let (begin, end) = (edge(cell), edge(cell + 1));
        let mut shares: Vec<(Option<Phase>, u64)> = Vec::new();
        let first = stretches.peek().map_or(end, |(from, ..)| *from);
        add(&mut shares, None, first.min(end).saturating_sub(begin));
        while let Some((from, until, state)) = stretches.peek().copied() {
            let inside = until.min(end).saturating_sub(from.max(begin));
            add(&mut shares, state, inside);
            if until > end || from >= end {
                break;
            }
            stretches.next();
        }
        // The first of equals, which is the one that came first.
        let most = shares
            .iter()
            .rev()
            .max_by_key(|(_, time)| *time)
            .and_then(|(state, _)| *state);
        push(&mut thin, (begin, most));
    }
    thin
}

fn add(shares: &mut Vec<(Option<Phase>, u64)>, state: Option<Phase>, time: u64) {
    if time == 0 {
        return;
    }
    match shares.iter_mut().find(|(known, _)| *known == state) {
        Some((_, sum)) => *sum += time,
        None => shares.push((state, time)),
    }
}
