//! Who pulls which weights from whom.
//!
//! ```text
//!  rollout behind the published version ── a free source has it ──► pulling ── Pulled ok ──► serves
//!        ▲                                                            │
//!        └───── source failed (passed over for a while), gone ────────┘
//! ```
//! A source serves `pullers_per_source` at a time (I-6); the trainer's ranks, each with its shard,
//! are one source. Relays are preferred: the trainer has better to do. A newer version supersedes
//! the pull of an older one, since the trainer's buffers are reused by parity. Versions only grow
//! (I-4), and a rollout gets traffic only once it verified the published one.
use super::instance::{Pull, PullSeen};
use super::output::{Output, Severity};
use super::state::Stage;
use super::{Core, Mutation, PullFailure};
use crate::ids::{Incarnation, InstanceId, Role, WeightVersion};
use crate::time::Time;
use std::time::Duration;

/// How long a source that failed a puller is passed over by it.
const AVOID: Duration = Duration::from_secs(2);

impl Core {
    /// Assigns pulls to rollouts that are behind, as far as sources are free.
    pub(super) fn plan_pulls(&mut self) {
        self.sync();
        let Some(version) = self.s.published else {
            return;
        };
        if !std::mem::take(&mut self.plan_due) {
            return;
        }
        // Whoever pulls an older version from the trainer frees it by pulling the new one instead.
        let older = self.index_now().trainer_pulls().iter();
        let older: Vec<_> = older.take_while(|(v, _)| *v < version).copied().collect();
        for (_, id) in older {
            self.assign_pull(id, version);
        }
        let mut last = None;
        while self.any_source(version)
            && let Some(next) = self.index().behind_after(last)
        {
            self.assign_pull(next.2, version);
            last = Some(next);
        }
    }

    /// Whether anybody may serve another puller.
    fn any_source(&mut self, version: WeightVersion) -> bool {
        self.sync();
        self.index.relays().next().is_some() || self.trainer_free(version)
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

    fn assign_pull(&mut self, id: InstanceId, version: WeightVersion) {
        let Some(r) = self.s.instances.get_mut(id) else {
            return;
        };
        let (puller, due) = (r.incarnation, self.plan_due);
        let older = r.pull.take();
        self.sync();
        let chosen = match self.serves_older(puller) {
            true => None,
            false => self.choose_source(puller, version),
        };
        let now = self.now;
        let Some(r) = self.s.instances.get_mut(id) else {
            return;
        };
        let Some((sources, from_trainer)) = chosen else {
            r.pull = older;
            self.sync();
            // Nothing changed by this look.
            self.plan_due = due;
            return;
        };
        r.pull = Some(Pull {
            version,
            sources: sources.clone(),
            from_trainer,
            moved_at: now,
        });
        self.out.push_back(Output::AssignPull {
            puller,
            version,
            sources,
            from_trainer,
        });
    }

    /// Somebody still reads an older version from it: the buffer it would write into.
    fn serves_older(&self, source: Incarnation) -> bool {
        let serving = self.s.instances.life(source).and_then(|r| r.version);
        let mut pulls = self.index_now().pulls_of(source);
        pulls.any(|(version, _)| Some(*version) != serving)
    }

    fn choose_source(
        &self,
        puller: Incarnation,
        version: WeightVersion,
    ) -> Option<(Vec<Incarnation>, bool)> {
        let avoid = self
            .s
            .instances
            .life(puller)
            .map(|r| r.avoid.as_slice())
            .unwrap_or_default();
        let fit = |source: &Incarnation| {
            *source != puller && avoid.iter().all(|(avoided, _)| avoided != source)
        };
        if let Some(relay) = self.index_now().relays().find(fit) {
            return Some((vec![relay], false));
        }
        let is_rank = |(source, _): &(Incarnation, Time)| {
            let life = self.s.instances.life(*source);
            life.is_some_and(|s| s.id.role == Role::Trainer)
        };
        let fit = self.trainer_free(version) && !avoid.iter().any(is_rank);
        fit.then(|| (self.ranks(), true))
    }

    /// Pullers that a source serves at a time (I-6).
    pub(super) fn pullers_allowed(&self) -> u32 {
        let more = u32::from(self.config.mutant(Mutation::SecondPuller));
        self.config.pullers_per_source + more
    }

    /// Whether a puller still reads the trainer's buffer that `version` would be copied into.
    pub(super) fn buffer_in_use(&self, version: WeightVersion) -> bool {
        let pulls = self.index_now().trainer_pulls().iter();
        let mut older = pulls.take_while(|(v, _)| *v < version);
        older.any(|(v, _)| v.0 % 2 == version.0 % 2)
    }

    pub(super) fn on_pull_progress(
        &mut self,
        puller: Incarnation,
        version: WeightVersion,
        bytes: u64,
        total: u64,
    ) {
        let now = self.now;
        let Some(r) = self.s.instances.life_mut(puller) else {
            return;
        };
        let Some(pull) = r.pull.as_mut().filter(|p| p.version == version) else {
            return;
        };
        let grew = r
            .pull_seen
            .is_none_or(|s| s.version != version || s.bytes < bytes);
        if grew {
            pull.moved_at = now;
            if self.config.mutant(Mutation::AdmitUnverified) {
                (r.version, r.admitted) = (r.version.max(Some(version)), true);
            }
            r.pull_seen = Some(PullSeen {
                version,
                bytes,
                total,
            });
        }
    }

    pub(super) fn on_pulled(
        &mut self,
        puller: Incarnation,
        version: WeightVersion,
        result: Result<(), PullFailure>,
    ) {
        let (published, now) = (self.s.published, self.now);
        let Some(r) = self.s.instances.life_mut(puller) else {
            return;
        };
        match result {
            Ok(()) if Some(version) <= published => {
                let (id, before) = (r.id, r.admitted);
                r.version = r.version.max(Some(version));
                if r.pull.as_ref().is_some_and(|p| p.version <= version) {
                    r.pull = None;
                }
                r.admitted |= !r.quarantined && r.version >= published;
                if r.admitted && !before {
                    let text = format!("{id} verified {version} and is admitted");
                    self.event(Severity::Info, "admitted", Some(id), text);
                }
            }
            Ok(()) => {}
            Err(PullFailure::Superseded) => {
                r.pull
                    .take_if(|p| p.version == version && Some(version) < published);
            }
            Err(PullFailure::Source { source, reason }) => {
                self.pull_failed(puller, version, source, &reason, now);
            }
            Err(PullFailure::Corrupt { source }) => {
                let id = r.id;
                self.pull_failed(puller, version, source, "a chunk's digest differs", now);
                self.corrupt(id, source, version);
            }
        }
    }

    /// Tries elsewhere; a report about a source that was replaced meanwhile changes nothing.
    pub(super) fn pull_failed(
        &mut self,
        puller: Incarnation,
        version: WeightVersion,
        source: Incarnation,
        reason: &str,
        now: Time,
    ) {
        let Some(r) = self.s.instances.life_mut(puller) else {
            return;
        };
        let concerns = |p: &mut Pull| p.version == version && p.sources.contains(&source);
        if r.pull.take_if(concerns).is_none() {
            return;
        }
        r.avoid.push((source, now + AVOID));
        let id = r.id;
        let text = format!("{id}'s pull of {version} from {source} failed: {reason}");
        self.event(Severity::Warn, "pull", Some(id), text);
    }

    /// Every pull from this rollout is off.
    pub(super) fn drop_pulls_from(&mut self, source: Incarnation) {
        let pulls: Vec<_> = self.index().pulls_of(source).copied().collect();
        for (_, id) in pulls {
            if let Some(r) = self.s.instances.get_mut(id) {
                r.pull.take_if(|p| p.sources.contains(&source));
            }
        }
    }

    /// Every pull from the trainer is off: its generation is over.
    pub(super) fn drop_pulls_from_trainer(&mut self) {
        let pulls: Vec<_> = self.index().trainer_pulls().iter().copied().collect();
        for (_, id) in pulls {
            if let Some(r) = self.s.instances.get_mut(id) {
                r.pull.take_if(|p| p.from_trainer);
            }
        }
    }
}
