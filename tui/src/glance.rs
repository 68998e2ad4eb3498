//! A job in a line, beside others: of what it is made, how bad it is, and what is said of a daemon that is not reached.
use crate::ending::is_over;
use crate::error::CliError;
use crate::format::time_of_day_at;
use chrono::FixedOffset;
use robust_proto::v1;
use robust_shared::wire::{InstanceState, JobState, Word as _};
use serde::Serialize;

/// A job, by its last status.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Glance {
    /// The job's name.
    pub name: String,
    /// As in the status.
    pub state: String,
    /// Why it is in it, where that is said.
    pub reason: String,
    /// The last committed step.
    pub step: u64,
    /// 0: nobody knows.
    pub steps_total: u64,
    /// Seconds until the last step; none: that cannot be known.
    pub eta_s: Option<f64>,
    /// Over the last five minutes.
    pub ettr_sliding: f64,
    /// Over the whole run.
    pub ettr: f64,
    /// Over the whole run.
    pub goodput: f64,
    /// Instances that run.
    pub roles_up: usize,
    /// All instances.
    pub roles: usize,
    /// How many alarms hold.
    pub alarms: usize,
    /// The gravest of them, with which a status begins; empty: there is none.
    pub alarm: String,
    /// Which controller leads; empty: there is but one.
    pub leader: String,
    /// The number of its term; none: there is but one controller.
    pub epoch: Option<u64>,
}

impl Glance {
    /// What the job is about; none: a newer daemon's word.
    fn known(&self) -> Option<JobState> {
        JobState::known(&self.state)
    }

    /// Of this status.
    pub fn of(s: &v1::Status, eta_s: Option<f64>) -> Glance {
        let up = |r: &&v1::RoleStatus| {
            matches!(
                r.state(),
                Some(InstanceState::Running | InstanceState::Done)
            )
        };
        let controllers = s.controllers.as_ref();
        Glance {
            name: s.job.clone(),
            state: s.state.clone(),
            reason: s.reason.clone(),
            step: s.step,
            steps_total: s.steps_total,
            eta_s: eta_s.filter(|_| !is_over(&s.state)),
            ettr_sliding: s.ettr_sliding,
            ettr: s.ettr,
            goodput: s.goodput,
            roles_up: s.roles.iter().filter(up).count(),
            roles: s.roles.len(),
            alarms: s.alarms.len(),
            alarm: s
                .alarms
                .first()
                .map_or_else(String::new, |a| a.text.clone()),
            leader: controllers.map_or_else(String::new, |c| c.leader.clone()),
            epoch: controllers.map(|c| c.epoch),
        }
    }

    /// How much of it is done; none: nobody knows how many steps there are.
    pub fn percent(&self) -> Option<f64> {
        let known = self.steps_total > 0;
        known.then(|| self.step as f64 * 100.0 / self.steps_total as f64)
    }
}

/// A daemon that is not reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Away {
    /// Unix ms since when; none: it was asked once.
    pub since_ms: Option<u64>,
    /// Why.
    pub why: String,
}

impl Away {
    /// For this error, since then.
    pub fn of(error: &CliError, since_ms: Option<u64>) -> Away {
        let why = match error {
            CliError::NoDaemon { reason, .. } => reason.clone(),
            other => other.to_string(),
        };
        let why = why.replace('\n', "; ");
        Away { since_ms, why }
    }
}

/// How bad it is, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Care {
    /// The job ended, not by failing.
    Over,
    /// It runs.
    Runs,
    /// It was not heard of yet.
    Asked,
    /// It starts, is paused, or something else that is no fault.
    Waits,
    /// It recovers from a fault.
    Recovers,
    /// An alarm holds.
    Alarmed,
    /// Its daemon is not reached.
    Away,
    /// It failed.
    Failed,
}

/// A context and its job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub context: String,
    /// Where its daemon is looked for.
    pub place: String,
    /// Its daemon is not reached; none: it is, or nobody knows yet.
    pub away: Option<Away>,
    /// What was heard of its job last; none: nothing yet.
    pub job: Option<Glance>,
}

impl Row {
    /// How bad it is.
    pub fn care(&self) -> Care {
        match (&self.away, &self.job) {
            (_, Some(job)) if job.known() == Some(JobState::Failed) => Care::Failed,
            // Its daemon may have ended with it.
            (_, Some(job)) if is_over(&job.state) => Care::Over,
            (Some(_), _) => Care::Away,
            (None, None) => Care::Asked,
            (None, Some(job)) if job.alarms > 0 => Care::Alarmed,
            (None, Some(job)) => match job.known() {
                Some(JobState::Running) => Care::Runs,
                Some(JobState::Recovering) => Care::Recovers,
                _ => Care::Waits,
            },
        }
    }

    /// Its state in a word.
    pub fn state(&self) -> &str {
        match (&self.away, &self.job) {
            (_, Some(job)) if is_over(&job.state) => &job.state,
            (Some(_), _) => "away",
            (None, None) => "asked",
            (None, Some(job)) => &job.state,
        }
    }

    /// What is wrong, in a few words or a sentence; nothing where nothing is.
    pub fn trouble(&self, zone: FixedOffset) -> String {
        let job = match (&self.away, &self.job) {
            (Some(away), _) => {
                let since = away.since_ms.map(|ms| since(ms, zone));
                return match since {
                    Some(since) => format!("since {since} ({})", away.why),
                    None => away.why.clone(),
                };
            }
            (None, None) => return String::new(),
            (None, Some(job)) => job,
        };
        let alarm = match job.alarms {
            0 => String::new(),
            1 => job.alarm.clone(),
            n => format!("{n} alarms: {}", job.alarm),
        };
        match (alarm.is_empty(), job.reason.is_empty()) {
            (false, false) if job.known() == Some(JobState::Failed) => {
                format!("{}; {alarm}", job.reason)
            }
            (false, _) => alarm,
            (true, _) => job.reason.clone(),
        }
    }
}

/// Orders them: the worst first, of those that are as bad the first by name.
pub fn worst_first(rows: &mut [Row]) {
    rows.sort_by(|a, b| {
        let worse = b.care().cmp(&a.care());
        worse.then_with(|| a.context.cmp(&b.context))
    });
}

/// A time of day to the second.
fn since(ms: u64, zone: FixedOffset) -> String {
    let text = time_of_day_at(ms, zone);
    let seconds = text.split('.').next();
    seconds.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use chrono::{Offset as _, Utc};

    fn status(state: &str) -> v1::Status {
        v1::Status {
            job: "arith".to_owned(),
            state: state.to_owned(),
            step: 30,
            steps_total: 120,
            roles: ["running", "down", "running"]
                .map(|state| v1::RoleStatus {
                    state: state.to_owned(),
                    ..Default::default()
                })
                .to_vec(),
            ..Default::default()
        }
    }

    fn row(context: &str, job: Option<v1::Status>) -> Row {
        Row {
            context: context.to_owned(),
            place: "head:7070".to_owned(),
            away: None,
            job: job.map(|s| Glance::of(&s, Some(90.0))),
        }
    }

    fn alarmed() -> v1::Status {
        let alarm = |text: &str| v1::Alarm {
            text: text.to_owned(),
            ..Default::default()
        };
        v1::Status {
            alarms: vec![alarm("the disk is full"), alarm("nobody follows")],
            ..status("running")
        }
    }

    #[test]
    fn a_status_is_a_line_with_its_gravest_alarm_and_its_leaders_term() {
        let glance = Glance::of(
            &v1::Status {
                controllers: Some(v1::Controllers {
                    leader: "b".to_owned(),
                    epoch: 7,
                    ..Default::default()
                }),
                ..alarmed()
            },
            Some(90.0),
        );
        assert_eq!((glance.roles_up, glance.roles), (2, 3));
        assert_eq!(
            (glance.alarms, glance.alarm.as_str()),
            (2, "the disk is full")
        );
        assert_eq!((glance.leader.as_str(), glance.epoch), ("b", Some(7)));
        assert_eq!(glance.percent(), Some(25.0));
        assert_eq!(Glance::of(&status("stopped"), Some(90.0)).eta_s, None);
        assert_eq!(Glance::default().percent(), None, "nobody knows the end");
    }

    #[test]
    fn the_worst_comes_first_and_of_those_that_are_as_bad_the_first_by_name() {
        let mut away = row("away", Some(status("running")));
        away.away = Some(Away {
            since_ms: Some(0),
            why: "nobody listens there any more".to_owned(),
        });
        let mut rows = vec![
            row("over", Some(status("completed"))),
            row("runs-2", Some(status("running"))),
            row("asked", None),
            row("runs-1", Some(status("running"))),
            row("alarmed", Some(alarmed())),
            row("failed", Some(status("failed"))),
            row("recovers", Some(status("recovering"))),
            away,
            row("paused", Some(status("paused"))),
        ];
        worst_first(&mut rows);
        let names: Vec<&str> = rows.iter().map(|row| row.context.as_str()).collect();
        let expected = [
            "failed", "away", "alarmed", "recovers", "paused", "asked", "runs-1", "runs-2", "over",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_count_its_time_and_its_reason() {
        let zone = Utc.fix();
        assert_eq!(row("a", Some(status("running"))).trouble(zone), "");
        let said = row("a", Some(alarmed())).trouble(zone);
        assert_eq!(said, "2 alarms: the disk is full");
        let mut away = row("a", None);
        let error = CliError::NoDaemon {
            place: "head:7070".to_owned(),
            reason: "a: refused\nb: refused".to_owned(),
            fix: String::new(),
        };
        away.away = Some(Away::of(&error, Some(3_723_456)));
        assert_eq!(away.state(), "away");
        assert_eq!(
            away.trouble(zone),
            "since 01:02:03 (a: refused; b: refused)"
        );
        away.away = Some(Away::of(&error, None));
        assert_eq!(away.trouble(zone), "a: refused; b: refused");
    }

    #[test]
    fn a_script_is_told_by_names() {
        let json = serde_json::to_value(row("a", Some(alarmed()))).unwrap();
        assert_eq!(json["context"], "a");
        assert_eq!(json["job"]["roles_up"], 2);
        assert_eq!(json["job"]["eta_s"], 90.0);
        assert!(json["away"].is_null() && json["job"]["epoch"].is_null());
        assert!(serde_json::to_value(row("a", None)).unwrap()["job"].is_null());
    }
}
