//! How many restarts one kind of fault may cost in a row, and how long each further one waits (I-7).
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What kind of fault it was; each has a budget of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A linked process ended or lost its link.
    Exit,
    /// A process did not come up.
    Start,
    /// A process lives and does nothing.
    Hang,
    /// A rollout answers and does not generate, or was quarantined.
    Health,
    /// Its slot's hardware failed.
    Hardware,
    /// Loss or gradient are no numbers.
    Numeric,
    /// A call ended with an exception, its process alive.
    Exception,
    /// It served weights whose digests differ.
    Corruption,
    /// Its node is lost.
    Node,
}

crate::wire::named! {
    FaultKind:
    /// The name used in job files and sentences.
    name {
        Exit = "exit",
        Start = "start",
        Hang = "hang",
        Health = "health",
        Hardware = "hardware",
        Numeric = "numeric",
        Exception = "exception",
        Corruption = "corruption",
        Node = "node",
    }
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [FaultKind; 9] = [
        FaultKind::Exit,
        FaultKind::Start,
        FaultKind::Hang,
        FaultKind::Health,
        FaultKind::Hardware,
        FaultKind::Numeric,
        FaultKind::Exception,
        FaultKind::Corruption,
        FaultKind::Node,
    ];
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What one kind of fault may cost one instance (or the gang).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Restarts in a row, without useful work between; one more restarts the task.
    pub max: u32,
    /// Failures further apart are not in a row.
    pub window: Duration,
    /// Wait before the second restart in a row; doubles with each further one.
    pub backoff: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            max: 3,
            window: Duration::from_secs(600),
            backoff: Duration::from_millis(100),
        }
    }
}

impl Budget {
    /// The wait before a restart that follows `failures` failures in a row.
    pub fn wait_after(&self, failures: u32) -> Duration {
        match failures {
            0 | 1 => Duration::ZERO,
            n => self.backoff.saturating_mul(1 << (n - 2).min(6)),
        }
    }
}

/// The budgets of all kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// Of kinds that have none of their own.
    pub general: Budget,
    /// Those with one of their own: a table of their own in the job file.
    pub own: BTreeMap<FaultKind, Budget>,
}

impl Budgets {
    /// The budget of a kind.
    pub fn of(&self, kind: FaultKind) -> Budget {
        self.own.get(&kind).copied().unwrap_or(self.general)
    }

    /// Where the budget of a kind came from.
    pub fn source(&self, kind: FaultKind) -> String {
        match self.own.contains_key(&kind) {
            true => format!("job file: restart.{kind}"),
            false if self.general != Budget::default() => "job file: restart".to_owned(),
            false => "default".to_owned(),
        }
    }
}

/// Failures in a row of one instance, kind by kind; useful work clears them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strikes(BTreeMap<FaultKind, Strike>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Strike {
    count: u32,
    at: Time,
    /// When the row began.
    #[serde(default)]
    since: Time,
}

impl Strikes {
    /// Counts one and says how many that makes in a row.
    pub fn strike(&mut self, kind: FaultKind, window: Duration, now: Time) -> u32 {
        let first = Strike {
            count: 0,
            at: now,
            since: now,
        };
        let strike = self.0.entry(kind).or_insert(first);
        if now.since(strike.at) > window {
            *strike = first;
        }
        (strike.count, strike.at) = (strike.count.saturating_add(1), now);
        strike.count
    }

    /// How many there are in a row, though one more failed that does not count.
    pub fn in_a_row(&self, kind: FaultKind, window: Duration, now: Time) -> u32 {
        let row = self.0.get(&kind).filter(|s| now.since(s.at) <= window);
        row.map_or(0, |strike| strike.count)
    }

    /// The one counted at that time was not the instance's fault. Of a row that is over nothing is
    /// left to take back.
    pub fn take_back(&mut self, kind: FaultKind, at: Time) {
        if let Some(strike) = self.0.get_mut(&kind).filter(|s| s.since <= at) {
            strike.count = strike.count.saturating_sub(1);
        }
    }

    /// Whether nothing is counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Useful work: what comes is not in a row with what was.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_on_its_own_until_its_window_is_over_or_work_was_done() {
        let (mut strikes, window) = (Strikes::default(), Duration::from_secs(10));
        let at = |s: u64| Time(1_000_000_000) + Duration::from_secs(s);
        assert_eq!(strikes.strike(FaultKind::Exit, window, at(0)), 1);
        assert_eq!(strikes.strike(FaultKind::Exit, window, at(10)), 2);
        assert_eq!(strikes.strike(FaultKind::Hang, window, at(10)), 1);
        assert_eq!(strikes.strike(FaultKind::Exit, window, at(21)), 1);
        strikes.clear();
        assert_eq!(strikes.strike(FaultKind::Hang, window, at(21)), 1);
    }

    #[test]
    fn one_that_is_taken_back_does_not_count_and_of_a_row_that_is_over_none_is() {
        let (mut strikes, window) = (Strikes::default(), Duration::from_secs(10));
        let at = |s: u64| Time(1_000_000_000) + Duration::from_secs(s);
        let row = |strikes: &Strikes, s| strikes.in_a_row(FaultKind::Exit, window, at(s));
        strikes.strike(FaultKind::Exit, window, at(0));
        strikes.strike(FaultKind::Exit, window, at(1));
        strikes.take_back(FaultKind::Exit, at(0));
        assert_eq!((row(&strikes, 2), row(&strikes, 20)), (1, 0));
        strikes.strike(FaultKind::Exit, window, at(20));
        strikes.take_back(FaultKind::Exit, at(1));
        assert_eq!(row(&strikes, 21), 1, "another row");
        strikes.clear();
        strikes.take_back(FaultKind::Exit, at(20));
        assert_eq!(row(&strikes, 21), 0);
    }

    #[test]
    fn the_first_restart_is_at_once_and_the_wait_doubles_to_a_bound() {
        let budget = Budget::default();
        let waits: Vec<u128> = [1, 2, 3, 8, 99]
            .map(|n| budget.wait_after(n).as_millis())
            .to_vec();
        assert_eq!(waits, [0, 100, 200, 6400, 6400]);
    }
}
