//! Whether a leader that cannot write keeps its place.
use std::time::Duration;

/// A write that lasts longer than this makes a leader ask whether somebody else could do it.
pub const DOUBTED_AFTER: Duration = Duration::from_secs(2);
/// A leader that a follower could have written for so long, while it could not, gives its place up (CLUSTER.md 1.3-4). A
/// try of its own that hangs is over sooner: where the store comes back for all, the leader writes before.
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

/// What a write means that has lasted so long; `other` is for how long a follower has been able to write the log that has all
/// of it. Where nobody can, as the log is away for all, changing the leader would help nobody.
#[must_use]
pub fn place(lasts: Option<Duration>, other: Option<Duration>) -> Place {
    let Some(lasts) = lasts.filter(|lasts| *lasts >= DOUBTED_AFTER) else {
        return Place::Kept;
    };
    match other {
        Some(other) if other.min(lasts) >= GIVEN_UP_AFTER => Place::GivenUp,
        _ => Place::Doubted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_that_cannot_write_gives_its_place_to_a_follower_that_can_and_to_nobody_else() {
        let for_s = |s| Some(Duration::from_secs(s));
        assert_eq!(place(None, for_s(60)), Place::Kept);
        assert_eq!(place(for_s(1), for_s(60)), Place::Kept);
        assert_eq!(place(for_s(3), for_s(60)), Place::Doubted);
        assert_eq!(place(for_s(7), for_s(4)), Place::Doubted);
        assert_eq!(place(for_s(7), for_s(5)), Place::GivenUp);
        assert_eq!(place(for_s(600), None), Place::Doubted);
    }
}
