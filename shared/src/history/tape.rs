//! The page that is being written.
use super::marks::{Change, push, stretches};
use super::page::{Page, lane, millis};
use super::{PAGE, Transfer, TransferKind, Transfers, marks_each};
use crate::ids::InstanceId;
use crate::phase::Phase;
use crate::time::Time;
use std::collections::BTreeMap;

/// What happened since the last page was cut.
#[derive(Clone, Debug, Default)]
pub struct Tape {
    from: Option<Time>,
    lanes: BTreeMap<InstanceId, Vec<Change>>,
    transfers: Transfers,
}

impl Tape {
    /// An instance does that from now on; none: its process ended.
    pub fn phase(&mut self, now: Time, id: InstanceId, phase: Option<Phase>) {
        let at = self.since_begin(now);
        push(self.lanes.entry(id).or_default(), (at, phase));
    }

    /// Something was moved.
    pub fn moved(&mut self, now: Time, transfer: Transfer) {
        self.since_begin(now);
        self.transfers.done(transfer);
    }

    /// Something was to be moved and was not.
    pub fn failed(&mut self, now: Time, kind: TransferKind) {
        self.since_begin(now);
        self.transfers.failed(kind);
    }

    /// Whether there is a page to cut.
    pub fn is_due(&self, now: Time) -> bool {
        self.from.is_some_and(|from| now.since(from) >= PAGE)
    }

    /// What happened until now, if anything did; those who live go on in the next page as they are.
    pub fn cut(&mut self, now: Time) -> Option<Page> {
        let from = self.from.take().filter(|from| *from < now)?;
        let length = millis(from, now);
        let lanes = std::mem::take(&mut self.lanes);
        let each = marks_each(lanes.len());
        let mut page = Page {
            from,
            to: now,
            transfers: std::mem::take(&mut self.transfers),
            ..Page::default()
        };
        for (id, changes) in lanes {
            let last = changes.last().and_then(|(_, state)| *state);
            if last.is_some() {
                self.phase(now, id, last);
            }
            let mut spent = BTreeMap::new();
            for (from, to, state) in stretches(&changes, length) {
                if let Some(phase) = state {
                    *spent.entry(phase).or_default() += to - from;
                }
            }
            page.lanes.push(lane(id, changes, spent, (length, each)));
        }
        Some(page)
    }

    fn since_begin(&mut self, now: Time) -> u64 {
        millis(*self.from.get_or_insert(now), now)
    }
}
