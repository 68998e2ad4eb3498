//! What rules look at, and what they find: a rule that only looks changes nothing, and needs no controller.
use super::Verdict;
use super::durations::PhaseDurations;
use crate::core::config::CoreConfig;
use crate::core::gang::Gang;
use crate::core::roster::instance::{Instance, Life};
use crate::core::roster::instances::Instances;
use crate::core::weights::{PullOrder, Weights};
use crate::core::work::Work;
use crate::ids::Incarnation;
use crate::time::Time;

/// What rules look at.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Sight<'a> {
    /// The instant.
    pub now: Time,
    /// The job's values, those of the rules among them.
    pub config: &'a CoreConfig,
    /// Who is where.
    pub instances: &'a Instances,
    /// What the gang is about.
    pub gang: &'a Gang,
    /// Who pulls what.
    pub weights: &'a Weights,
    /// Who has which work.
    pub work: &'a Work,
    /// How long phases took.
    pub durations: &'a PhaseDurations,
    /// Whether the job is paused.
    pub is_paused: bool,
    /// When the last pause ended.
    pub resumed_at: Time,
    /// Whether a verdict fell on a rank: it ends the whole gang.
    pub gang_is_condemned: bool,
}

impl Sight<'_> {
    /// The first instant at which something is due for an instance though nothing happens.
    pub fn deadline(&self, i: &Instance) -> Option<Time> {
        let learned = self.rules_due(i, true);
        self.own_deadline(i).into_iter().chain(learned).min()
    }

    /// When the first of the rules falls for an instance whose instants are learned from others, or of
    /// those whose are not.
    fn rules_due(&self, i: &Instance, learned: bool) -> Option<Time> {
        let watches = self.config.rules.on().filter_map(|r| r.watch.as_ref());
        let watches = watches.filter(|w| w.is_learned == learned);
        watches.filter_map(|w| (w.due)(self, i)).min()
    }

    /// The first of those that follow from the instance and what touches it.
    pub fn own_deadline(&self, i: &Instance) -> Option<Time> {
        let life = match i.life() {
            Life::Waiting { until } => Some(until),
            // What was started has to link: a rule's matter.
            Life::Spawning { .. } | Life::Starting { .. } | Life::Unlinked { .. } => None,
            Life::None | Life::Homeless | Life::Attached => None,
        };
        let lasting = self.weights.of(i.id()).avoids_until();
        let due = [
            life.filter(|_| i.condemned().is_none()),
            i.condemned().map(|c| c.until),
            // A verdict fell by another rule: the answer to its probe is of no matter any more.
            i.suspect().filter(|_| i.condemned().is_none()),
            lasting,
            i.leaving().map(|(_, until)| until),
            self.rules_due(i, false),
        ];
        due.into_iter().flatten().min()
    }
}

/// What a rule finds when it falls for an instance.
#[derive(Clone, Debug)]
pub(in crate::core) enum Finding {
    /// One failed, mostly that instance.
    Failed(Verdict),
    /// What it does lasts, in words. It is said once.
    Lasts(String),
    /// Its pull brings nothing, in words: it is to go on elsewhere.
    Stalls {
        /// What it was told to pull.
        order: PullOrder,
        /// From whom.
        source: Incarnation,
        /// What is said, if the source has to answer for it.
        text: String,
    },
}
