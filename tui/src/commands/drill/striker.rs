//! When the next fault is due; pure, from what the daemon's statuses say.
use robust_proto::v1;
use robust_shared::drill::{After, Moment, Strike};
use robust_shared::fault::Kind;
use robust_shared::wire::JobState;
use std::time::{Duration, Instant};

/// Steps after the last fault that show that a job goes on.
const GOES_ON: u64 = 2;

/// How much older than what was armed since a status may be.
const STALE_MS: u64 = 1_000;

/// Armed for a later life.
struct Waiting {
    number: u64,
    /// By the daemon's clock; not later than it was.
    armed_ms: u64,
    /// A status had it.
    seen: bool,
    strike: Strike,
}

/// Hands out the strikes of a run, each at its moment.
///
/// ```text
///  waiting ──moment reached, nothing recovers──► due ──struck──► open
///     ▲                                                           │ its incident is seen
///     └────────── a step was committed after it ◄─────────────────┘
/// ```
/// A second fault before the first commit restarts the task by design, so it is not struck, unless
/// the drill says that it belongs to the same step. A fault that ends nobody's life has no incident
/// to wait for, nor one for the start-up of a later life: that is armed, and others bring that life.
pub struct Striker {
    pending: Vec<Strike>,
    step: Duration,
    running_since: Option<Instant>,
    /// Committed steps when the watch began; moments count from there.
    begin: Option<u64>,
    committed: u64,
    committed_since: Option<Instant>,
    running: bool,
    /// What struck and has no incident yet, and the last incident before it.
    open: Option<(Strike, u64)>,
    /// An incident was seen of something that struck.
    seen: bool,
    /// What is armed for a later life, by its number there.
    armed: Vec<Waiting>,
    /// The last incident while the job was not over.
    last: u64,
    /// Committed steps when the last fault struck.
    struck_at: Option<u64>,
    /// Whether moments count from the steps that were committed when the watch began.
    relative: bool,
}

impl Striker {
    /// For a job of the drill's own. `step`: the time of a fault-free step.
    pub fn new(pending: Vec<Strike>, step: Duration) -> Self {
        Self {
            pending,
            step,
            running_since: None,
            begin: None,
            committed: 0,
            committed_since: None,
            running: false,
            open: None,
            seen: false,
            armed: Vec::new(),
            last: 0,
            struck_at: None,
            relative: false,
        }
    }

    /// For a job that runs already: steps count from now.
    pub fn attached(pending: Vec<Strike>, step: Duration) -> Self {
        Self {
            relative: true,
            ..Self::new(pending, step)
        }
    }

    /// Strikes that have not been handed out.
    pub fn pending(&self) -> &[Strike] {
        &self.pending
    }

    /// What struck and was not seen yet.
    pub fn open(&self) -> Option<&Strike> {
        let open = self.open.as_ref().map(|(strike, _)| strike);
        open.or(self.armed.first().map(|waiting| &waiting.strike))
    }

    /// What struck a life that is there, and was not seen yet.
    pub fn unseen(&self) -> Option<&Strike> {
        self.open.as_ref().map(|(strike, _)| strike)
    }

    /// Whether everything struck, and there was an incident to be seen of it, and it was.
    pub fn all_seen(&self) -> bool {
        self.pending.is_empty() && self.open().is_none() && self.seen
    }

    /// Whether everything struck and the job went on since.
    pub fn got_over(&self) -> bool {
        let since = self
            .struck_at
            .map_or(0, |at| self.committed - at.min(self.committed));
        self.pending.is_empty() && self.open().is_none() && self.running && since >= GOES_ON
    }

    /// The strike that is due at `now`; it stays pending until [`Self::struck`].
    pub fn due(&mut self, now: Instant, status: &v1::Status) -> Option<Strike> {
        if self.committed_since.is_none() || status.step > self.committed {
            (self.committed, self.committed_since) = (status.step, Some(now));
        }
        self.running = status.state() == Some(JobState::Running);
        self.note_armed(status);
        let next = self.pending.first();
        let follows = next.filter(|s| s.after == After::Strike && self.struck_at.is_some());
        if follows.is_some() && self.running {
            return follows.cloned();
        }
        if let Some((_, last)) = &self.open {
            let incident = status.incidents.iter().find(|i| i.id > *last)?;
            (self.open, self.struck_at, self.seen) = (None, Some(incident.step), true);
        }
        let next = self.pending.first();
        let again = next.filter(|s| s.after == After::Verdict && self.struck_at.is_some());
        if again.is_some() && status.state() == Some(JobState::Recovering) {
            return again.cloned();
        }
        if !self.running {
            return None;
        }
        // The moment in the first step counts from when there is something to strike.
        let running = *self.running_since.get_or_insert_with(|| {
            self.committed_since = Some(now);
            now
        });
        let begin = match self.relative {
            true => *self.begin.get_or_insert(status.step),
            false => 0,
        };
        let commit_awaited = self.struck_at.is_some_and(|step| status.step <= step);
        let reached = |strike: &&Strike| match strike.at {
            _ if commit_awaited && !is_for_start_up(strike) => strike.after != After::Commit,
            Moment::Seconds(at) => now - running >= Duration::from_secs_f64(at),
            Moment::Steps(at) => {
                let since = self.committed_since.unwrap_or(now);
                let whole = begin + at.floor() as u64;
                status.step > whole
                    || (status.step == whole && now - since >= self.step.mul_f64(at.fract()))
            }
        };
        self.pending.iter().find(reached).cloned()
    }

    /// Which of those for later lives wait still. A job that is over has none: if an incident ended it
    /// since the last look, one of them may have been its cause.
    fn note_armed(&mut self, status: &v1::Status) {
        let last = status.incidents.iter().map(|i| i.id).max().unwrap_or(0);
        if crate::ending::is_over(&status.state) {
            self.armed.retain(|_| last == self.last);
            return;
        }
        self.last = last;
        self.armed.retain_mut(|waiting| {
            let waits = status.armed.iter().any(|armed| armed.id == waiting.number);
            waiting.seen |= waits;
            // A status may be of a moment before it was armed.
            waits || !waiting.seen && status.now_ms < waiting.armed_ms + STALE_MS
        });
    }

    /// The strike was carried out, or armed under a number and by a time of the daemon's, in ms;
    /// `status` is the last one before it.
    pub fn struck(&mut self, strike: &Strike, armed: Option<(u64, u64)>, status: &v1::Status) {
        if let Some(at) = self.pending.iter().position(|s| s == strike) {
            self.pending.remove(at);
        }
        if let Some((number, armed_ms)) = armed.filter(|_| is_for_start_up(strike)) {
            self.armed.push(Waiting {
                number,
                armed_ms,
                seen: false,
                strike: strike.clone(),
            });
            return;
        }
        self.struck_at = Some(status.step);
        let last = status.incidents.iter().map(|i| i.id).max().unwrap_or(0);
        let kind = strike.fault.kind();
        if kind.ends_life() || kind == Kind::LoseNode {
            self.open = Some((strike.clone(), last));
        }
    }
}

fn is_for_start_up(strike: &Strike) -> bool {
    strike.phase.is_some_and(|at| at.is_start_up())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_shared::drill::Whom;
    use robust_shared::fault::Fault;
    use robust_shared::ids::{InstanceId, Role};

    fn strike(at: Moment) -> Strike {
        Strike {
            at,
            fault: Fault::Kill,
            whom: Whom::Instance(InstanceId {
                role: Role::Trainer,
                index: 0,
            }),
            phase: None,
            after: After::Commit,
        }
    }

    fn status(state: &str, step: u64, incidents: &[(u64, u64)]) -> v1::Status {
        let incident = |&(id, step): &(u64, u64)| v1::Incident {
            id,
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

    /// The daemon's time.
    const NOW_MS: u64 = 10_000;

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
        striker.struck(&first, None, &status("running", 1, &[(6, 0)]));
        // Its incident is not seen yet, and the commit before it is on its way.
        assert_eq!(
            striker.due(at(t, 9), &status("running", 2, &[(6, 0)])),
            None
        );
        assert!(striker.open().is_some());
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

    #[test]
    fn a_strike_after_a_recovery_or_a_verdict_waits_for_that_but_for_no_commit() {
        for (after, in_recovery) in [(After::Recovery, false), (After::Verdict, true)] {
            let mut second = strike(Moment::Steps(1.0));
            second.after = after;
            let strikes = vec![strike(Moment::Steps(1.0)), second.clone()];
            let (mut striker, t) = (Striker::new(strikes, Duration::ZERO), Instant::now());
            let first = striker.due(t, &status("running", 1, &[])).unwrap();
            striker.struck(&first, None, &status("running", 1, &[]));
            assert_eq!(striker.due(at(t, 1), &status("running", 1, &[])), None);
            let due = striker.due(at(t, 2), &status("recovering", 1, &[(1, 1)]));
            assert_eq!(due.is_some(), in_recovery, "{after:?}");
            let due = striker.due(at(t, 3), &status("running", 1, &[(1, 1)]));
            assert_eq!(due, Some(second), "{after:?}");
        }
    }

    #[test]
    fn a_strike_after_a_strike_waits_for_nobody_to_see_the_first() {
        let mut second = strike(Moment::Steps(1.0));
        (second.after, second.fault) = (After::Strike, Fault::LeaderCrash);
        let strikes = vec![strike(Moment::Steps(1.0)), second.clone()];
        let (mut striker, t) = (Striker::new(strikes, Duration::ZERO), Instant::now());
        let first = striker.due(t, &status("running", 1, &[])).unwrap();
        striker.struck(&first, None, &status("running", 1, &[]));
        let due = striker.due(t, &status("running", 1, &[]));
        assert_eq!(due, Some(second.clone()));
        striker.struck(&second, None, &status("running", 1, &[]));
        assert_eq!(
            striker.unseen(),
            Some(&first),
            "it shows no incident of its own"
        );
    }

    #[test]
    fn a_fault_that_ends_no_life_is_got_over_when_steps_were_committed() {
        let mut slow = strike(Moment::Steps(1.0));
        slow.fault = "slow 20% 1s".parse().unwrap();
        let (mut striker, t) = (Striker::new(vec![slow], Duration::ZERO), Instant::now());
        let first = striker.due(t, &status("running", 4, &[])).unwrap();
        striker.struck(&first, None, &status("running", 4, &[]));
        assert!(striker.open().is_none() && !striker.got_over());
        for (s, step, over) in [(1, 4, false), (2, 5, false), (3, 6, true)] {
            striker.due(at(t, s), &status("running", step, &[]));
            assert_eq!(striker.got_over(), over, "step {step}");
        }
    }

    #[test]
    fn against_a_job_that_runs_already_steps_count_from_the_first_look() {
        let strikes = vec![strike(Moment::Steps(1.0))];
        let mut striker = Striker::attached(strikes, Duration::ZERO);
        let t = Instant::now();
        assert_eq!(striker.due(t, &status("running", 50, &[])), None);
        assert!(striker.due(at(t, 1), &status("running", 51, &[])).is_some());
    }

    #[test]
    fn one_for_a_later_life_is_armed_and_its_strike_is_waited_for() {
        let mut armed = strike(Moment::Steps(1.0));
        armed.phase = Some("load_checkpoint".parse().unwrap());
        let strikes = vec![armed.clone(), strike(Moment::Steps(1.0))];
        let (mut striker, t) = (Striker::new(strikes, Duration::ZERO), Instant::now());
        let waiting = |mut status: v1::Status| {
            status.armed.push(v1::ArmedFault {
                id: 4,
                ..Default::default()
            });
            status
        };
        assert_eq!(
            striker.due(t, &status("running", 1, &[])),
            Some(armed.clone())
        );
        striker.struck(&armed, Some((4, NOW_MS)), &status("running", 1, &[]));
        striker.due(t, &status("running", 1, &[]));
        assert_eq!(
            striker.open(),
            Some(&armed),
            "a status of before says nothing"
        );
        // Nobody's life ended: the next one is due at once, and brings the later life about.
        let kill = striker.due(t, &waiting(status("running", 1, &[]))).unwrap();
        striker.struck(&kill, None, &status("running", 1, &[]));
        striker.due(t, &waiting(status("recovering", 1, &[(1, 1)])));
        assert_eq!(striker.open(), Some(&armed));
        striker.due(t, &waiting(status("completed", 3, &[(1, 1)])));
        assert_eq!(striker.open(), Some(&armed), "it never struck");
        striker.due(t, &status("running", 3, &[(1, 1)]));
        assert_eq!(striker.open(), None);
    }

    #[test]
    fn one_that_struck_before_any_status_had_it_is_over_once_a_later_one_has_not() {
        let mut armed = strike(Moment::Steps(1.0));
        armed.phase = Some("init".parse().unwrap());
        let (t, running) = (Instant::now(), status("running", 1, &[]));
        let mut striker = Striker::new(vec![armed.clone()], Duration::ZERO);
        striker.struck(&armed, Some((1, NOW_MS)), &running);
        for (ms, open) in [(STALE_MS - 1, true), (STALE_MS, false)] {
            let now_ms = NOW_MS + ms;
            let later = v1::Status {
                now_ms,
                ..running.clone()
            };
            striker.due(t, &later);
            assert_eq!(striker.open().is_some(), open);
        }
    }

    #[test]
    fn a_job_that_ended_of_an_incident_since_the_last_look_may_have_been_struck() {
        let mut armed = strike(Moment::Steps(1.0));
        armed.phase = Some("init".parse().unwrap());
        for (incidents, seen) in [(&[(1, 1)][..], false), (&[(1, 1), (2, 1)][..], true)] {
            let mut striker = Striker::new(vec![armed.clone()], Duration::ZERO);
            striker.struck(&armed, Some((1, NOW_MS)), &status("running", 1, &[]));
            let mut waits = status("recovering", 1, &[(1, 1)]);
            waits.armed.push(v1::ArmedFault {
                id: 1,
                ..Default::default()
            });
            striker.due(Instant::now(), &waits);
            striker.due(Instant::now(), &status("failed", 1, incidents));
            assert_eq!(striker.open().is_none(), seen);
        }
    }
}
