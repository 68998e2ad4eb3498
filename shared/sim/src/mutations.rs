//! The proof that the fault search can find things: every seeded bug, and how many seeds it takes.
use super::faults::Schedule;
use super::search;
use super::world::Violation;
use robust_shared::core::{CoreConfig, Mutation};
use robust_shared::ha::Bug;

/// The first schedule of three controllers, of a seed below `most`, under which a seeded bug among them breaks something, and
/// what.
pub fn find_above(bug: Bug, most: u64) -> Option<(Schedule, Violation)> {
    (0..most).find_map(|seed| {
        let schedule = Schedule::of_controllers(seed, 3);
        let found = with(bug, &schedule)?;
        Some((schedule, found))
    })
}

/// What a schedule breaks with a seeded bug among its controllers.
pub fn with(bug: Bug, schedule: &Schedule) -> Option<Violation> {
    let config = CoreConfig {
        bug: Some(bug),
        ..schedule.config()
    };
    search::run_as(schedule, config).violation
}

/// The first seed below `most` under which a seeded bug breaks something, and what it breaks.
pub fn find(mutation: Mutation, most: u64) -> Option<(u64, Violation)> {
    (0..most).find_map(|seed| {
        let schedule = Schedule::of(seed);
        let config = CoreConfig {
            mutation: Some(mutation),
            ..schedule.config()
        };
        let found = search::run_as(&schedule, config).violation?;
        Some((seed, found))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::shrink;

    /// Each is shrunk, too: what is left still breaks the same, by what befalls controllers or by nothing at all.
    #[test]
    #[allow(clippy::disallowed_macros, reason = "prints what it found")]
    fn the_search_finds_every_seeded_bug_among_several_controllers_and_shrinks_it() {
        let mut missed = Vec::new();
        for bug in Bug::ALL {
            let Some((schedule, found)) = find_above(bug, 2000) else {
                missed.push(bug);
                continue;
            };
            let shrunk = shrink::shrink_with(&schedule, |s| with(bug, s)).unwrap();
            let (seed, runs, left) = (schedule.seed, shrunk.runs, &shrunk.schedule.faults);
            println!("{bug:?}: seed {seed}: {found}; {runs} runs leave {left:?}");
            assert_eq!(shrunk.violation.invariant, found.invariant, "{bug:?}");
            assert!(left.len() <= 6, "{bug:?}: {left:?}");
        }
        assert_eq!(missed, []);
    }

    /// Whoever asks nobody takes a lease away at once; the sign that it reads before that protects a leader that lives, and
    /// the compare protects the log from one that was only slow.
    #[test]
    fn a_seeded_bug_that_leaves_the_second_opinion_out_breaks_nothing() {
        assert_eq!(find_above(Bug::NoSecondOpinion, 400), None);
    }

    #[test]
    #[allow(clippy::disallowed_macros, reason = "prints what it found")]
    fn the_search_finds_every_seeded_bug_within_two_thousand_seeds() {
        let mut missed = Vec::new();
        for mutation in Mutation::ALL {
            match find(mutation, 2000) {
                Some((seed, found)) => println!("{mutation:?}: seed {seed}: {found}"),
                None => missed.push(mutation),
            }
        }
        assert_eq!(missed, []);
    }
}
