//! What the terminal rings for: an alarm that was not there before, an incident that stands for itself, a job that
//! failed. What there is when the console is opened, or begins to look at another job, has been heard of elsewhere.
use crate::format::who;
use robust_proto::v1;
use robust_shared::wire::JobState;
use std::collections::BTreeSet;

/// The bell.
#[derive(Debug)]
pub struct Bell {
    on: bool,
    /// What is no news; none: nothing was heard of this job yet.
    known: Option<Known>,
}

#[derive(Debug)]
struct Known {
    /// Kinds and texts without their figures, which change while it holds.
    alarms: BTreeSet<(String, String)>,
    /// Number of the newest incident.
    incident: u64,
    failed: bool,
}

impl Known {
    fn of(s: &v1::Status) -> Known {
        Known {
            alarms: s.alarms.iter().map(named).collect(),
            incident: s.incidents.iter().map(|i| i.id).max().unwrap_or(0),
            failed: s.state() == Some(JobState::Failed),
        }
    }
}

fn named(alarm: &v1::Alarm) -> (String, String) {
    let words = alarm.text.chars().filter(|c| !c.is_ascii_digit());
    (alarm.kind.clone(), words.collect())
}

impl Bell {
    /// One that rings, or not.
    pub fn new(on: bool) -> Bell {
        Bell { on, known: None }
    }

    /// Another job is looked at.
    pub fn forget(&mut self) {
        self.known = None;
    }

    /// Takes in a status; what to ring for, if there is anything.
    pub fn heard(&mut self, s: &v1::Status) -> Option<String> {
        // A daemon that has just started says no more than that.
        if !self.on || s.roles.is_empty() {
            return None;
        }
        let mut now = Known::of(s);
        let before = self.known.take();
        if let Some(before) = &before {
            now.incident = now.incident.max(before.incident);
        }
        self.known = Some(now);
        let texts = news(s, &before?);
        match texts.is_empty() {
            true => None,
            false => Some(format!("{}: {}", s.job, texts.join("; "))),
        }
    }
}

/// A few words on each thing that was not known.
fn news(s: &v1::Status, before: &Known) -> Vec<String> {
    let alarms = s.alarms.iter();
    let alarms = alarms.filter(|alarm| !before.alarms.contains(&named(alarm)));
    let mut texts: Vec<String> = alarms.map(|alarm| alarm.text.clone()).collect();
    let incidents = s.incidents.iter();
    // What follows from another one was rung for with it.
    let incidents = incidents.filter(|i| i.id > before.incident && i.under == 0);
    texts.extend(incidents.map(|i| {
        let name = who(&i.role, i.index);
        format!("incident {}: {name} {} ({})", i.id, i.rule, i.reason)
    }));
    if s.state() == Some(JobState::Failed) && !before.failed {
        texts.push(format!("the job failed: {}", s.reason));
    }
    texts
}
