//! The job's log as the virtual object store has it: groups that each name the one before, and bases. What a controller's
//! own disk has is a chain of them, too; what they are together is made only where somebody goes on with it.
use robust_ahead::dice::Dice;
use robust_shared::core::{Changes, Entries, Record};
use robust_shared::ids::{Incarnation, TrajectoryId, WeightVersion};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::world) struct Position {
    pub number: u64,
    pub epoch: u64,
    /// Of all up to here.
    pub digest: u64,
}

impl Position {
    /// Where a log stands that begins in this term.
    pub fn of_base(epoch: u64) -> Self {
        Self {
            number: 0,
            epoch,
            digest: Dice::keyed(epoch, 0).draw(),
        }
    }

    /// The one after it, of a group whose contents are told by a number.
    pub fn next(&self, epoch: u64, contents: u64) -> Self {
        Self {
            number: self.number + 1,
            epoch,
            digest: Dice::keyed(self.digest ^ epoch.rotate_left(32), contents).draw(),
        }
    }
}

/// A turn that is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::world) struct Turn {
    pub trajectory: TrajectoryId,
    /// Who brought it, in which holding.
    pub agent: Incarnation,
    pub serial: u64,
    /// Turns with it.
    pub turns: u32,
    pub oldest: WeightVersion,
    /// It was the last one.
    pub over: bool,
}

/// What is written in one piece.
#[derive(Clone, Debug)]
pub(in crate::world) struct Group {
    pub at: Position,
    pub after: Position,
    pub changes: Changes,
    pub records: Vec<Record>,
    pub turns: Vec<Turn>,
}

/// Trajectories as they are stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::world) struct Stored {
    pub turns: BTreeMap<TrajectoryId, u32>,
    pub oldest: BTreeMap<TrajectoryId, WeightVersion>,
    /// With their rewards.
    pub over: BTreeSet<TrajectoryId>,
}

impl Stored {
    /// Takes in a group.
    pub fn apply(&mut self, group: &Group) {
        self.store(&group.turns);
        for record in &group.records {
            match record {
                Record::Discarded { trajectories } => {
                    for t in trajectories {
                        self.over.remove(t);
                        self.turns.remove(t);
                        self.oldest.remove(t);
                    }
                }
                Record::SetAside { trajectory, .. } => drop(self.over.remove(trajectory)),
                Record::Committed { step, .. } => {
                    let next = TrajectoryId {
                        batch: step.0 + 1,
                        group: 0,
                        member: 0,
                    };
                    self.turns = self.turns.split_off(&next);
                    self.oldest = self.oldest.split_off(&next);
                    self.over = self.over.split_off(&next);
                }
                _ => {}
            }
        }
    }

    fn store(&mut self, turns: &[Turn]) {
        for turn in turns {
            self.turns.insert(turn.trajectory, turn.turns);
            self.oldest.insert(turn.trajectory, turn.oldest);
            if turn.over {
                self.over.insert(turn.trajectory);
            }
        }
    }
}

/// What a disk, or a base, has.
#[derive(Clone, Debug, Default)]
pub(in crate::world) struct Replica {
    /// None: nothing.
    at: Option<Position>,
    groups: Vec<Arc<Group>>,
    /// So many of the entries at its end are missing: it was made of a base that was half there.
    torn: Option<usize>,
}

impl Replica {
    pub fn begin(at: Position) -> Self {
        Self {
            at: Some(at),
            ..Self::default()
        }
    }

    pub fn at(&self) -> Option<Position> {
        self.at
    }

    pub fn push(&mut self, group: Arc<Group>) {
        self.at = Some(group.at);
        self.groups.push(group);
    }

    /// Whether it has this very group. Of one that has all since the log began.
    pub fn has(&self, at: &Position) -> bool {
        let before = usize::try_from(at.number.saturating_sub(1)).unwrap_or(usize::MAX);
        self.groups.get(before).is_some_and(|group| group.at == *at)
    }

    /// Whether it was made of the very same groups in the same order, all of them whole.
    pub fn is_as(&self, other: &Self) -> bool {
        let same = |(a, b): (&Arc<Group>, &Arc<Group>)| Arc::ptr_eq(a, b);
        let whole = self.torn.is_none() && self.groups.len() == other.groups.len();
        whole && self.groups.iter().zip(&other.groups).all(same)
    }

    /// It has all up to there.
    pub fn arrived(&mut self, at: Position) {
        self.at = Some(at);
    }

    /// The last group was not written when its machine died.
    pub fn lose_last(&mut self) {
        if let Some(group) = self.groups.pop() {
            self.at = Some(group.after);
        }
    }

    /// What it is: the state's entries, and the trajectories.
    pub fn contents(&self) -> (Entries, Stored) {
        let (mut entries, mut stored) = (Entries::default(), Stored::default());
        let torn = self.torn.unwrap_or(0);
        for (number, group) in self.groups.iter().enumerate() {
            if number == torn && torn > 0 {
                (entries, stored) = half(&entries, &stored);
            }
            entries.apply(group.changes.clone());
            stored.apply(group);
        }
        if torn > 0 && torn >= self.groups.len() {
            (entries, stored) = half(&entries, &stored);
        }
        (entries, stored)
    }
}

/// The first half of what a base has.
fn half(entries: &Entries, stored: &Stored) -> (Entries, Stored) {
    let mut first = Entries::default();
    let kept = entries.iter().count() / 2;
    for (key, entry) in entries.iter().take(kept) {
        first.put(*key, entry.clone());
    }
    let kept = stored.turns.len() / 2;
    let turns = stored.turns.iter().take(kept);
    let stored = Stored {
        turns: turns.map(|(t, n)| (*t, *n)).collect(),
        ..Stored::default()
    };
    (first, stored)
}

/// A base.
#[derive(Clone, Debug)]
struct Base {
    replica: Replica,
    /// Its manifest, which is put last, is there.
    complete: bool,
}

/// How a replica comes to a position.
#[derive(Clone, Debug)]
pub(in crate::world) enum Way {
    /// By these groups.
    Groups(Vec<Arc<Group>>),
    /// By a base, and groups after it.
    Anew(Replica),
    /// There is none.
    Missing,
}

/// What may be wrong with reading: the seeded bugs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Misread {
    /// What a replica has beyond the chain is kept.
    pub keeps_unregistered: bool,
    /// Groups that are fetched together are not put into order.
    pub unordered: bool,
    /// A base counts before its manifest is there.
    pub half_bases: bool,
}

/// The store.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    groups: BTreeMap<(u64, u64), Arc<Group>>,
    bases: Vec<Base>,
}

impl Objects {
    /// False: another one is there.
    pub fn put(&mut self, group: &Arc<Group>) -> bool {
        let key = (group.at.epoch, group.at.number);
        let there = self.groups.entry(key).or_insert_with(|| Arc::clone(group));
        there.at == group.at
    }

    /// The objects of a base, and then its manifest: then older groups than the base before are removed.
    pub fn put_base(&mut self, replica: &Replica, complete: bool) {
        let known = self.bases.iter_mut();
        let mut known = known.filter(|base| base.replica.at == replica.at);
        match known.next() {
            Some(base) => base.complete |= complete,
            None => self.bases.push(Base {
                replica: replica.clone(),
                complete,
            }),
        }
        let whole: Vec<_> = self.bases.iter().filter(|base| base.complete).collect();
        let Some(older) = whole.len().checked_sub(2).and_then(|n| whole[n].replica.at) else {
            return;
        };
        self.groups
            .retain(|(epoch, number), _| *number > older.number || *epoch > older.epoch);
        let counts = |base: &Base| !base.complete || base.replica.at >= Some(older);
        self.bases.retain(counts);
    }

    fn chain(&self, from: &Position, to: &Position) -> Option<Vec<Arc<Group>>> {
        let (mut chain, mut next) = (Vec::new(), *to);
        while next.number > from.number {
            let group = self.groups.get(&(next.epoch, next.number))?;
            if group.at != next {
                return None;
            }
            next = group.after;
            chain.push(Arc::clone(group));
        }
        chain.reverse();
        (next == *from).then_some(chain)
    }

    /// How a replica that stands at `at` comes to `to`.
    pub fn way(&self, at: Option<Position>, to: &Position, misread: Misread) -> Way {
        let chain = at.and_then(|at| self.chain(&at, to));
        let kept = || {
            let at = at.filter(|at| misread.keeps_unregistered && at.number <= to.number)?;
            let first = self.groups.values().find_map(|group| {
                let from = (group.after.number == at.number).then_some(group.after)?;
                self.chain(&from, to)
            });
            first.or_else(|| (at.number == to.number).then(Vec::new))
        };
        if let Some(mut groups) = chain.or_else(kept) {
            if misread.unordered {
                groups.reverse();
            }
            return Way::Groups(groups);
        }
        for base in self.bases.iter().rev() {
            if !base.complete && !misread.half_bases {
                continue;
            }
            let begins = base.replica.at.and_then(|at| self.chain(&at, to));
            let Some(groups) = begins else {
                continue;
            };
            let mut replica = base.replica.clone();
            if !base.complete {
                replica.torn = Some(replica.groups.len());
            }
            groups.into_iter().for_each(|group| replica.push(group));
            return Way::Anew(replica);
        }
        Way::Missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(epoch: u64, after: Position, contents: u64) -> Arc<Group> {
        Arc::new(Group {
            at: after.next(epoch, contents),
            after,
            changes: Changes::default(),
            records: Vec::new(),
            turns: Vec::new(),
        })
    }

    fn places(way: Way) -> Option<Vec<Position>> {
        match way {
            Way::Groups(groups) => Some(groups.iter().map(|g| g.at).collect()),
            Way::Anew(replica) => Some(replica.groups.iter().map(|g| g.at).collect()),
            Way::Missing => None,
        }
    }

    #[test]
    fn what_no_later_group_names_is_on_no_way() {
        let mut store = Objects::default();
        let begin = Position::of_base(1);
        store.put_base(&Replica::begin(begin), true);
        let first = group(1, begin, 1);
        let lost = group(1, first.at, 2);
        let second = group(2, first.at, 3);
        for group in [&first, &lost, &second] {
            assert!(store.put(group));
        }
        assert!(store.put(&lost), "the same again");
        assert!(!store.put(&group(1, first.at, 9)), "another one");
        let none = Misread::default();
        let of = |at: Option<Position>, misread| places(store.way(at, &second.at, misread));
        assert_eq!(of(Some(first.at), none), Some(vec![second.at]));
        let anew = Some(vec![first.at, second.at]);
        assert_eq!(of(Some(lost.at), none), anew);
        assert_eq!(of(None, none), anew);
        let keeps = Misread {
            keeps_unregistered: true,
            ..none
        };
        assert_eq!(of(Some(lost.at), keeps), Some(Vec::new()));
        assert_eq!(
            places(store.way(None, &group(2, second.at, 1).at, none)),
            None
        );
    }

    #[test]
    fn a_base_counts_with_its_manifest_and_then_the_groups_before_the_last_but_one_go() {
        let mut store = Objects::default();
        let mut replica = Replica::begin(Position::of_base(1));
        store.put_base(&replica, true);
        for number in 0..4 {
            let after = replica.at.unwrap_or_default();
            let next = group(1, after, number);
            store.put(&next);
            replica.push(next);
        }
        let tip = replica.at.unwrap_or_default();
        store.put_base(&replica, false);
        let way = |store: &Objects, misread| match store.way(None, &tip, misread) {
            Way::Anew(replica) => Some(replica.torn.is_some()),
            _ => None,
        };
        assert_eq!(way(&store, Misread::default()), Some(false));
        let half_bases = Misread {
            half_bases: true,
            ..Misread::default()
        };
        assert_eq!(way(&store, half_bases), Some(true));
        store.put_base(&replica, true);
        assert_eq!(store.groups.len(), 4, "the base before has none of them");
        let next = group(2, tip, 9);
        store.put(&next);
        replica.push(next);
        store.put_base(&replica, true);
        assert_eq!(store.groups.len(), 1, "both bases have the others");
        assert_eq!(way(&store, Misread::default()), Some(false));
    }
}
