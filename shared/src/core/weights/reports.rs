//! What pullers report.
use crate::core::output::Severity;
use crate::core::roster::instance::{Instance, Pull, PullSeen, Supply};
use crate::core::roster::instances::Current;
use crate::core::{Core, Mutation, PullFailure};
use crate::ids::{Incarnation, WeightVersion};
use crate::time::Time;
use std::time::Duration;

/// How long a source that failed a puller is passed over by it; and how long one rests that failed by
/// itself.
const AVOID: Duration = Duration::from_secs(2);

impl Core {
    /// Others can read along with the pull from now on.
    pub(in crate::core) fn on_pull_started(&mut self, puller: Current, version: WeightVersion) {
        let i = self.s.instances.of_mut(puller);
        // One that comes late is about a buffer that was given up.
        if i.version < Some(version) {
            i.readable = i.readable.max(Some(version));
        }
    }

    pub(in crate::core) fn on_pull_progress(
        &mut self,
        puller: Current,
        version: WeightVersion,
        bytes: u64,
        total: u64,
    ) {
        let now = self.now;
        let i = self.s.instances.of_mut(puller);
        let Some(pull) = i.pull.as_mut().filter(|p| p.version == version) else {
            return;
        };
        let grew = i
            .pull_seen
            .is_none_or(|s| s.version != version || s.bytes < bytes);
        if !grew {
            return;
        }
        pull.moved_at = now;
        let early = self.config.mutant(Mutation::FreeSourceEarly);
        let all = total > 0 && (bytes >= total || early);
        pull.supply = match pull.supply {
            _ if all => Supply::Spent,
            Supply::Flows => Supply::Waits,
            same => same,
        };
        if self.config.mutant(Mutation::AdmitUnverified) {
            (i.version, i.admitted) = (i.version.max(Some(version)), true);
        }
        i.pull_seen = Some(PullSeen {
            version,
            bytes,
            total,
        });
        self.supply_pullers(puller, if all { Supply::Whole } else { Supply::Flows });
        self.spring(puller);
    }

    /// A relay has more than before, or everything: those that waited for it can go on.
    fn supply_pullers(&mut self, relay: Current, with: Supply) {
        let now = self.now;
        let relay_now = self.s.instances.of(relay);
        let all = relay_now.pull.as_ref().filter(|p| !p.reads());
        let all = all.map(|p| p.version);
        let has = relay_now.version.max(all);
        let pulls = self.index().pulls_of(relay.incarnation);
        let pulls: Vec<_> = pulls.copied().collect();
        for (version, id) in pulls {
            let puller = self.s.instances.get(id);
            let pull = puller.and_then(|i| i.pull.as_ref());
            // What a puller has already is nothing new to it, though its source got it only now.
            let front = |i: Option<&Instance>| i.map_or(0, |i| i.bytes_of(version));
            let there = match with {
                Supply::Flows => front(Some(self.s.instances.of(relay))) > front(puller),
                _ => has >= Some(version),
            };
            let waits = |p: &Pull| matches!(p.supply, Supply::Waits | Supply::Flows);
            if !pull.is_some_and(|p| waits(p) && p.supply != with) || !there {
                continue;
            }
            let pull = self.s.instances.get_mut(id).and_then(|i| i.pull.as_mut());
            if let Some(pull) = pull {
                if pull.supply == Supply::Waits {
                    pull.moved_at = now;
                }
                pull.supply = with;
            }
        }
    }

    /// An engine has a whole version, as it says: whoever pulls that from it waits for nobody.
    pub(in crate::core) fn supply_whole(&mut self, relay: Current) {
        self.supply_pullers(relay, Supply::Whole);
    }

    pub(in crate::core) fn on_pulled(
        &mut self,
        puller: Current,
        version: WeightVersion,
        result: Result<(), PullFailure>,
    ) {
        let (published, now) = (self.s.published, self.now);
        let i = self.s.instances.of_mut(puller);
        match result {
            Ok(()) if Some(version) <= published => {
                let (id, before) = (i.id, i.admitted);
                i.version = i.version.max(Some(version));
                i.own_failures = 0;
                if i.pull.as_ref().is_some_and(|p| p.version <= version) {
                    i.pull = None;
                }
                i.readable.take_if(|readable| *readable <= version);
                i.admitted |= !i.quarantined && i.version >= published;
                if i.admitted && !before {
                    let text = format!("{id} verified {version} and is admitted");
                    self.event(Severity::Info, "admitted", Some(id), text);
                }
                self.supply_whole(puller);
            }
            Ok(()) => {}
            Err(PullFailure::Superseded) => {
                i.pull
                    .take_if(|p| p.version == version && Some(version) < published);
            }
            Err(PullFailure::Own { reason }) => {
                if i.pull.take_if(|p| p.version == version).is_some() {
                    // It passes over itself, and so gets no order.
                    i.avoid.push((puller.incarnation, now + AVOID));
                    let id = i.id;
                    let text = format!("{id}'s pull of {version} failed: {reason}");
                    self.event(Severity::Warn, "pull", Some(id), text);
                    self.pull_failed_by_itself(puller, &reason);
                }
            }
            Err(PullFailure::Damaged { reason }) => {
                i.pull.take_if(|p| p.version == version);
                self.damaged_itself(puller, &reason);
            }
            Err(PullFailure::Source { source, reason }) => {
                self.pull_failed(puller, version, source, &reason, now);
            }
            Err(PullFailure::Corrupt { source }) => {
                let (id, reason) = (i.id, "a chunk's digest differs");
                if self.pull_failed(puller, version, source, reason, now) {
                    self.corrupt(id, source, version);
                }
            }
        }
    }

    /// Whether an engine was told to pull a newer version before it had this one: that nobody gets it
    /// from there any more is no fault.
    fn gave_up(&self, source: Incarnation, version: WeightVersion) -> bool {
        let source = self.s.instances.life(source);
        source.is_some_and(|s| {
            let pulls = s.pull.as_ref().map(|p| p.version).max(s.readable);
            s.id.role.is_engine() && s.version != Some(version) && pulls > Some(version)
        })
    }

    /// Tries elsewhere; a report about a source that was replaced meanwhile changes nothing. Returns
    /// whether the source has to answer for it.
    pub(in crate::core) fn pull_failed(
        &mut self,
        puller: Current,
        version: WeightVersion,
        source: Incarnation,
        reason: &str,
        now: Time,
    ) -> bool {
        let i = self.s.instances.of_mut(puller);
        let concerns = |p: &mut Pull| p.version == version && p.sources.contains(&source);
        if i.pull.take_if(concerns).is_none() {
            return false;
        }
        if self.gave_up(source, version) {
            return false;
        }
        let id = puller.id;
        let i = self.s.instances.of_mut(puller);
        i.avoid.push((source, now + AVOID));
        let text = format!("{id}'s pull of {version} from {source} failed: {reason}");
        self.event(Severity::Warn, "pull", Some(id), text);
        true
    }
}
