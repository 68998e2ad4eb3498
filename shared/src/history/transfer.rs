//! Weights and checkpoints that were moved: exact sums, and the slowest ones by name.
use crate::ids::InstanceId;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The slowest of each kind that are kept by name.
const NAMED: usize = 16;

/// What was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferKind {
    /// A weight version, from the trainer's ranks.
    PullFromTrainer,
    /// A weight version, from another engine.
    PullFromRelay,
    /// A checkpoint, to disk.
    Checkpoint,
    /// A checkpoint, to the object store.
    Upload,
}

impl TransferKind {
    /// Its name in reports and JSON.
    pub fn name(self) -> &'static str {
        match self {
            TransferKind::PullFromTrainer => "pull from trainer",
            TransferKind::PullFromRelay => "pull from relay",
            TransferKind::Checkpoint => "checkpoint",
            TransferKind::Upload => "upload",
        }
    }
}

impl fmt::Display for TransferKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// What kind.
    pub kind: TransferKind,
    /// When it was done.
    pub at: Time,
    /// The weight version, or the step.
    pub number: u64,
    /// Who pulled; none for a checkpoint.
    pub who: Option<InstanceId>,
    /// Bytes of all of it.
    pub bytes: u64,
    /// How long it took.
    pub took_ms: u64,
}

/// Sums of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// How many came to an end well.
    pub done: u64,
    /// How many did not.
    pub failed: u64,
    /// Bytes of those that did.
    pub bytes: u64,
    /// Their time.
    pub took_ms: u64,
    /// The slowest's.
    pub slowest_ms: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.done += other.done;
        self.failed += other.failed;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.took_ms = self.took_ms.saturating_add(other.took_ms);
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
    }
}

/// All that were moved in some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfers {
    tallies: BTreeMap<TransferKind, Tally>,
    slowest: Vec<Transfer>,
}

impl Transfers {
    /// One more.
    pub fn done(&mut self, transfer: Transfer) {
        let one = Tally {
            done: 1,
            failed: 0,
            bytes: transfer.bytes,
            took_ms: transfer.took_ms,
            slowest_ms: transfer.took_ms,
        };
        self.tallies.entry(transfer.kind).or_default().add(&one);
        self.slowest.push(transfer);
        self.trim();
    }

    /// One that came to nothing.
    pub fn failed(&mut self, kind: TransferKind) {
        self.tallies.entry(kind).or_default().failed += 1;
    }

    /// Those of other times too.
    pub fn add(&mut self, other: &Transfers) {
        for (kind, tally) in &other.tallies {
            self.tallies.entry(*kind).or_default().add(tally);
        }
        self.slowest.extend(other.slowest.iter().cloned());
        self.trim();
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.tallies.is_empty()
    }

    /// The sums of each kind.
    pub fn tallies(&self) -> impl Iterator<Item = (TransferKind, Tally)> + '_ {
        self.tallies.iter().map(|(kind, tally)| (*kind, *tally))
    }

    /// The slowest of each kind, slowest first.
    pub fn slowest(&self) -> &[Transfer] {
        &self.slowest
    }

    fn trim(&mut self) {
        self.slowest
            .sort_by_key(|t| (t.kind, u64::MAX - t.took_ms, t.at));
        let mut kept = BTreeMap::<TransferKind, usize>::new();
        self.slowest.retain(|t| {
            let count = kept.entry(t.kind).or_default();
            *count += 1;
            *count <= NAMED
        });
    }
}
