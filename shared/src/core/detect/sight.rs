//! What rules look at, and what they find: a rule that only looks changes nothing, and needs no controller.
use super::Verdict;
use super::durations::PhaseDurations;
use crate::core::config::CoreConfig;
use crate::core::gang::Gang;
use crate::core::roster::instances::Instances;
use crate::core::weights::Weights;
use crate::core::work::Work;
use crate::ids::{Incarnation, WeightVersion};
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

/// What a rule finds when it falls for an instance.
#[derive(Clone, Debug)]
pub(in crate::core) enum Finding {
    /// One failed, mostly that instance.
    Failed(Verdict),
    /// What it does lasts, in words. It is said once.
    Lasts(String),
    /// Its pull brings nothing, in words: it is to go on elsewhere.
    Stalls {
        /// What it pulls.
        version: WeightVersion,
        /// From whom.
        source: Incarnation,
        /// What is said, if the source has to answer for it.
        text: String,
    },
}
