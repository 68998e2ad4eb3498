//! What is promised of a job, by how each of its roles is hosted.
//!
//! ```text
//!  Job ──► Hosted, a role each ──words──► Word (level, why), an invariant each ──► Promises
//!                                                  the weakest of all roles is the job's ──┘
//! ```
//! Nothing is silently weaker: who runs a role otherwise than the built-in way finds here, and so in
//! `status`, the report and the documents, what that costs.
mod hosting;
mod words;

#[cfg(test)]
mod tests;

pub use hosting::{Engine, Hosted, Hosting, Program};
pub use words::Word;

use crate::ids::Role;
use crate::job::Job;
use std::fmt;

/// One of the rules that the crate's documentation numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// I-1.
    OneGeneration,
    /// I-2.
    AcknowledgedTurns,
    /// I-3.
    ConsumedOnce,
    /// I-4.
    VerifiedVersions,
    /// I-5.
    Restorable,
    /// I-6.
    FewPullers,
    /// I-7.
    NoEndlessRestart,
    /// I-8.
    HealthyLives,
    /// I-9.
    BitForBit,
}

impl Invariant {
    /// All of them, by their numbers.
    pub const ALL: [Self; 9] = [
        Self::OneGeneration,
        Self::AcknowledgedTurns,
        Self::ConsumedOnce,
        Self::VerifiedVersions,
        Self::Restorable,
        Self::FewPullers,
        Self::NoEndlessRestart,
        Self::HealthyLives,
        Self::BitForBit,
    ];

    /// Its number: `I-4`.
    pub fn id(self) -> &'static str {
        match self {
            Self::OneGeneration => "I-1",
            Self::AcknowledgedTurns => "I-2",
            Self::ConsumedOnce => "I-3",
            Self::VerifiedVersions => "I-4",
            Self::Restorable => "I-5",
            Self::FewPullers => "I-6",
            Self::NoEndlessRestart => "I-7",
            Self::HealthyLives => "I-8",
            Self::BitForBit => "I-9",
        }
    }

    /// It in a few words.
    pub fn words(self) -> &'static str {
        match self {
            Self::OneGeneration => "one trainer generation is alive",
            Self::AcknowledgedTurns => "acknowledged turns are not lost",
            Self::ConsumedOnce => "trajectories are consumed once",
            Self::VerifiedVersions => "versions never go back, are verified",
            Self::Restorable => "published only if restorable",
            Self::FewPullers => "a source has few pullers at a time",
            Self::NoEndlessRestart => "no endless restart",
            Self::HealthyLives => "nobody healthy is killed",
            Self::BitForBit => "bit for bit, in mode sync",
        }
    }
}

/// How far something is promised; less is smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Not at all.
    No,
    /// As far as the reason says.
    Partly,
    /// As the crate's documentation has it.
    Yes,
}

crate::wire::named! {
    Level:
    /// As it is printed, and in JSON.
    word {
        No = "no",
        Partly = "partly",
        Yes = "yes",
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// An invariant, as far as a job has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Which.
    pub invariant: Invariant,
    /// How far: the least of all roles.
    pub level: Level,
    /// What it falls short by, a sentence for each cause: `rollout: ..`. Empty at [`Level::Yes`].
    pub reasons: Vec<String>,
}

/// What is promised of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promises {
    /// How each role is hosted; services last.
    pub hosted: Vec<Hosted>,
    /// Every invariant, by its number.
    pub promises: Vec<Promise>,
}

impl Promises {
    /// Of this job.
    pub fn of(job: &Job) -> Self {
        let roles = Role::ALL.into_iter().filter(|role| job.count(*role) > 0);
        let roles = roles.map(|role| Hosted::role(job, role));
        let services = job.services.iter();
        let services = services.map(|(name, service)| Hosted::service(name, service));
        let hosted: Vec<Hosted> = roles.chain(services).collect();
        let promise = |invariant| promise(invariant, &hosted, job);
        let promises = Invariant::ALL.map(promise).into();
        Self { hosted, promises }
    }
}

fn promise(invariant: Invariant, hosted: &[Hosted], job: &Job) -> Promise {
    let mut level = Level::Yes;
    // Roles with the same cause are told together.
    let mut short: Vec<(Vec<&str>, String)> = Vec::new();
    for of in hosted {
        let Some(word) = of.hosting.promised(invariant) else {
            continue;
        };
        level = level.min(word.level);
        if word.level == Level::Yes {
            continue;
        }
        match short.iter_mut().find(|(_, why)| *why == word.why) {
            Some((roles, _)) => roles.push(&of.role),
            None => short.push((vec![&of.role], word.why)),
        }
    }
    let told = |(roles, why): (Vec<&str>, String)| format!("{}: {why}", roles.join(", "));
    let mut reasons: Vec<String> = short.into_iter().map(told).collect();
    if let Some(why) = words::of_mode(invariant, job.job.mode) {
        level = Level::No;
        reasons.push(why);
    }
    Promise {
        invariant,
        level,
        reasons,
    }
}
