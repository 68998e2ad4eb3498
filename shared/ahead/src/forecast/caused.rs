//! What of a run ahead the act brought about: what the run without it has, too, comes anyway.
use robust_shared::core::{Incident, Outcome};
use robust_shared::ids::InstanceId;
use std::time::Duration;

/// Who is started anew more often than without the act, in the order in which they are first.
pub(super) fn started(with: &[InstanceId], without: &[InstanceId]) -> Vec<InstanceId> {
    let times = |all: &[InstanceId], of: InstanceId| all.iter().filter(|id| **id == of).count();
    let mut caused = Vec::new();
    for id in with {
        if !caused.contains(id) && times(with, *id) > times(without, *id) {
            caused.push(*id);
        }
    }
    caused
}

/// Who has no slot with the act, and has one without it.
pub(super) fn homeless(with: Vec<InstanceId>, without: &[InstanceId]) -> Vec<InstanceId> {
    with.into_iter()
        .filter(|id| !without.contains(id))
        .collect()
}

/// Why the job ends with the act, where it does not end so without it. One that is done with its last step before the act is
/// over says that, too: it is why nothing is seen of the rest.
pub(super) fn end(
    with: Option<&Outcome>,
    without: Option<&Outcome>,
    is_whole: bool,
) -> Option<String> {
    match with? {
        Outcome::Failed { reason } if with != without => Some(reason.clone()),
        Outcome::Completed if !is_whole => Some("its last step is done before that".to_owned()),
        _ => None,
    }
}

/// The incidents that do not come without the act: none befalls the same life by the same rule.
pub(super) fn incidents<'a>(with: Vec<&'a Incident>, without: &[&Incident]) -> Vec<&'a Incident> {
    let same = |a: &Incident, b: &Incident| {
        (a.who, a.incarnation, &a.rule) == (b.who, b.incarnation, &b.rule)
    };
    let comes_anyway = |one: &&Incident| without.iter().any(|other| same(one, other));
    with.into_iter().filter(|one| !comes_anyway(one)).collect()
}

/// How long what it brings takes, all incidents together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Course {
    /// From the first fault to its verdict; none without a fault.
    pub detect: Option<Duration>,
    /// From that verdict to the link of the last new process.
    pub restart: Option<Duration>,
    /// From there until useful work goes on at all of them.
    pub reconnect: Option<Duration>,
}

impl Course {
    /// Of these incidents, the oldest first.
    pub fn of(incidents: &[&Incident]) -> Self {
        let Some(first) = incidents.first() else {
            return Self::default();
        };
        // Of one that does not come to it there is no last.
        let attached: Option<Vec<_>> = incidents.iter().map(|i| i.attached).collect();
        let attached = attached.and_then(|all| all.into_iter().max());
        let resumed: Option<Vec<_>> = incidents.iter().map(|i| i.resumed).collect();
        let resumed = resumed.and_then(|all| all.into_iter().max());
        Self {
            detect: Some(first.detect()),
            restart: attached.map(|at| at.since(first.verdict)),
            reconnect: resumed.zip(attached).map(|(at, from)| at.since(from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use robust_shared::core::IncidentOutcome;
    use robust_shared::ids::{Incarnation, IncidentId, Role, Step};
    use robust_shared::time::Time;

    fn id(role: Role, index: u32) -> InstanceId {
        InstanceId { role, index }
    }

    fn at(seconds: u64) -> Time {
        Time::default() + Duration::from_secs(seconds)
    }

    /// Of an engine: struck, found, attached and at work after so many seconds.
    fn incident(number: u64, [struck, verdict, attached, resumed]: [u64; 4]) -> Incident {
        Incident {
            id: IncidentId(number),
            who: id(Role::Rollout, 0),
            judged: None,
            under: None,
            innocent: false,
            incarnation: Incarnation(number),
            rule: "exit".to_owned(),
            reason: String::new(),
            cause: None,
            plan: String::new(),
            step: Step(1),
            struck: at(struck),
            verdict: at(verdict),
            attached: Some(at(attached)),
            resumed: Some(at(resumed)),
            outcome: IncidentOutcome::Recovered,
            evidence: String::new(),
            testimony: Vec::new(),
            root: None,
            swept: Vec::new(),
            marks: Vec::new(),
        }
    }

    #[test]
    fn who_is_started_anyway_is_not_started_by_the_act_unless_he_is_started_once_more() {
        let (a, b, c) = (
            id(Role::Trainer, 0),
            id(Role::Rollout, 1),
            id(Role::Agent, 0),
        );
        assert_eq!(started(&[a, b], &[a]), [b]);
        assert_eq!(started(&[a, b, a, b], &[a]), [a, b]);
        assert_eq!(started(&[b, a], &[]), [b, a]);
        assert_eq!(started(&[], &[c]), []);
    }

    #[test]
    fn a_slot_that_is_lost_anyway_is_not_lost_by_the_act() {
        let (a, b) = (id(Role::Trainer, 0), id(Role::Rollout, 1));
        assert_eq!(homeless(vec![a, b], &[a]), [b]);
        assert_eq!(homeless(vec![a], &[a, b]), []);
        assert_eq!(homeless(vec![b, a], &[]), [b, a]);
    }

    #[test]
    fn an_end_that_comes_anyway_is_not_brought_by_the_act() {
        let failed = |reason: &str| Outcome::Failed {
            reason: reason.to_owned(),
        };
        let (spent, lost) = (failed("no budget is left"), failed("no node is left"));
        let said = |reason: &str| Some(reason.to_owned());
        assert_eq!(end(Some(&spent), None, false), said("no budget is left"));
        assert_eq!(
            end(Some(&spent), Some(&lost), false),
            said("no budget is left"),
            "it ends otherwise"
        );
        assert_eq!(end(Some(&spent), Some(&spent), false), None);
        let done = Outcome::Completed;
        let early = said("its last step is done before that");
        assert_eq!(end(Some(&done), Some(&done), false), early);
        assert_eq!(end(Some(&done), Some(&done), true), None);
        assert_eq!(end(None, Some(&spent), false), None);
    }

    #[test]
    fn an_incident_that_comes_anyway_is_none_of_the_acts() {
        let (hang, kill) = (incident(1, [0, 9, 12, 13]), incident(2, [0, 1, 4, 6]));
        let caused = incidents(vec![&kill, &hang], &[&hang]);
        assert_eq!(caused, [&kill]);
        let another = Incident {
            incarnation: Incarnation(7),
            ..hang.clone()
        };
        let caused = incidents(vec![&another], &[&hang]);
        assert_eq!(caused, [&another], "it befalls another life");
    }

    #[test]
    fn of_several_incidents_it_is_over_with_the_last() {
        let (first, second) = (incident(1, [0, 1, 4, 6]), incident(2, [0, 2, 9, 10]));
        let seconds = |n| Some(Duration::from_secs(n));
        let course = Course {
            detect: seconds(1),
            restart: seconds(8),
            reconnect: seconds(1),
        };
        assert_eq!(Course::of(&[&first, &second]), course);
        let open = Incident {
            attached: None,
            resumed: None,
            ..second
        };
        let course = Course {
            detect: seconds(1),
            ..Course::default()
        };
        assert_eq!(Course::of(&[&first, &open]), course);
        assert_eq!(Course::of(&[]), Course::default());
    }
}
