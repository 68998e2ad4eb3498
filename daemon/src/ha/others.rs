//! How far the other candidates are that follow.
use super::site::Member;
use robust_shared::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// The other candidates, as far as they gave signs.
#[derive(Debug, Default)]
pub(super) struct Others(BTreeMap<String, (u64, Time)>);

impl Others {
    /// One gave a sign.
    pub fn signed(&mut self, name: &str, member: &Member, now: Time) {
        self.0.insert(name.to_owned(), (member.applied, now));
    }

    /// Whether one that lives has groups which a candidate that is at `applied` lacks.
    pub fn are_ahead(&self, applied: u64, now: Time, silence: Duration) -> bool {
        let lives = |at: Time| now.since(at) < silence;
        let mut others = self.0.values();
        others.any(|(of, at)| *of > applied && lives(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_lets_one_go_first_that_lives_and_has_more_of_the_log() {
        let silence = Duration::from_millis(700);
        let at = |ms: u64| Time(ms * 1000);
        let mut others = Others::default();
        let applied = |applied| Member {
            applied,
            proved: None,
        };
        others.signed("b", &applied(9), at(1_000));
        assert!(others.are_ahead(8, at(1_500), silence));
        assert!(!others.are_ahead(9, at(1_500), silence));
        // It died as well.
        assert!(!others.are_ahead(8, at(1_800), silence));
    }
}
