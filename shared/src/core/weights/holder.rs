//! What one engine has of the weights, and what it was told to get.
use crate::ids::{Incarnation, WeightVersion};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// A pull as the planner sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pull {
    /// What.
    pub version: WeightVersion,
    /// Which order to this incarnation it is: later ones have higher numbers; 0 in a state that an earlier build
    /// stored.
    #[serde(default)]
    pub order: u64,
    /// From whom.
    pub sources: Vec<Incarnation>,
    /// Whether the sources are trainer ranks.
    pub from_trainer: bool,
    /// Since when.
    #[serde(default)]
    pub since: Time,
    /// The last time bytes came, or began to be there for it.
    pub moved_at: Time,
    /// Whether bytes can come.
    #[serde(default)]
    pub supply: Supply,
}

/// Whether a source has bytes that its puller has not.
///
/// ```text
///                              the source got more than the puller has
///  told to pull from ──► waits ◄──────────────────────────────────────► flows
///  one that pulls          │         the puller has what the source has   │
///                          └────────┬─────────────────────────────────────┘
///                                   ▼ the source has all of it
///  told to pull from ────────────► whole ──► spent: the puller has all of it, whomever it had it from
///  one that has it
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Supply {
    /// It has the whole version.
    #[default]
    Whole,
    /// It is pulling the version itself, and got what the puller has not, since bytes last came from it.
    Flows,
    /// It is pulling the version itself, and got nothing of that kind since: the puller waits without
    /// fault.
    Waits,
    /// It is not needed any more: the puller has everything, and serves it when its requests allow.
    Spent,
}

impl Pull {
    /// What is read, and from which relay; none: from the trainer.
    pub(super) fn what(&self) -> (WeightVersion, Option<Incarnation>) {
        let relay = self.sources.first().filter(|_| !self.from_trainer);
        (self.version, relay.copied())
    }

    /// Whether bytes are still to come from its sources.
    pub fn reads(&self) -> bool {
        self.supply != Supply::Spent
    }
}

/// The figures of the running or last pull, for status.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PullSeen {
    /// What.
    pub version: WeightVersion,
    /// Bytes so far.
    pub bytes: u64,
    /// Bytes in all.
    pub total: u64,
}

/// What the present process of an engine has. The fields keep the names under which they were stored when
/// they were a part of the instance (`stored`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// The version it verified and serves.
    #[serde(default)]
    pub(super) version: Option<WeightVersion>,
    /// Requests are routed to it.
    #[serde(default)]
    pub(super) admitted: bool,
    /// The pull it was told to make.
    #[serde(default)]
    pub(super) pull: Option<Pull>,
    /// What it was reading when it was told to pull something else, and from which relay (none: from the trainer). An
    /// order may be lost with its link: it reads on until it says that it took the other one up, or that this one ended.
    #[serde(default)]
    pub(super) left: Option<(WeightVersion, Option<Incarnation>)>,
    /// The number of the order that it was given last.
    #[serde(default)]
    pub(super) last_order: u64,
    /// The version that others can read from it while it pulls it, chunk by chunk.
    #[serde(default)]
    pub(super) readable: Option<WeightVersion>,
    /// Sources that failed it, and until when they are passed over. Itself, if it failed without them: until
    /// then it gets no order.
    #[serde(default)]
    pub(super) avoid: Vec<(Incarnation, Time)>,
    /// Pulls in a row that failed without any source's fault.
    #[serde(default)]
    pub(super) own_failures: u32,
    /// The figures of the running or last pull.
    #[serde(default)]
    pub(super) pull_seen: Option<PullSeen>,
}

/// What is had where nothing was ever heard of.
pub(super) static NOTHING: Holder = Holder {
    version: None,
    admitted: false,
    pull: None,
    left: None,
    last_order: 0,
    readable: None,
    avoid: Vec::new(),
    own_failures: 0,
    pull_seen: None,
};

impl Holder {
    /// The version it verified and serves.
    pub fn version(&self) -> Option<WeightVersion> {
        self.version
    }

    /// Whether requests are routed to it, as far as its weights decide that.
    pub fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// The pull it was told to make.
    pub fn pull(&self) -> Option<&Pull> {
        self.pull.as_ref()
    }

    /// The figures of the running or last pull.
    pub fn pull_seen(&self) -> Option<PullSeen> {
        self.pull_seen
    }

    /// Bytes that came of the pull under way, and of how many; none where nothing came of it yet.
    pub fn progress(&self) -> Option<(u64, u64)> {
        let (pull, seen) = self.pull.as_ref().zip(self.pull_seen)?;
        (pull.version == seen.version).then_some((seen.bytes, seen.total))
    }

    /// Whether it was told to pull, or passes over somebody and so will be.
    pub fn is_about_to_pull(&self) -> bool {
        self.pull.is_some() || !self.avoid.is_empty()
    }

    /// When the first source may be tried again that it passes over.
    pub fn avoids_until(&self) -> Option<Time> {
        self.avoid.iter().map(|(_, until)| *until).min()
    }

    /// Whether it has a version, and none older than this one.
    pub fn has(&self, version: Option<WeightVersion>) -> bool {
        self.version.is_some() && self.version >= version
    }

    /// Whether it passes over this source.
    pub(super) fn avoids(&self, source: Incarnation) -> bool {
        self.avoid.iter().any(|(avoided, _)| *avoided == source)
    }

    /// The version of the newest buffer that it fills or is told to fill.
    pub(super) fn newest_buffer(&self) -> Option<WeightVersion> {
        let pulls = self.pull.as_ref().map(|p| p.version);
        pulls.max(self.readable)
    }

    /// What it is told to pull, or pulls where others read it, is done: it has that.
    pub(super) fn end_older_pulls(&mut self) {
        let version = self.version;
        self.pull.take_if(|p| Some(p.version) <= version);
        self.readable.take_if(|readable| Some(*readable) <= version);
        self.left.take_if(|(left, _)| Some(*left) <= version);
    }

    /// What others may read of it, for tests.
    #[cfg(test)]
    pub fn readable(&self) -> Option<WeightVersion> {
        self.readable
    }
}
