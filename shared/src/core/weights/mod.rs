//! Which versions there are, who has which, and who pulls which from whom.
//!
//! ```text
//!  rollout behind the published version ── a free source has it ──► pulling ── Pulled ok ──► serves
//!        ▲                                                            │ │
//!        └───── source failed (passed over for a while), gone ────────┘ │ PullStarted
//!                                                                       ▼
//!                                          others pull from it what it has verified so far
//! ```
//! A source serves `pullers_per_source` at a time (I-6); the trainer's ranks, each with its shard,
//! are one source. A puller is a relay from the moment its buffer can be read, so a version runs down
//! a chain of rollouts while it still leaves the trainer:
//! ```text
//!  trainer ══► rollout 0 ══► rollout 1 ══► rollout 2 ══► ..    no circle: `choose`
//! ```
//! - Sources: nearest first (node, rack), then those that have everything, then the idlest; the
//!   trainer only while no relay has or gets the version, or for one whose source just failed.
//! - Of those that are behind, the one nearest to the source goes first, so that a chain leaves a
//!   node, and a rack, once.
//! - A puller whose source is gone keeps its chunks, and its own pullers: they wait with it.
//! - A newer version supersedes the pull of an older one, first at the trainer, then at whoever reads
//!   along, as soon as its source can be read anew. It never goes into a buffer from which somebody
//!   reads a whole version, and the trainer's buffers are reused by parity.
//!
//! Versions only grow (I-4), and a rollout gets traffic only once it verified the published one.
//!
//! The machine knows no instance: the roster says who is there and in what state ([`Peer`], `standing`), and
//! hears whose weights changed ([`Weights::next_changed`]); what pullers report (`reports`) comes back as a
//! fact where somebody else has to judge it ([`Failed`]).
mod choose;
mod engines;
mod holder;
mod near;
mod plan;
mod reports;
mod sets;
mod standing;
mod stored;

pub use holder::{Holder, Pull, Supply};
pub use near::{Place, Rack};
pub use reports::{Failed, PullOrder};
pub use standing::Peer;
pub use stored::read_former;

use crate::changed::Changed;
use crate::core::config::CoreConfig;
use crate::core::effects::Cx;
use crate::core::output::Record;
use crate::hash::IdMap;
use crate::ids::{Incarnation, InstanceId, WeightVersion};
use engines::Engines;
use serde::{Deserialize, Serialize};
use sets::Sets;

/// The weights of the job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Weights {
    /// The newest version that was ever published; relays may serve it while no trainer does.
    published: Option<WeightVersion>,
    #[serde(rename = "weight_bytes")]
    bytes: u64,
    #[serde(rename = "holders", default)]
    engines: Engines,
    /// The present incarnations of the trainer's ranks, 0 where there is none.
    #[serde(skip)]
    ranks: Vec<Incarnation>,
    /// Whose the present incarnations of engines and ranks are.
    #[serde(skip)]
    lives: IdMap<Incarnation, InstanceId>,
    #[serde(skip)]
    sets: Sets,
    /// Something changed that pulls depend on.
    #[serde(skip)]
    due: bool,
    /// Engines that have something else than before, or another number of pullers, for the roster.
    #[serde(skip)]
    touched: Vec<InstanceId>,
    /// Engines whose entry is to be written.
    #[serde(skip)]
    changed: Changed<InstanceId>,
}

/// Equal are those that remember the same.
impl PartialEq for Weights {
    fn eq(&self, other: &Self) -> bool {
        (self.published, self.bytes) == (other.published, other.bytes)
            && self.engines == other.engines
    }
}

impl Weights {
    /// The newest version that was ever published.
    pub fn published(&self) -> Option<WeightVersion> {
        self.published
    }

    /// Bytes of one version; 0 before the first.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What an engine has. Nobody else has anything that could be pulled but the trainer.
    pub fn of(&self, id: InstanceId) -> &Holder {
        self.engines.holder(id)
    }

    /// Whether an engine has the published version, or a newer one.
    pub fn is_current(&self, id: InstanceId) -> bool {
        self.of(id).has(self.published)
    }

    /// Whom an engine pulls from; nobody: it has no order.
    pub fn sources_of(&self, puller: Incarnation) -> &[Incarnation] {
        let pull = self.engine_of(puller).and_then(|id| self.of(id).pull());
        pull.map(|p| p.sources.as_slice()).unwrap_or_default()
    }

    /// What an engine serves; none: nothing, or it is none.
    pub fn version_of(&self, engine: Incarnation) -> Option<WeightVersion> {
        self.engine_of(engine).and_then(|id| self.of(id).version)
    }

    /// How many pull from this engine.
    pub fn pullers_of(&self, engine: Incarnation) -> u32 {
        self.sets.pullers_of(engine)
    }

    /// Whether a pull from the ranks is under way, or was given up just now.
    pub fn wait_for_ranks(&self) -> bool {
        !self.sets.from_trainer.is_empty() || !self.sets.avoid_ranks.is_empty()
    }

    /// Whether a puller still reads the trainer's buffer that `version` would be copied into.
    pub fn use_buffer_of(&self, version: WeightVersion) -> bool {
        let pulls = self.sets.from_trainer.iter().copied();
        let all = pulls.chain(self.sets.left_of(None));
        let mut older = all.filter(|(v, _)| *v < version);
        older.any(|(v, _)| v.0 % 2 == version.0 % 2)
    }

    /// The ranks can be read for a version of so many bytes.
    pub fn published_as(&mut self, cx: &mut Cx<'_>, version: WeightVersion, bytes: u64) {
        self.bytes = bytes;
        // On record before anyone is told of it or pulls it: a restarted daemon must not go back
        // behind what rollouts serve (I-4).
        if self.published < Some(version) {
            self.published = Some(version);
            self.derive_all(cx.config);
            cx.out.record(Record::Published { version });
        }
    }

    /// An operator took an engine out, or let it in again.
    pub fn admit(&mut self, config: &CoreConfig, id: InstanceId, may_serve: bool) {
        let published = self.published;
        self.change(config, id, |holder| {
            holder.admitted = may_serve && holder.has(published);
        });
    }

    /// As if an engine had been told to pull.
    #[cfg(test)]
    pub fn pretend(&mut self, cx: &Cx<'_>, id: InstanceId, pull: Pull) {
        self.change(cx.config, id, |holder| holder.pull = Some(pull));
    }

    /// Something changed that pulls depend on, and that nobody else says.
    pub fn look_again(&mut self) {
        self.due = true;
    }

    /// One of those that have something else than before.
    pub fn next_changed(&mut self) -> Option<InstanceId> {
        self.touched.pop()
    }

    /// Whether the roster heard of all that changed.
    pub fn is_heard(&self) -> bool {
        self.touched.is_empty()
    }

    /// Changes what an engine has, and all that follows from it.
    fn change<R>(
        &mut self,
        config: &CoreConfig,
        id: InstanceId,
        change: impl FnOnce(&mut Holder) -> R,
    ) -> R {
        let done = change(&mut self.engines.at(id).holder);
        self.changed.note(id);
        self.touch(id);
        self.derive(config, id);
        done
    }

    fn touch(&mut self, id: InstanceId) {
        if self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
    }
}
