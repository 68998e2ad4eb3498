//! Corruption: weights are not what was published. It is found in three places:
//!
//! ```text
//!  a puller gets a chunk that differs ──► pulls elsewhere; `reports` about one source ──► the source
//!  before a version is served, all of it is read again ──┐
//!  every `scrub_s` what is served is read again ─────────┴─ a chunk differs ──► the engine itself
//! ```
//! A source about which it is said again is quarantined: its memory or its path is broken, so it is
//! restarted and serves only after it verified anew. A puller that finds two sources corrupt, which nobody
//! else says of them, is the broken one itself. Reports count until the life of the one they are about ends;
//! against the puller they count on only where that life ended on its word alone.
//!
//! What an engine finds in its own memory is proof by itself: it verified those bytes when they came. So a
//! struck engine is found though nobody pulls from it. Of an engine of the user's what lies in shared
//! memory is read, not what the engine made of it in its own.
use super::{ByRole, Rule, Setting, Verdict, settings};
use crate::core::effects::Cx;
use crate::core::recover::incident::Incidents;
use crate::core::roster::Roster;
use crate::core::roster::instance::Instance;
use crate::core::weights::Weights;
use crate::core::{FaultKind, Incident};
use crate::ids::{Incarnation, InstanceId, Role, WeightVersion};
use std::collections::BTreeSet;
use std::time::Duration;

/// A source of weights whose digests differ.
pub const RULE: Rule = Rule {
    name: "corruption",
    roles: &[Role::Trainer, Role::Hybrid, Role::Rollout],
    phases: &[],
    signal: "a puller finds a chunk whose digest differs from the published one; an engine finds one in what \
             it serves (every `scrub_s`) or is about to serve",
    action: "pull again; `reports` times from one source, or its own finding: it is quarantined and restarted",
    kind: Some(FaultKind::Corruption),
    event: None,
    watch: None,
};

settings! {
    /// What a job file may set of it.
    pub struct Corruption {
        /// Reports about one source before it is quarantined.
        pub reports: ByRole<u32> = Setting::number("reports", 2.0, 1.0, 1000.0),
        /// How often an engine reads again what it serves.
        pub scrub: ByRole<Duration> = Setting::seconds("scrub_s", 60.0),
    }
}

/// A puller found a source's chunk to be corrupt; the pull itself is tried again elsewhere.
pub(in crate::core) fn corrupt(
    cx: &Cx<'_>,
    roster: &mut Roster,
    incidents: &Incidents,
    puller: InstanceId,
    (source, version): (Incarnation, WeightVersion),
) -> Option<Verdict> {
    suspect_puller(roster, incidents, puller, source);
    let i = roster.instances().get(puller);
    let alone = i.filter(|i| i.corrupt_sources().is_some_and(|s| s.len() > 1));
    if alone.is_some_and(|i| i.condemned().is_none()) {
        let reason = "chunks from two sources differ in their digests at this puller only";
        return Some(Verdict::new(puller, &RULE, reason));
    }
    let i = roster.life_mut(source)?;
    let (who, reports) = (i.id(), i.is_reported());
    let most = cx.config.rules.corruption.reports.of(who.role);
    if reports < most || i.condemned().is_some() {
        return None;
    }
    let reason = format!(
        "{reports} pulls from it brought chunks whose digests differ, the last one {puller}'s of \
         {version}; it is quarantined"
    );
    Some(Verdict::new(who, &RULE, reason))
}

/// An engine found that it serves other bytes than it verified.
pub(in crate::core) fn damaged(
    weights: &Weights,
    engine: &Instance,
    version: WeightVersion,
    (chunks, total): (u64, u64),
) -> Option<Verdict> {
    let serves = weights.of(engine.id()).version();
    // It went over to another version before this was heard: those bytes are nobody's.
    let what = format!("{chunks} of {total} chunks of {version} that it serves");
    (serves == Some(version)).then(|| damaged_itself(engine, &what))?
}

/// Bytes changed in an engine's own memory after it verified them.
pub(in crate::core) fn damaged_itself(engine: &Instance, what: &str) -> Option<Verdict> {
    let reason = format!("{what} are not what it verified when they came; it is quarantined");
    let spared = engine.condemned().is_some();
    (!spared).then(|| Verdict::new(engine.id(), &RULE, reason))
}

/// Notes that a puller found a source corrupt, as far as that may be the puller's own doing: not
/// where another life found it too, nor where the source was replaced for something else since.
fn suspect_puller(
    roster: &mut Roster,
    incidents: &Incidents,
    puller: InstanceId,
    source: Incarnation,
) {
    let Some(life) = roster.instances().get(puller).map(Instance::incarnation) else {
        return;
    };
    let accused = roster.life_mut(source);
    let finders = accused.map(|s| s.is_corrupt_to(life)).unwrap_or_default();
    let others: Vec<Incarnation> = finders.into_iter().filter(|f| *f != life).collect();
    for &other in &others {
        if let Some(i) = roster.life_mut(other) {
            i.blames_no_more(source);
        }
    }
    let i = roster.instances().get(puller);
    let known = i.and_then(Instance::corrupt_sources);
    let counts = |life: &Incarnation| {
        let fell_for_it = |i: &Incident| i.incarnation == *life && i.rule == RULE.name;
        roster.instances().life(*life).is_some() || incidents.iter().any(fell_for_it)
    };
    let known = known.into_iter().flatten().copied().filter(counts);
    let mut found: BTreeSet<Incarnation> = known.collect();
    if others.is_empty() {
        found.insert(source);
    }
    if let Some(i) = roster.get_mut(puller) {
        i.blames(found);
    }
}
