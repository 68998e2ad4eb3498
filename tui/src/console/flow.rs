//! Tokens a second of all engines together, as far as this console saw them.
use crate::format::is_engine;
use robust_proto::v1;
use std::collections::VecDeque;

/// A value a second, as of the sliding ETTR.
pub const SECONDS: usize = 300;

/// The last five minutes.
#[derive(Debug, Default)]
pub struct Flow {
    /// Oldest first; NaN where nothing was seen.
    values: VecDeque<f64>,
    /// Unix second of the newest.
    second: u64,
}

impl Flow {
    /// Takes in a status: the last one of a second counts.
    pub fn observe(&mut self, status: &v1::Status) {
        let second = status.now_ms / 1000;
        let ahead = second.saturating_sub(self.second);
        if ahead > SECONDS as u64 || self.values.is_empty() {
            self.values.clear();
        } else {
            let unseen = (1..ahead).map(|_| f64::NAN);
            self.values.extend(unseen);
        }
        match self.values.back_mut() {
            Some(last) if ahead == 0 => *last = tokens_per_s(status),
            _ => self.values.push_back(tokens_per_s(status)),
        }
        self.second = self.second.max(second);
        while self.values.len() > SECONDS {
            self.values.pop_front();
        }
    }

    /// Oldest first, a value a second.
    pub fn values(&self) -> Vec<f64> {
        self.values.iter().copied().collect()
    }
}

/// Of all engines together.
pub fn tokens_per_s(status: &v1::Status) -> f64 {
    let engines = status.roles.iter().filter(|r| is_engine(&r.role));
    // The sum of nothing is -0.0.
    engines.map(|r| r.tokens_per_s).fold(0.0, |a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(now_ms: u64, tokens_per_s: f64) -> v1::Status {
        let role = |role: &str| v1::RoleStatus {
            role: role.into(),
            tokens_per_s,
            ..Default::default()
        };
        v1::Status {
            now_ms,
            roles: vec![role("rollout"), role("rollout"), role("agent")],
            ..Default::default()
        }
    }

    #[test]
    fn a_second_has_one_value_and_one_that_was_not_seen_none() {
        let mut flow = Flow::default();
        for (ms, rate) in [(10_000, 1.0), (10_250, 2.0), (11_000, 3.0), (13_500, 4.0)] {
            flow.observe(&at(ms, rate));
        }
        let seen = flow.values();
        assert_eq!(seen[..2], [4.0, 6.0]);
        assert!(seen[2].is_nan());
        assert_eq!(seen[3..], [8.0]);
    }

    #[test]
    fn no_engine_generates_nothing() {
        let none = tokens_per_s(&v1::Status::default());
        assert!(none == 0.0 && none.is_sign_positive());
    }

    #[test]
    fn five_minutes_are_kept_and_a_long_absence_begins_anew() {
        let mut flow = Flow::default();
        for second in 0..400 {
            flow.observe(&at(second * 1000, second as f64));
        }
        assert_eq!((flow.values().len(), flow.values()[0]), (300, 200.0));
        flow.observe(&at(9_000_000, 1.0));
        assert_eq!(flow.values(), [2.0]);
    }
}
