//! When the next fault is due; pure, from what the daemon's statuses say.
use robust_proto::v1;
use robust_shared::drill::{Moment, Strike};
use std::time::{Duration, Instant};

/// Hands out the strikes of a run, each at its moment.
///
/// ```text
///  waiting ──moment reached, nothing recovers──► due ──struck──► open
///     ▲                                                           │ its incident is seen
///     └────────── a step was committed after it ◄─────────────────┘
/// ```
/// A second fault before the first commit restarts the task by design, so it is not struck.
pub struct Striker {
    pending: Vec<Strike>,
    step: Duration,
    running_since: Option<Instant>,
    committed: u64,
    committed_since: Option<Instant>,
    /// The life that was struck and has no incident yet.
    open: Option<u64>,
    /// Committed steps when the last fault struck.
    struck_at: Option<u64>,
}

impl Striker {
    /// `step`: the time of a fault-free step.
    pub fn new(pending: Vec<Strike>, step: Duration) -> Self {
        Self {
            pending,
            step,
            running_since: None,
            committed: 0,
            committed_since: None,
            open: None,
            struck_at: None,
        }
    }

    /// Strikes that have not been handed out.
    pub fn pending(&self) -> &[Strike] {
        &self.pending
    }

    /// The strike that is due at `now`; it stays pending until [`Self::struck`].
    pub fn due(&mut self, now: Instant, status: &v1::Status) -> Option<Strike> {
        if self.committed_since.is_none() || status.step > self.committed {
            (self.committed, self.committed_since) = (status.step, Some(now));
        }
        if let Some(life) = self.open {
            let incident = status.incidents.iter().find(|i| i.incarnation == life)?;
            (self.open, self.struck_at) = (None, Some(incident.step));
        }
        if status.state != "running" {
            return None;
        }
        // The moment in the first step counts from when there is something to strike.
        let running = *self.running_since.get_or_insert_with(|| {
            self.committed_since = Some(now);
            now
        });
        if self.struck_at.is_some_and(|step| status.step <= step) {
            return None;
        }
        let reached = |strike: &&Strike| match strike.at {
            Moment::Seconds(at) => now - running >= Duration::from_secs_f64(at),
            Moment::Steps(at) => {
                let since = self.committed_since.unwrap_or(now);
                let whole = at.floor() as u64;
                status.step > whole
                    || (status.step == whole && now - since >= self.step.mul_f64(at.fract()))
            }
        };
        self.pending.iter().find(reached).cloned()
    }

    /// The strike was carried out against this life.
    pub fn struck(&mut self, strike: &Strike, incarnation: u64) {
        if let Some(at) = self.pending.iter().position(|s| s == strike) {
            self.pending.remove(at);
        }
        self.open = Some(incarnation);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_shared::drill::FaultKind;
    use robust_shared::ids::Role;

    fn strike(at: Moment) -> Strike {
        Strike {
            at,
            kind: FaultKind::Kill,
            role: Role::Trainer,
            index: 0,
        }
    }

    fn status(state: &str, step: u64, incidents: &[(u64, u64)]) -> v1::Status {
        let incident = |&(incarnation, step): &(u64, u64)| v1::Incident {
            incarnation,
            step,
            ..Default::default()
        };
        v1::Status {
            state: state.to_owned(),
            step,
            incidents: incidents.iter().map(incident).collect(),
            ..Default::default()
        }
    }

    fn striker(at: &[f64]) -> (Striker, Instant) {
        let strikes = at.iter().map(|at| strike(Moment::Steps(*at))).collect();
        (
            Striker::new(strikes, Duration::from_secs(10)),
            Instant::now(),
        )
    }

    fn at(begin: Instant, s: u64) -> Instant {
        begin + Duration::from_secs(s)
    }

    #[test]
    fn a_strike_is_due_when_its_part_of_a_step_is_over() {
        let (mut striker, t) = striker(&[1.5]);
        assert_eq!(striker.due(at(t, 0), &status("starting", 0, &[])), None);
        assert_eq!(striker.due(at(t, 50), &status("running", 0, &[])), None);
        assert_eq!(striker.due(at(t, 60), &status("running", 1, &[])), None);
        assert_eq!(striker.due(at(t, 64), &status("running", 1, &[])), None);
        assert!(striker.due(at(t, 65), &status("running", 1, &[])).is_some());
    }

    #[test]
    fn a_strike_is_not_missed_when_the_step_was_quicker_than_expected() {
        let (mut striker, t) = striker(&[1.9]);
        assert_eq!(striker.due(at(t, 0), &status("running", 1, &[])), None);
        assert!(striker.due(at(t, 1), &status("running", 2, &[])).is_some());
    }

    #[test]
    fn the_next_strike_waits_until_a_step_was_committed_after_the_last() {
        let (mut striker, t) = striker(&[1.0, 1.1]);
        let first = striker.due(t, &status("running", 1, &[])).unwrap();
        striker.struck(&first, 7);
        // Its incident is not seen yet, and the commit before it is on its way.
        assert_eq!(striker.due(at(t, 9), &status("running", 2, &[])), None);
        assert_eq!(
            striker.due(at(t, 20), &status("recovering", 2, &[(7, 2)])),
            None
        );
        assert_eq!(
            striker.due(at(t, 30), &status("running", 2, &[(7, 2)])),
            None
        );
        assert!(
            striker
                .due(at(t, 31), &status("running", 3, &[(7, 2)]))
                .is_some()
        );
        assert_eq!(striker.pending().len(), 1);
    }

    #[test]
    fn a_strike_by_time_counts_from_when_the_job_runs() {
        let t = Instant::now();
        let mut striker = Striker::new(vec![strike(Moment::Seconds(5.0))], Duration::ZERO);
        assert_eq!(striker.due(at(t, 0), &status("starting", 0, &[])), None);
        assert_eq!(striker.due(at(t, 40), &status("running", 0, &[])), None);
        assert_eq!(striker.due(at(t, 44), &status("running", 0, &[])), None);
        assert!(striker.due(at(t, 45), &status("running", 0, &[])).is_some());
    }
}
