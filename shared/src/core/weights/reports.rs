//! What engines report of their pulls.
use super::Weights;
use super::holder::{Pull, PullSeen, Supply};
use crate::core::Mutation;
use crate::core::config::CoreConfig;
use crate::core::effects::Cx;
use crate::core::input::PullFailure;
use crate::core::output::Severity;
use crate::ids::{Incarnation, InstanceId, WeightVersion};
use crate::time::Time;
use std::time::Duration;

/// How long a source that failed a puller is passed over by it; and how long one rests that failed by
/// itself.
pub(super) const AVOID: Duration = Duration::from_secs(2);

/// An order to pull, as its begin and its end are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullOrder {
    /// The version that was to be pulled.
    pub version: WeightVersion,
    /// The order's number; 0 where it is not said: then it is the present one of that version.
    pub order: u64,
}

impl PullOrder {
    /// The order that a pull was begun by.
    pub fn of(pull: &Pull) -> Self {
        Self {
            version: pull.version,
            order: pull.order,
        }
    }

    pub(super) fn is_of(self, pull: &Pull) -> bool {
        let said = self.order != 0 && pull.order != 0;
        self.version == pull.version && (!said || self.order == pull.order)
    }
}

/// A pull that failed, where somebody else than the planner has to judge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// For a reason of the puller's own.
    ByItself {
        /// So many times in a row, this one included.
        times: u32,
        /// In the puller's words.
        reason: String,
    },
    /// The puller's own memory changed under it.
    Damaged {
        /// In the puller's words.
        reason: String,
    },
    /// A chunk that came from this source has another digest than the published one.
    Corrupt {
        /// Which source.
        source: Incarnation,
    },
}

impl Weights {
    /// An engine linked, and says which version it has. Its pull is done, as its version says, or goes on; the
    /// command may be lost with the link. Its source stays taken meanwhile (I-6).
    pub fn attached(&mut self, cx: &mut Cx<'_>, id: InstanceId, version: Option<WeightVersion>) {
        let (published, quarantined) = (self.published, self.is_quarantined(id));
        self.change(cx.config, id, |holder| {
            // Versions never go back (I-4).
            holder.version = holder.version.max(version);
            holder.admitted |= !quarantined && holder.has(published);
            holder.end_older_pulls();
        });
        // Nobody is told to pull from one that was taken out since: it goes on, or elsewhere.
        let out = |source: &Incarnation| {
            let source = self.engine_of(*source);
            source.is_some_and(|source| self.is_quarantined(source))
        };
        let pull = self.of(id).pull();
        if pull.is_some_and(|pull| !pull.sources.iter().any(out)) {
            self.tell_order(cx, id);
        }
        self.supply_pullers(cx, id, Supply::Whole);
    }

    fn is_quarantined(&self, id: InstanceId) -> bool {
        let engine = self.engines.get(id);
        engine.is_some_and(|engine| engine.peer.quarantined)
    }

    /// Others can read along with the pull from now on.
    pub fn pull_started(&mut self, cx: &Cx<'_>, id: InstanceId, started: PullOrder) {
        let version = started.version;
        self.change(cx.config, id, |holder| {
            let present = holder.pull.as_ref().is_some_and(|p| started.is_of(p));
            if present {
                holder.left = None;
            }
            // One that comes late is about a buffer that was given up, be it for an order that a daemon gave
            // before its crash and the next one knows nothing of.
            if holder.version < Some(version) && (present || started.order == 0) {
                holder.readable = holder.readable.max(Some(version));
            }
        });
    }

    /// Bytes came; whether any that had not been there.
    pub fn pull_progressed(
        &mut self,
        cx: &Cx<'_>,
        id: InstanceId,
        version: WeightVersion,
        (bytes, total): (u64, u64),
    ) -> bool {
        let (now, config) = (cx.now, cx.config);
        let early = config.mutant(Mutation::FreeSourceEarly);
        let all = total > 0 && (bytes >= total || early);
        let grew = self.change(config, id, |holder| {
            let seen = holder.pull_seen;
            let Some(pull) = holder.pull.as_mut().filter(|p| p.version == version) else {
                return false;
            };
            if seen.is_some_and(|s| s.version == version && s.bytes >= bytes) {
                return false;
            }
            pull.moved_at = now;
            pull.supply = match pull.supply {
                _ if all => Supply::Spent,
                Supply::Flows => Supply::Waits,
                same => same,
            };
            if config.mutant(Mutation::AdmitUnverified) {
                let newer = holder.version.max(Some(version));
                (holder.version, holder.admitted) = (newer, true);
            }
            holder.pull_seen = Some(PullSeen {
                version,
                bytes,
                total,
            });
            true
        });
        if grew {
            self.supply_pullers(cx, id, if all { Supply::Whole } else { Supply::Flows });
        }
        grew
    }

    /// A relay has more than before, or everything: those that waited for it can go on.
    fn supply_pullers(&mut self, cx: &Cx<'_>, relay: InstanceId, with: Supply) {
        let now = cx.now;
        let Some(engine) = self.engines.get(relay) else {
            return;
        };
        let (has, seen) = (engine.holder.version, engine.holder.pull_seen);
        let all = engine.holder.pull.as_ref().filter(|p| !p.reads());
        let whole = has.max(all.map(|p| p.version));
        let front = |seen: Option<PullSeen>, version: WeightVersion| {
            let seen = seen.filter(|seen| seen.version == version);
            seen.map_or(0, |seen| seen.bytes)
        };
        let pulls: Vec<_> = self.sets.pulls_of(engine.peer.life).copied().collect();
        for (version, id) in pulls {
            let puller = self.of(id);
            // What a puller has already is nothing new to it, though its source got it only now.
            let there = match with {
                Supply::Flows => front(seen, version) > front(puller.pull_seen, version),
                _ => whole >= Some(version),
            };
            let waits = |p: &Pull| matches!(p.supply, Supply::Waits | Supply::Flows);
            let unheard = |p: &Pull| waits(p) && p.supply != with;
            if !there || !puller.pull().is_some_and(unheard) {
                continue;
            }
            self.change(cx.config, id, |holder| {
                if let Some(pull) = &mut holder.pull {
                    if pull.supply == Supply::Waits {
                        pull.moved_at = now;
                    }
                    pull.supply = with;
                }
            });
        }
    }

    /// A pull ended. What somebody else has to judge is returned. That it has a version is so whichever order it
    /// answers; a failure ends the order that it answers and no other: the same pull may have been ordered again
    /// since, after a crash of the daemon or a link that broke, and goes on (I-6).
    pub fn pulled(
        &mut self,
        cx: &mut Cx<'_>,
        (id, life): (InstanceId, Incarnation),
        ended: PullOrder,
        result: Result<(), PullFailure>,
    ) -> Option<Failed> {
        let (published, version) = (self.published, ended.version);
        // Whatever it read before, this was the last that it read.
        if self.of(id).left.is_some_and(|(left, _)| left <= version) {
            self.change(cx.config, id, |holder| holder.left = None);
        }
        match result {
            Ok(()) if Some(version) <= published => self.verified(cx, id, version),
            Ok(()) => {}
            Err(PullFailure::Superseded) => {
                let older = |p: &mut Pull| ended.is_of(p) && Some(version) < published;
                self.change(cx.config, id, |holder| holder.pull.take_if(older));
            }
            Err(PullFailure::Own { reason }) => {
                return self.failed_by_itself(cx, (id, life), ended, reason);
            }
            Err(PullFailure::Damaged { reason }) => {
                let same = |p: &mut Pull| p.version == version;
                self.change(cx.config, id, |holder| holder.pull.take_if(same));
                return Some(Failed::Damaged { reason });
            }
            Err(PullFailure::Source { source, reason }) => {
                self.source_failed(cx, id, ended, source, &reason);
            }
            Err(PullFailure::Corrupt { source }) => {
                let reason = "a chunk's digest differs";
                let answers = self.source_failed(cx, id, ended, source, reason);
                return answers.then_some(Failed::Corrupt { source });
            }
        }
        None
    }

    /// An engine has a whole version, whose digest is the published one.
    fn verified(&mut self, cx: &mut Cx<'_>, id: InstanceId, version: WeightVersion) {
        let (published, quarantined) = (self.published, self.is_quarantined(id));
        let admitted = self.change(cx.config, id, |holder| {
            let before = holder.admitted;
            holder.version = holder.version.max(Some(version));
            holder.own_failures = 0;
            holder.pull.take_if(|p| p.version <= version);
            holder.readable.take_if(|readable| *readable <= version);
            holder.admitted |= !quarantined && holder.version >= published;
            holder.admitted && !before
        });
        if admitted {
            let text = format!("{id} verified {version} and is admitted");
            cx.event(Severity::Info, "admitted", Some(id), text);
        }
        // Whoever pulls that from it waits for nobody.
        self.supply_pullers(cx, id, Supply::Whole);
    }

    fn failed_by_itself(
        &mut self,
        cx: &mut Cx<'_>,
        (id, life): (InstanceId, Incarnation),
        ended: PullOrder,
        reason: String,
    ) -> Option<Failed> {
        let until = cx.now + AVOID;
        let times = self.change(cx.config, id, |holder| {
            holder.pull.take_if(|p| ended.is_of(p))?;
            // It passes over itself, and so gets no order.
            holder.avoid.push((life, until));
            holder.own_failures += 1;
            Some(holder.own_failures)
        })?;
        let text = format!("{id}'s pull of {} failed: {reason}", ended.version);
        cx.event(Severity::Warn, "pull", Some(id), text);
        Some(Failed::ByItself { times, reason })
    }

    /// Tries elsewhere; a report about a source that was replaced meanwhile changes nothing. Returns
    /// whether the source has to answer for it.
    pub fn source_failed(
        &mut self,
        cx: &mut Cx<'_>,
        id: InstanceId,
        ended: PullOrder,
        source: Incarnation,
        reason: &str,
    ) -> bool {
        let version = ended.version;
        let concerns = |p: &mut Pull| ended.is_of(p) && p.sources.contains(&source);
        let ended = self.change(cx.config, id, |holder| holder.pull.take_if(concerns));
        if ended.is_none() || self.gave_up(source, version) {
            return false;
        }
        let until = cx.now + AVOID;
        self.change(cx.config, id, |holder| holder.avoid.push((source, until)));
        let text = format!("{id}'s pull of {version} from {source} failed: {reason}");
        cx.event(Severity::Warn, "pull", Some(id), text);
        true
    }

    /// Whether an engine was told to pull a newer version before it had this one: that nobody gets it
    /// from there any more is no fault.
    fn gave_up(&self, source: Incarnation, version: WeightVersion) -> bool {
        let source = self.engine_of(source).map(|id| self.of(id));
        source.is_some_and(|s| s.version != Some(version) && s.newest_buffer() > Some(version))
    }

    /// Sources that were passed over for long enough may be tried again by this engine.
    pub fn end_avoidance(&mut self, config: &CoreConfig, now: Time, id: InstanceId) {
        let over = |(_, until): &(Incarnation, Time)| *until <= now;
        if !self.of(id).avoid.iter().any(over) {
            return;
        }
        self.change(config, id, |holder| holder.avoid.retain(|one| !over(one)));
        if !config.mutant(Mutation::ForgetAvoided) {
            self.due = true;
        }
    }

    /// The daemon was away, and nobody saw what engines did meanwhile.
    pub fn rejoin(&mut self, config: &CoreConfig, now: Time) {
        if config.mutant(Mutation::VersionBack) {
            self.published = None;
        }
        for id in self.engines.ids() {
            self.change(config, id, |holder| {
                // A pull may go on without us: its source stays taken, and the buffer it reads (I-4, I-6).
                if let Some(pull) = &mut holder.pull {
                    pull.moved_at = now;
                    if pull.supply == Supply::Flows {
                        pull.supply = Supply::Waits;
                    }
                }
                // What it wrote into since, nobody saw; it says so when it is told to pull again.
                holder.readable = None;
                holder.avoid.clear();
            });
        }
    }
}
