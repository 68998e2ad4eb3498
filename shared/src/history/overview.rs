//! The whole run at once, from its pages.
use super::marks::{Change, push, stretches, thin};
use super::page::{Page, millis};
use super::{Transfers, marks_each, page};
use crate::ids::InstanceId;
use crate::phase::Phase;
use crate::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// A stretch in which an instance did one thing, or mostly that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its begin.
    pub from: Time,
    /// Its end.
    pub to: Time,
    /// What.
    pub phase: Phase,
}

/// What one instance did over the whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which.
    pub id: InstanceId,
    /// What, in order.
    pub spans: Vec<Span>,
    /// Milliseconds in each phase, exact.
    pub spent: BTreeMap<Phase, u64>,
}

/// Gathers the pages of a run, oldest first, in at most so many cells of equal length.
#[derive(Clone, Debug)]
pub struct Overview {
    from: Time,
    to: Time,
    cells: usize,
    end: u64,
    /// Milliseconds of the longest cell of any page that was made shorter.
    coarsest: u64,
    lanes: BTreeMap<InstanceId, (Vec<Change>, BTreeMap<Phase, u64>)>,
    transfers: Transfers,
}

impl Overview {
    /// Of a run that lasted from one instant to the other.
    pub fn new(from: Time, to: Time, cells: usize) -> Self {
        Self {
            from,
            to,
            cells: cells.max(1),
            end: 0,
            coarsest: 0,
            lanes: BTreeMap::new(),
            transfers: Transfers::default(),
        }
    }

    /// The next page.
    pub fn add(&mut self, page: &Page) {
        let begin = page::millis(self.from, page.from).max(self.end);
        let length = page.millis();
        // A page may keep its share of the cells, else a long run would be held whole before the end.
        let whole = millis(self.from, self.to).max(1);
        let share = (self.cells as u64).saturating_mul(length) / whole;
        let share = usize::try_from(share).unwrap_or(usize::MAX).max(2);
        for (changes, _) in self.lanes.values_mut() {
            push(changes, (self.end, None));
        }
        let each = marks_each(page.lanes.len());
        for lane in &page.lanes {
            if lane.marks.len() >= each.min(share) {
                let cells = each.min(share) as u64;
                self.coarsest = self.coarsest.max(length / cells);
            }
            let (changes, spent) = self.lanes.entry(lane.id).or_default();
            let marks = lane.marks.iter().map(|m| (m.0, m.1)).collect();
            for (at, state) in thin(marks, 0, length, share) {
                push(changes, (begin + at, state));
            }
            for (phase, ms) in &lane.spent {
                *spent.entry(*phase).or_default() += ms;
            }
        }
        self.end = begin + length;
        self.transfers.add(&page.transfers);
    }

    /// What is shorter may not be seen where a lane changed more often.
    pub fn resolution(&self) -> Duration {
        Duration::from_millis(self.coarsest)
    }

    /// What was moved.
    pub fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// Every instance that ever lived, in the order of roles and indexes.
    pub fn rows(self) -> impl Iterator<Item = Row> {
        let (from, cells, end) = (self.from, self.cells, self.end);
        let at = move |ms: u64| from + Duration::from_millis(ms);
        self.lanes.into_iter().map(move |(id, (changes, spent))| {
            let changes = thin(changes, 0, end, cells);
            let spans = stretches(&changes, end).filter_map(|(from, to, state)| {
                let (from, to) = (at(from), at(to));
                state.map(|phase| Span { from, to, phase })
            });
            Row {
                id,
                spans: spans.collect(),
                spent,
            }
        })
    }
}
