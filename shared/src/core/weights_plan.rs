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
use super::instance::{Instance, Pull, PullSeen};
use super::output::{Output, Severity};
use super::state::Stage;
use super::{Core, PullFailure};
use crate::ids::{Incarnation, InstanceId, WeightVersion};
use crate::time::Time;
use std::time::Duration;

/// How long a source that failed a puller is passed over by it.
const AVOID: Duration = Duration::from_secs(2);

impl Core {
    /// Assigns pulls to rollouts that are behind, as far as sources are free.
    pub(super) fn plan_pulls(&mut self) {
        let Some(version) = self.s.published else {
            return;
        };
        let now = self.now;
        for r in self.s.instances.iter_mut() {
            r.avoid.retain(|(_, until)| *until > now);
        }
        let mut behind: Vec<_> = self
            .s
            .instances
            .engines()
            .filter(|r| r.attached() && r.condemned.is_none() && r.version < Some(version))
            .filter(|r| r.pull.as_ref().is_none_or(|p| p.version < version))
            .map(|r| (r.admitted, r.version, r.id))
            .collect();
        // Those that get no traffic yet come first.
        behind.sort_unstable();
        for (.., id) in behind {
            self.assign_pull(id, version);
        }
    }

    fn assign_pull(&mut self, id: InstanceId, version: WeightVersion) {
        let Some(r) = self.s.instances.get_mut(id) else {
            return;
        };
        let puller = r.incarnation;
        let older = r.pull.take();
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
        let mut pulls = self.s.instances.iter().filter_map(|r| r.pull.as_ref());
        pulls.any(|p| p.sources.contains(&source) && Some(p.version) != serving)
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
        let fit = |source: Incarnation| {
            source != puller
                && avoid.iter().all(|(a, _)| *a != source)
                && self.pullers_of(source) < self.config.pullers_per_source
        };
        let has_it = |r: &&Instance| {
            let sound = r.attached() && r.condemned.is_none() && r.suspect.is_none();
            sound && r.version == Some(version) && fit(r.incarnation)
        };
        let relays = self.s.instances.engines().filter(has_it);
        let relay = relays.min_by_key(|r| (self.pullers_of(r.incarnation), r.id.index));
        if let Some(relay) = relay {
            return Some((vec![relay.incarnation], false));
        }
        let restored = !matches!(self.s.gang.stage, Stage::Forming | Stage::Restoring);
        let serves = restored && self.s.gang.serves == Some(version) && self.gang_attached();
        let ranks = self.ranks();
        (serves && ranks.iter().all(|r| fit(*r))).then_some((ranks, true))
    }

    fn pullers_of(&self, source: Incarnation) -> u32 {
        let pulls = self.s.instances.iter().filter_map(|r| r.pull.as_ref());
        u32::try_from(pulls.filter(|p| p.sources.contains(&source)).count()).unwrap_or(u32::MAX)
    }

    /// Whether a puller still reads the trainer's buffer that `version` would be copied into.
    pub(super) fn buffer_in_use(&self, version: WeightVersion) -> bool {
        let mut pulls = self.s.instances.iter().filter_map(|r| r.pull.as_ref());
        pulls.any(|p| p.from_trainer && p.version < version && p.version.0 % 2 == version.0 % 2)
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
                r.admitted |= r.version >= published;
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
        for r in self.s.instances.iter_mut() {
            r.pull.take_if(|p| p.sources.contains(&source));
        }
    }

    /// Every pull from the trainer is off: its generation is over.
    pub(super) fn drop_pulls_from_trainer(&mut self) {
        for r in self.s.instances.iter_mut() {
            r.pull.take_if(|p| p.from_trainer);
        }
    }
}
