//! What is posted. The page `docs/operate/reports.md` has the shape, which receivers rely on: keys are only added.
use super::book::News;
use crate::store::Told;
use robust_proto::v1;
use serde::Serialize;

/// Bytes of a text of others at most.
const MOST_TEXT: usize = 4 << 10;

/// Of whom a document is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The job's name.
    pub job: String,
    /// This life of the job, across restarts and leaders.
    pub run: String,
    /// Who leads.
    pub leader: String,
}

/// One document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Document {
    version: u32,
    /// Of an incident the same whenever and by whomever it is sent; of an alarm for as long as one daemon leads.
    id: String,
    event: &'static str,
    job: String,
    run: String,
    leader: String,
    at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    incident: Option<Incident>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alarm: Option<Alarm>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Incident {
    id: u64,
    role: String,
    index: u32,
    incarnation: u64,
    rule: String,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    root: String,
    plan: String,
    step: u64,
    /// The incident that it follows from.
    #[serde(skip_serializing_if = "Option::is_none")]
    under: Option<u64>,
    outcome: String,
    at_ms: u64,
    detect_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    restart_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reconnect_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_ms: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Alarm {
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    text: String,
    since_ms: u64,
}

/// What the receiver knows once it has a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Learnt {
    /// That an incident began.
    Begin(u64),
    /// That it ended.
    End(u64),
    /// That an alarm was raised, and when.
    Raised(String, u64),
    /// That it was cleared.
    Cleared(String),
}

impl Learnt {
    /// With it the receiver knows this.
    pub fn note_in(&self, told: &mut Told) {
        match self {
            Self::Begin(id) => {
                told.begun = told.begun.max(*id);
                told.open.insert(*id);
            }
            Self::End(id) => {
                // Its begin may have been left out for it.
                told.begun = told.begun.max(*id);
                told.open.remove(id);
            }
            Self::Raised(kind, since_ms) => {
                told.alarms.insert(kind.clone(), *since_ms);
            }
            Self::Cleared(kind) => {
                told.alarms.remove(kind);
            }
        }
    }
}

impl Document {
    /// Of a piece of news that was seen then, in Unix ms.
    pub fn of(news: &News<'_>, about: &Identity, at_ms: u64) -> (Self, Learnt) {
        let (event, learnt) = match *news {
            News::Begins(i) => ("incident_begins", Learnt::Begin(i.id)),
            News::Ends(i) => ("incident_ends", Learnt::End(i.id)),
            News::Raised(a) => ("alarm_raised", Learnt::Raised(a.kind.clone(), a.since_ms)),
            News::Cleared(kind, _) => ("alarm_cleared", Learnt::Cleared(kind.to_owned())),
        };
        let (incident, alarm) = match *news {
            News::Begins(i) | News::Ends(i) => (Some(Incident::from(i)), None),
            News::Raised(a) => (None, Some(Alarm::new(&a.kind, &a.text, a.since_ms))),
            News::Cleared(kind, since_ms) => (None, Some(Alarm::new(kind, "", since_ms))),
        };
        let document = Self {
            version: 1,
            id: id(news, &about.run),
            event,
            job: about.job.clone(),
            run: about.run.clone(),
            leader: about.leader.clone(),
            at_ms,
            incident,
            alarm,
        };
        (document, learnt)
    }
}

/// What tells a document from all others, and from no other sending of itself.
fn id(news: &News<'_>, run: &str) -> String {
    let alarm = |kind: &str, since_ms: u64, word: &str| {
        let kind = kind.replace(' ', "-");
        format!("{run}/alarm/{kind}/{since_ms}/{word}")
    };
    match *news {
        News::Begins(i) => format!("{run}/incident/{}/begins", i.id),
        News::Ends(i) => format!("{run}/incident/{}/ends", i.id),
        News::Raised(a) => alarm(&a.kind, a.since_ms, "raised"),
        News::Cleared(kind, since_ms) => alarm(kind, since_ms, "cleared"),
    }
}

impl From<&v1::Incident> for Incident {
    fn from(i: &v1::Incident) -> Self {
        // What has not come to pass has no length.
        let known = |ms: f64| (ms > 0.0).then_some(ms);
        Self {
            id: i.id,
            role: i.role.clone(),
            index: i.index,
            incarnation: i.incarnation,
            rule: i.rule.clone(),
            reason: short(&i.reason),
            cause: i.cause.as_ref().map(|cause| short(&cause.words)),
            root: short(&i.root),
            plan: short(&i.plan),
            step: i.step,
            under: (i.under > 0).then_some(i.under),
            outcome: i.outcome.clone(),
            at_ms: i.at_ms,
            detect_ms: i.detect_ms,
            restart_ms: known(i.restart_ms),
            reconnect_ms: known(i.reconnect_ms),
            total_ms: known(i.total_ms),
        }
    }
}

impl Alarm {
    fn new(kind: &str, text: &str, since_ms: u64) -> Self {
        Self {
            kind: kind.to_owned(),
            text: short(text),
            since_ms,
        }
    }
}

/// The beginning of a text that may be of any length.
fn short(text: &str) -> String {
    match text.len() > MOST_TEXT {
        false => text.to_owned(),
        true => format!("{}…", &text[..text.floor_char_boundary(MOST_TEXT)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn about() -> Identity {
        Identity {
            job: "arith-grpo".to_owned(),
            run: "r7".to_owned(),
            leader: "node-a".to_owned(),
        }
    }

    fn json_of(news: News<'_>) -> Value {
        let (document, _) = Document::of(&news, &about(), 1_767_323_050_000);
        serde_json::to_value(document).unwrap_or_default()
    }

    #[test]
    fn an_incident_is_told_with_its_cause_its_role_and_its_figures_as_far_as_they_are_known() {
        let mut incident = v1::Incident {
            id: 3,
            role: "rollout".to_owned(),
            index: 1,
            incarnation: 9,
            rule: "exit".to_owned(),
            reason: "exited with code 1".to_owned(),
            cause: Some(v1::Cause {
                fingerprint: "91b2a947f85fabd6".to_owned(),
                words: "exit code 1: KeyError: 'prompt'".to_owned(),
                count: 1,
            }),
            plan: "restart rollout-1".to_owned(),
            step: 12,
            outcome: "recovering".to_owned(),
            at_ms: 1_767_323_045_000,
            detect_ms: 3.5,
            evidence: "stacks".to_owned(),
            ..Default::default()
        };
        let begun = json!({
            "version": 1, "id": "r7/incident/3/begins", "event": "incident_begins",
            "job": "arith-grpo", "run": "r7", "leader": "node-a", "at_ms": 1_767_323_050_000_u64,
            "incident": {
                "id": 3, "role": "rollout", "index": 1, "incarnation": 9, "rule": "exit",
                "reason": "exited with code 1", "cause": "exit code 1: KeyError: 'prompt'",
                "plan": "restart rollout-1", "step": 12, "outcome": "recovering",
                "at_ms": 1_767_323_045_000_u64, "detect_ms": 3.5,
            },
        });
        assert_eq!(json_of(News::Begins(&incident)), begun);
        (incident.restart_ms, incident.reconnect_ms) = (900.0, 600.0);
        (incident.total_ms, incident.under) = (1503.5, 2);
        incident.outcome = "recovered".to_owned();
        let ended = json_of(News::Ends(&incident));
        assert_eq!(ended["id"], "r7/incident/3/ends");
        let figures = ["detect_ms", "restart_ms", "reconnect_ms", "total_ms"];
        let figures = figures.map(|key| ended["incident"][key].as_f64());
        assert_eq!(figures, [Some(3.5), Some(900.0), Some(600.0), Some(1503.5)]);
        assert_eq!(ended["incident"]["under"], 2);
    }

    #[test]
    fn an_alarm_has_the_same_number_when_it_is_raised_and_when_it_is_cleared() {
        let alarm = v1::Alarm {
            kind: "database full".to_owned(),
            text: "x".repeat(10_000),
            since_ms: 7,
        };
        let raised = json_of(News::Raised(&alarm));
        assert_eq!(raised["id"], "r7/alarm/database-full/7/raised");
        let told = raised["alarm"]["text"].as_str().unwrap_or_default();
        assert_eq!(told.len(), MOST_TEXT + "…".len());
        let cleared = json_of(News::Cleared("database full", 7));
        assert_eq!(cleared["id"], "r7/alarm/database-full/7/cleared");
        assert_eq!(
            cleared["alarm"],
            json!({"kind": "database full", "since_ms": 7})
        );
        assert_eq!(cleared["incident"], Value::Null);
    }

    #[test]
    fn what_the_receiver_learnt_is_what_a_later_life_does_not_tell_again() {
        let mut told = Told::default();
        for learnt in [
            Learnt::Begin(4),
            Learnt::Begin(5),
            Learnt::End(4),
            Learnt::Raised("log away".to_owned(), 9),
        ] {
            learnt.note_in(&mut told);
        }
        let wanted = Told {
            begun: 5,
            open: [5].into(),
            alarms: [("log away".to_owned(), 9)].into(),
        };
        assert_eq!(told, wanted);
        Learnt::Cleared("log away".to_owned()).note_in(&mut told);
        assert!(told.alarms.is_empty());
    }
}
