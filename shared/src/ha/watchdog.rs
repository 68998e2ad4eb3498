//! Whether a leader that cannot write keeps its place.
use std::time::Duration;

/// A write that lasts longer than this makes a leader ask whether somebody else could do it.
pub const DOUBTED_AFTER: Duration = Duration::from_secs(2);
/// A leader whose write lasts longer than this gives its place to who could (CLUSTER.md 1.3-4).
pub const GIVEN_UP_AFTER: Duration = Duration::from_secs(5);

/// What becomes of a leader's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is kept.
    Kept,
    /// It is kept as yet, and the followers are asked to prove that they can write the log.
    Doubted,
    /// Somebody else is to have it.
    GivenUp,
}

/// What a write that has lasted so long means; `other` says that a follower proved of late that it can write the log. Where
/// nobody can, as the log is away for all, changing the leader would help nobody.
#[must_use]
pub fn place(lasts: Option<Duration>, other: bool) -> Place {
    match lasts {
        Some(lasts) if lasts >= GIVEN_UP_AFTER && other => Place::GivenUp,
        Some(lasts) if lasts >= DOUBTED_AFTER => Place::Doubted,
        _ => Place::Kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_cannot_write_gives_its_place_to_a_follower_that_can_and_to_nobody_else() {
        let lasts = |s| Some(Duration::from_secs(s));
        assert_eq!(place(None, true), Place::Kept);
        assert_eq!(place(lasts(1), true), Place::Kept);
        assert_eq!(place(lasts(3), true), Place::Doubted);
        assert_eq!(place(lasts(5), true), Place::GivenUp);
        assert_eq!(place(lasts(600), false), Place::Doubted);
    }
}
