//! Corruption: a puller got a chunk whose digest differs from the published one (design section 6). It
//! pulls again, elsewhere where it can; a source about which that is said again is quarantined: its
//! memory or its path is broken, so it is restarted and serves only after it verified anew. A puller
//! that finds two sources corrupt, which nobody else says of them, is the broken one itself. Reports count
//! until the life of the one they are about ends; against the puller they count on only where that life
//! ended on its word alone.
use super::{ByRole, Rule, Setting, Verdict, settings};
use crate::core::{Core, FaultKind, Incident};
use crate::ids::{Incarnation, InstanceId, Role, WeightVersion};
use std::collections::BTreeSet;

/// A source of weights whose digests differ.
pub const RULE: Rule = Rule {
    name: "corruption",
    roles: &[Role::Trainer, Role::Hybrid, Role::Rollout],
    phases: &[],
    signal: "a puller finds a chunk whose digest differs from the published one",
    action: "pull again; `reports` times from one source: it is quarantined and restarted",
    kind: Some(FaultKind::Corruption),
    event: None,
    watch: None,
};

settings! {
    /// What a job file may set of it.
    pub struct Corruption {
        /// Reports about one source before it is quarantined.
        pub reports: ByRole<u32> = Setting::number("reports", 2.0, 1.0, 1000.0),
    }
}

impl Core {
    /// A puller found a source's chunk to be corrupt; the pull itself is tried again elsewhere.
    pub(in crate::core) fn corrupt(
        &mut self,
        puller: InstanceId,
        source: Incarnation,
        version: WeightVersion,
    ) {
        self.suspect_puller(puller, source);
        let accused = self.s.instances.get(puller);
        if accused.is_some_and(|i| i.corrupt_sources.len() > 1 && i.condemned.is_none()) {
            let reason = "chunks from two sources differ in their digests at this puller only";
            return self.fault(Verdict::new(puller, &RULE, reason));
        }
        let Some(i) = self.s.instances.life_mut(source) else {
            return;
        };
        i.corrupt_reports += 1;
        let (who, reports) = (i.id, i.corrupt_reports);
        let most = self.config.rules.corruption.reports.of(who.role);
        if reports < most || i.condemned.is_some() {
            return;
        }
        let reason = format!(
            "{reports} pulls from it brought chunks whose digests differ, the last one {puller}'s of \
             {version}; it is quarantined"
        );
        self.fault(Verdict::new(who, &RULE, reason));
    }

    /// Notes that a puller found a source corrupt, as far as that may be the puller's own doing: not
    /// where another life found it too, nor where the source was replaced for something else since.
    fn suspect_puller(&mut self, puller: InstanceId, source: Incarnation) {
        let Some(life) = self.s.instances.get(puller).map(|i| i.incarnation) else {
            return;
        };
        let finders = self.s.instances.life_mut(source).map(|s| {
            s.corrupt_to.insert(life);
            s.corrupt_to.clone()
        });
        let others: Vec<Incarnation> = finders
            .into_iter()
            .flatten()
            .filter(|f| *f != life)
            .collect();
        for &other in &others {
            if let Some(i) = self.s.instances.life_mut(other) {
                i.corrupt_sources.remove(&source);
            }
        }
        let known = self.s.instances.get(puller).map(|i| &i.corrupt_sources);
        let counts = |life: &Incarnation| {
            let fell_for_it = |i: &Incident| i.incarnation == *life && i.rule == RULE.name;
            self.is_current(*life).is_some() || self.s.incidents.iter().any(fell_for_it)
        };
        let known = known.into_iter().flatten().copied().filter(counts);
        let mut found: BTreeSet<Incarnation> = known.collect();
        if others.is_empty() {
            found.insert(source);
        }
        if let Some(i) = self.s.instances.get_mut(puller) {
            i.corrupt_sources = found;
        }
    }
}
