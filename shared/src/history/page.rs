//! Some time of the run, as it is stored.
use super::marks::{Change, push, thin};
use super::{Transfers, marks_each};
use crate::ids::InstanceId;
use crate::phase::Phase;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// So many milliseconds after the page's begin an instance came into that phase; none: its process
/// ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark(pub u64, pub Option<Phase>);

/// What one instance did while a page lasted. Before the first mark it had no process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Which.
    pub id: InstanceId,
    /// When it began to do what.
    pub marks: Vec<Mark>,
    /// Milliseconds in each phase: exact, also where the marks are not any more.
    pub spent: BTreeMap<Phase, u64>,
}

/// Some time of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// How often it was merged.
    pub level: u8,
    /// Its begin.
    pub from: Time,
    /// Its end.
    pub to: Time,
    /// By instance.
    pub lanes: Vec<Lane>,
    /// What was moved.
    pub transfers: Transfers,
}

impl Page {
    /// Milliseconds it lasts.
    pub fn millis(&self) -> u64 {
        millis(self.from, self.to)
    }
}

pub(super) fn millis(from: Time, to: Time) -> u64 {
    to.0.saturating_sub(from.0) / 1000
}

/// Two pages that follow each other as one of the next level. Where nothing is known between them
/// (the daemon was away) there is no process.
pub fn merge(older: &Page, newer: &Page) -> Page {
    let (from, to) = (older.from, newer.to.max(older.to));
    let first_end = older.millis();
    let second_begin = millis(from, newer.from).max(first_end);
    let mut lanes = BTreeMap::<InstanceId, (Vec<Change>, BTreeMap<Phase, u64>)>::new();
    for lane in &older.lanes {
        let (changes, spent) = lanes.entry(lane.id).or_default();
        lane.marks.iter().for_each(|m| push(changes, (m.0, m.1)));
        push(changes, (first_end, None));
        *spent = lane.spent.clone();
    }
    for lane in &newer.lanes {
        let (changes, spent) = lanes.entry(lane.id).or_default();
        let moved = lane.marks.iter().map(|m| (second_begin + m.0, m.1));
        moved.for_each(|change| push(changes, change));
        for (phase, ms) in &lane.spent {
            *spent.entry(*phase).or_default() += ms;
        }
    }
    let (each, length) = (marks_each(lanes.len()), millis(from, to));
    let lane = |(id, (changes, spent))| lane(id, changes, spent, (length, each));
    let mut transfers = older.transfers.clone();
    transfers.add(&newer.transfers);
    Page {
        level: older.level.max(newer.level).saturating_add(1),
        from,
        to,
        lanes: lanes.into_iter().map(lane).collect(),
        transfers,
    }
}

pub(super) fn lane(
    id: InstanceId,
    changes: Vec<Change>,
    spent: BTreeMap<Phase, u64>,
    (length, limit): (u64, usize),
) -> Lane {
    let changes = thin(changes, 0, length, limit);
    let marks = changes.into_iter().map(|(at, state)| Mark(at, state));
    Lane {
        id,
        marks: marks.collect(),
        spent,
    }
}
