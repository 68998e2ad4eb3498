//! Which alarms and incidents of a status are news to the receiver.
use crate::store::Told;
use robust_proto::v1;
use robust_shared::core::IncidentOutcome;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an alarm that a former life of the daemon, or a former leader, raised is taken for raised without being raised
/// again: what it is about may have to be looked at first.
const GRACE: Duration = Duration::from_secs(60);

/// The outcome of an incident that ended out of sight.
const UNKNOWN: &str = "unknown";

/// One piece of news.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum News<'a> {
    /// An incident was not there before.
    Begins(&'a v1::Incident),
    /// It is not recovering any more, or not in sight.
    Ends(&'a v1::Incident),
    /// An alarm was not there before.
    Raised(&'a v1::Alarm),
    /// It is not there any more: its kind, and the Unix time in ms when it was raised.
    Cleared(&'a str, u64),
}

/// Knows what the receiver has been told, or will be by what waits to be sent.
#[derive(Debug)]
pub(super) struct Book {
    told: Told,
    /// Incidents whose end the receiver does not know, as they were seen first.
    open: BTreeMap<u64, v1::Incident>,
    /// Alarms of a former life that nobody has raised in this one.
    inherited: BTreeSet<String>,
}

impl Book {
    /// Of a receiver that was told this before.
    pub fn going_on(told: Told) -> Self {
        let inherited = told.alarms.keys().cloned().collect();
        Self {
            told,
            open: BTreeMap::new(),
            inherited,
        }
    }

    /// Of a receiver that is new: the begins of these incidents were before its time.
    pub fn beginning_with(incidents: &[v1::Incident]) -> Self {
        let open = incidents
            .iter()
            .filter(|i| i.outcome() == Some(IncidentOutcome::Recovering));
        Self::going_on(Told {
            begun: incidents.iter().map(|i| i.id).max().unwrap_or(0),
            open: open.map(|i| i.id).collect(),
            ..Told::default()
        })
    }

    /// What the receiver knows once all that was told has come to it.
    pub fn told(&self) -> &Told {
        &self.told
    }

    /// Tells what is new, each piece once, however often a status comes. `age` is that of this life of the daemon.
    pub fn read(&mut self, status: &v1::Status, age: Duration, mut tell: impl FnMut(News<'_>)) {
        for incident in &status.incidents {
            if incident.id > self.told.begun {
                self.told.begun = incident.id;
                self.told.open.insert(incident.id);
                tell(News::Begins(incident));
            }
            if incident.outcome() != Some(IncidentOutcome::Recovering)
                && self.told.open.remove(&incident.id)
            {
                self.open.remove(&incident.id);
                tell(News::Ends(incident));
            }
            if self.told.open.contains(&incident.id) {
                let seen = self.open.entry(incident.id);
                seen.or_insert_with(|| without_evidence(incident));
            }
        }
        for incident in self.out_of_sight(&status.incidents) {
            tell(News::Ends(&incident));
        }
        for alarm in &status.alarms {
            self.inherited.remove(&alarm.kind);
            if !self.told.alarms.contains_key(&alarm.kind) {
                let since = (alarm.kind.clone(), alarm.since_ms);
                self.told.alarms.insert(since.0, since.1);
                tell(News::Raised(alarm));
            }
        }
        let inherited = &self.inherited;
        let holds = |kind: &String| {
            let waits = age < GRACE && inherited.contains(kind);
            waits || status.alarms.iter().any(|alarm| alarm.kind == *kind)
        };
        let raised = self.told.alarms.keys();
        let gone: Vec<String> = raised.filter(|kind| !holds(kind)).cloned().collect();
        for kind in gone {
            if let Some(since_ms) = self.told.alarms.remove(&kind) {
                tell(News::Cleared(&kind, since_ms));
            }
        }
    }

    /// The incidents that were open and are not in sight any more, though later ones are: the daemon keeps so many, and lets
    /// none go that is open.
    fn out_of_sight(&mut self, incidents: &[v1::Incident]) -> Vec<v1::Incident> {
        let newest = incidents.iter().map(|i| i.id).max().unwrap_or(0);
        let is_gone = |id: &u64| *id < newest && incidents.iter().all(|i| i.id != *id);
        let gone: Vec<u64> = self.told.open.iter().copied().filter(is_gone).collect();
        let mut ended = Vec::new();
        for id in gone {
            self.told.open.remove(&id);
            ended.push(v1::Incident {
                id,
                outcome: UNKNOWN.to_owned(),
                // Of one that a former life of the daemon told of, nothing else is known.
                ..self.open.remove(&id).unwrap_or_default()
            });
        }
        ended
    }
}

/// What is to be remembered of it: evidence can be long, and is told nobody.
fn without_evidence(incident: &v1::Incident) -> v1::Incident {
    v1::Incident {
        evidence: String::new(),
        ..incident.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YOUNG: Duration = Duration::from_secs(1);

    fn incident(id: u64, outcome: &str) -> v1::Incident {
        v1::Incident {
            id,
            outcome: outcome.to_owned(),
            ..Default::default()
        }
    }

    fn alarm(kind: &str, since_ms: u64) -> v1::Alarm {
        v1::Alarm {
            kind: kind.to_owned(),
            since_ms,
            ..Default::default()
        }
    }

    fn read(
        book: &mut Book,
        incidents: &[v1::Incident],
        alarms: &[v1::Alarm],
        age: Duration,
    ) -> Vec<String> {
        let status = v1::Status {
            incidents: incidents.to_vec(),
            alarms: alarms.to_vec(),
            ..Default::default()
        };
        let mut all = Vec::new();
        book.read(&status, age, |news| {
            all.push(match news {
                News::Begins(i) => format!("{} begins", i.id),
                News::Ends(i) => format!("{} ends", i.id),
                News::Raised(a) => format!("{} raised", a.kind),
                News::Cleared(kind, since) => format!("{kind} of {since} cleared"),
            });
        });
        all
    }

    #[test]
    fn each_piece_of_news_is_told_once() {
        let mut book = Book::beginning_with(&[]);
        let open = [incident(1, "recovering"), incident(2, "failed")];
        let full = [alarm("database full", 7)];
        let wanted = ["1 begins", "2 begins", "2 ends", "database full raised"];
        assert_eq!(read(&mut book, &open, &full, YOUNG), wanted);
        assert!(read(&mut book, &open, &full, YOUNG).is_empty());
        let over = [incident(1, "recovered"), incident(2, "failed")];
        let wanted = ["1 ends", "database full of 7 cleared"];
        assert_eq!(read(&mut book, &over, &[], YOUNG), wanted);
        // A status forgets old ones.
        assert!(read(&mut book, &over[1..], &[], YOUNG).is_empty());
        let again = [alarm("database full", 9)];
        assert_eq!(
            read(&mut book, &over, &again, YOUNG),
            ["database full raised"]
        );
    }

    #[test]
    fn a_new_receiver_hears_the_ends_of_what_was_open_and_nothing_of_what_was_over() {
        let before = [incident(3, "recovered"), incident(4, "recovering")];
        let mut book = Book::beginning_with(&before);
        assert!(read(&mut book, &before, &[], YOUNG).is_empty());
        let after = [incident(3, "recovered"), incident(4, "recovered")];
        assert_eq!(read(&mut book, &after, &[], YOUNG), ["4 ends"]);
    }

    #[test]
    fn who_goes_on_tells_what_the_receiver_has_not_heard() {
        let told = Told {
            begun: 5,
            open: [5].into(),
            ..Told::default()
        };
        let mut book = Book::going_on(told);
        let now = [
            incident(4, "recovered"),
            incident(5, "recovered"),
            incident(6, "recovered"),
        ];
        let wanted = ["5 ends", "6 begins", "6 ends"];
        assert_eq!(read(&mut book, &now, &[], YOUNG), wanted);
    }

    #[test]
    fn an_incident_that_was_pushed_out_of_sight_while_it_was_open_has_ended() {
        let told = Told {
            begun: 2,
            open: [1].into(),
            ..Told::default()
        };
        let mut book = Book::going_on(told);
        let open = [incident(3, "recovering"), incident(4, "recovering")];
        let mut seen = open.clone();
        seen[0].role = "rollout".to_owned();
        let wanted = ["3 begins", "4 begins", "1 ends"];
        assert_eq!(read(&mut book, &seen, &[], YOUNG), wanted);
        // A status without incidents says nothing: a daemon that begins has read none yet.
        assert!(read(&mut book, &[], &[], YOUNG).is_empty());
        let status = v1::Status {
            incidents: vec![open[1].clone()],
            ..Default::default()
        };
        let mut ended = Vec::new();
        book.read(&status, YOUNG, |news| {
            if let News::Ends(i) = news {
                ended.push((i.id, i.role.clone(), i.outcome.clone()));
            }
        });
        let words = ("rollout".to_owned(), "unknown".to_owned());
        assert_eq!(ended, [(3, words.0, words.1)]);
        assert!(read(&mut book, &open[1..], &[], YOUNG).is_empty(), "once");
    }

    #[test]
    fn an_alarm_of_a_former_leader_is_cleared_once_nobody_has_raised_it_again_for_a_while() {
        let told = Told {
            alarms: [("no follower".to_owned(), 3), ("log away".to_owned(), 4)].into(),
            ..Told::default()
        };
        let mut book = Book::going_on(told);
        assert!(read(&mut book, &[], &[], YOUNG).is_empty());
        // Raised again: it goes on, and is cleared as soon as it is.
        let again = [alarm("no follower", 9)];
        assert!(read(&mut book, &[], &again, YOUNG).is_empty());
        assert_eq!(
            read(&mut book, &[], &[], YOUNG),
            ["no follower of 3 cleared"]
        );
        assert_eq!(read(&mut book, &[], &[], GRACE), ["log away of 4 cleared"]);
    }
}
