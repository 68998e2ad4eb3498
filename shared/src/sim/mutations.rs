//! The proof that the fault search can find things: every seeded bug, and how many seeds it takes.
use super::faults::Schedule;
use super::search;
use super::world::Violation;
use crate::core::{CoreConfig, Mutation};

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
