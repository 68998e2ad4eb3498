//! Weights and checkpoints that were moved: exact sums, and the slowest ones by name.
use crate::ids::InstanceId;
use crate::time::Time;
use crate::wire::Word as _;
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

crate::wire::named! {
    TransferKind:
    /// Its name in reports and JSON.
    name {
        PullFromTrainer = "pull from trainer",
        PullFromRelay = "pull from relay",
        Checkpoint = "checkpoint",
        Upload = "upload",
    }
}

impl fmt::Display for TransferKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a process's bytes come to another one (`transport::RoadKind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Road {
    /// Through memory that both map.
    Shm,
    /// TCP with TLS 1.3.
    Tls,
    /// UCX.
    Ucx,
}

crate::wire::named! {
    Road:
    /// Its name in reports and JSON.
    name {
        Shm = "shm",
        Tls = "tls",
        Ucx = "ucx",
    }
}

impl Road {
    /// The road of this name, as roles say it.
    pub fn named(name: &str) -> Option<Self> {
        Self::known(name)
    }
}

/// How the bytes of a weight version came; all zero for what is not pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The road of the last of them.
    pub road: Option<Road>,
    /// Bytes that came over it, those that came twice counted twice.
    pub bytes: u64,
    /// Bytes of the version that patches made of the one before.
    pub patched: u64,
    /// Words of two bytes that the version changed in those.
    pub changed_words: u64,
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
    /// How it came, if it was pulled.
    #[serde(default)]
    pub sent: Sent,
}

/// How many pulls took which road.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roads {
    shm: u64,
    tls: u64,
    ucx: u64,
}

impl Roads {
    fn of(road: Option<Road>) -> Self {
        let mut roads = Self::default();
        match road {
            Some(Road::Shm) => roads.shm = 1,
            Some(Road::Tls) => roads.tls = 1,
            Some(Road::Ucx) => roads.ucx = 1,
            None => {}
        }
        roads
    }

    /// Those that were taken, and how often.
    pub fn taken(self) -> impl Iterator<Item = (Road, u64)> {
        let all = [
            (Road::Shm, self.shm),
            (Road::Tls, self.tls),
            (Road::Ucx, self.ucx),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }

    fn add(&mut self, other: Self) {
        self.shm += other.shm;
        self.tls += other.tls;
        self.ucx += other.ucx;
    }
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
    /// Bytes of those of which it is known how they came.
    #[serde(default)]
    pub pulled: u64,
    /// Bytes that came over a road for them. The rest was here, or was made of what was here.
    #[serde(default)]
    pub sent: u64,
    /// The roads that pulls took.
    #[serde(default)]
    pub roads: Roads,
    /// Bytes of chunks that patches made.
    #[serde(default)]
    pub patched: u64,
    /// Words of two bytes that changed in those.
    #[serde(default)]
    pub changed_words: u64,
}

impl Tally {
    fn of(transfer: &Transfer) -> Self {
        let sent = transfer.sent;
        let pulled = if sent.road.is_some() {
            transfer.bytes
        } else {
            0
        };
        Self {
            done: 1,
            failed: 0,
            bytes: transfer.bytes,
            took_ms: transfer.took_ms,
            slowest_ms: transfer.took_ms,
            pulled,
            sent: sent.bytes,
            roads: Roads::of(sent.road),
            patched: sent.patched,
            changed_words: sent.changed_words,
        }
    }

    fn add(&mut self, other: &Tally) {
        self.done += other.done;
        self.failed += other.failed;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.took_ms = self.took_ms.saturating_add(other.took_ms);
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
        self.pulled = self.pulled.saturating_add(other.pulled);
        self.sent = self.sent.saturating_add(other.sent);
        self.roads.add(other.roads);
        self.patched = self.patched.saturating_add(other.patched);
        self.changed_words = self.changed_words.saturating_add(other.changed_words);
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
        let one = Tally::of(&transfer);
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
