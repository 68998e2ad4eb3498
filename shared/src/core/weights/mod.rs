//! Who pulls which weights from whom.
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
mod choose;
mod reports;

use crate::core::output::Output;
use crate::core::roster::index::{Behind, Distance};
use crate::core::roster::instance::{Pull, Supply};
use crate::core::state::Stage;
use crate::core::{Core, Mutation};
use crate::ids::{Incarnation, InstanceId, WeightVersion};
use choose::Source;

impl Core {
    /// Whom an engine pulls from as far as the controller knows; nobody: it has no order.
    pub fn pulls_from(&self, puller: Incarnation) -> &[Incarnation] {
        let pull = self.s.instances.life(puller).and_then(|i| i.pull.as_ref());
        pull.map(|p| p.sources.as_slice()).unwrap_or_default()
    }

    /// Assigns pulls to rollouts that are behind, as far as sources are free.
    pub(in crate::core) fn plan_pulls(&mut self) {
        self.sync();
        let Some(version) = self.s.published else {
            return;
        };
        if !std::mem::take(&mut self.plan_due) {
            return;
        }
        self.free_stranded(version);
        self.free_outdated(version);
        let mut last = None;
        while let Some(next) = self.index().behind_after(last)
            && self.any_source(next, version)
        {
            if !self.assign_nearer(next, version) {
                self.assign_pull(next.3, version);
                last = Some(next);
            }
        }
    }

    /// Whether anybody may serve that puller.
    fn any_source(&self, (waits, ..): Behind, version: WeightVersion) -> bool {
        let index = self.index_now();
        index.any_relay() || self.trainer_free(version) && !(waits && self.relays_have_it())
    }

    /// Whether the trainer's ranks may serve another puller.
    fn trainer_free(&self, version: WeightVersion) -> bool {
        let restored = !matches!(self.s.gang.stage, Stage::Forming | Stage::Restoring);
        let pullers = self.index_now().trainer_pulls().len();
        restored
            && self.s.gang.serves == Some(version)
            && self.gang_attached()
            && pullers < self.pullers_allowed() as usize
    }

    /// Lets one that is behind and nearer to the next one's source go first; whether one did.
    fn assign_nearer(&mut self, next: Behind, version: WeightVersion) -> bool {
        let (waits, admitted, _, id) = next;
        let Some((way, Source::Relay { life, .. })) = self.choose_source(id, version) else {
            return false;
        };
        let relay = self.s.instances.life(life).map(|i| i.id);
        let Some(place) = relay.map(|id| self.index_now().place(id)) else {
            return false;
        };
        let nearest = self.index_now().nearest_behind(place);
        let nearer = nearest.filter(|(other, (w, a, ..))| {
            *other < way && (*w, *a) == (waits, admitted) && way > Distance::SameNode
        });
        nearer.is_some_and(|(_, (.., nearer))| self.assign_pull(nearer, version))
    }

    /// Tells an engine to pull from the best source that is free; whether there is one.
    fn assign_pull(&mut self, id: InstanceId, version: WeightVersion) -> bool {
        let Some(i) = self.s.instances.get_mut(id) else {
            return false;
        };
        let (puller, due) = (i.incarnation, self.plan_due);
        let older = i.pull.take();
        self.sync();
        let chosen = match self.is_read(puller) {
            true => None,
            false => self.choose_source(id, version),
        };
        let Some((_, source)) = chosen else {
            if let Some(i) = self.s.instances.get_mut(id) {
                i.pull = older;
            }
            self.sync();
            // Nothing changed by this look.
            self.plan_due = due;
            return false;
        };
        self.order(id, version, source);
        true
    }

    fn order(&mut self, id: InstanceId, version: WeightVersion, source: Source) {
        let now = self.now;
        let (sources, from_trainer, supply) = match source {
            Source::Trainer => (self.ranks(), true, Supply::Whole),
            Source::Relay {
                life,
                growing: true,
            } => (vec![life], false, Supply::Waits),
            Source::Relay { life, .. } => (vec![life], false, Supply::Whole),
        };
        let Some(i) = self.s.instances.get_mut(id) else {
            return;
        };
        // The same version is pulled into the same buffer: its readers stay.
        i.readable.take_if(|readable| *readable != version);
        i.pull = Some(Pull {
            version,
            sources: sources.clone(),
            from_trainer,
            since: now,
            moved_at: now,
            supply,
        });
        let puller = i.incarnation;
        self.out.push(Output::AssignPull {
            puller,
            version,
            sources,
            from_trainer,
        });
    }

    /// Somebody still reads a whole version from the buffer that it would write into: the one before
    /// the version it serves.
    fn is_read(&self, source: Incarnation) -> bool {
        let serving = self.s.instances.life(source).and_then(|i| i.version);
        let mut pulls = self.index_now().pulls_of(source);
        pulls.any(|(version, _)| Some(*version) < serving)
    }

    /// Whoever pulls an older version from a source of the published one frees it by pulling that.
    fn free_outdated(&mut self, version: WeightVersion) {
        let older = self.index().trainer_pulls().iter();
        let mut older: Vec<_> = older.take_while(|(v, _)| *v < version).copied().collect();
        for id in self.index().outdated() {
            if let Some(relay) = self.s.instances.get(id).map(|i| i.incarnation) {
                let pulls = self.index_now().pulls_of(relay);
                older.extend(pulls.filter(|(v, _)| *v < version).copied());
            }
        }
        // One without its link would not hear of it, and goes on reading what it reads.
        let index = self.index_now();
        older.retain(|(_, id)| index.has(*id, |c| c.sound));
        for (_, id) in older {
            self.assign_pull(id, version);
        }
    }

    /// Whoever pulls from an engine that was taken out, or reads along with one that will not finish,
    /// goes on elsewhere, as soon as there is a source.
    fn free_stranded(&mut self, version: WeightVersion) {
        for id in self.index().stranding() {
            if let Some(source) = self.s.instances.get(id).map(|i| i.incarnation) {
                let pulls: Vec<_> = self.index().pulls_of(source).copied().collect();
                for (_, reader) in pulls {
                    if self.index().has(reader, |c| c.sound) {
                        self.assign_pull(reader, version);
                    }
                }
            }
        }
    }

    /// Every pull from this rollout is off.
    pub(in crate::core) fn drop_pulls_from(&mut self, source: Incarnation) {
        let pulls: Vec<_> = self.index().pulls_of(source).copied().collect();
        for (_, id) in pulls {
            let keeps = self.config.mutant(Mutation::KeepDeadSource);
            if let Some(i) = self.s.instances.get_mut(id).filter(|_| !keeps) {
                i.pull.take_if(|p| p.sources.contains(&source));
            }
        }
    }

    /// Every pull from the trainer is off: its generation is over.
    pub(in crate::core) fn drop_pulls_from_trainer(&mut self) {
        let pulls: Vec<_> = self.index().trainer_pulls().iter().copied().collect();
        for (_, id) in pulls {
            let keeps = self.config.mutant(Mutation::KeepTrainerPulls);
            if let Some(i) = self.s.instances.get_mut(id).filter(|_| !keeps) {
                i.pull.take_if(|p| p.from_trainer);
            }
        }
    }

    /// Whether a puller still reads the trainer's buffer that `version` would be copied into.
    pub(in crate::core) fn buffer_in_use(&self, version: WeightVersion) -> bool {
        let pulls = self.index_now().trainer_pulls().iter();
        let mut older = pulls.take_while(|(v, _)| *v < version);
        older.any(|(v, _)| v.0 % 2 == version.0 % 2)
    }
}
