//! What processes really died of, counted apart from the controller (I-7). A cause is known here by a word
//! of the text that the world gave it, and not by what the controller makes of that text.
use super::super::World;
use crate::world::id;
use robust_shared::core::{Exit, GangEvent, Incident, Input, RoleEvent, Taken};
use robust_shared::ids::{Incarnation, IncidentId, InstanceId, Role};
use robust_shared::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Words that tell the causes of this world from each other.
const WORDS: [&str; 4] = ["lm_head", "KeyError", "c10::Error", "cannot start"];

/// The exit by which a process says that the daemon was away.
const NO_DAEMON: i32 = 5;

/// Who died of what.
type Key = (InstanceId, String);

/// Deaths in a row of one place by one cause.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    count: u32,
    since: Time,
    at: Time,
}

/// What processes died of, as far as it still counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Causes {
    rows: BTreeMap<Key, Row>,
    /// As they are on record, like the other rows of verdicts.
    on_record: BTreeMap<Key, Row>,
    /// What the present life of the controller was told first of each.
    died_of: BTreeMap<Incarnation, Option<String>>,
    counted: BTreeMap<IncidentId, (Key, Time)>,
    charged: BTreeSet<IncidentId>,
    /// Places that were given up: what is still said of them is of before that.
    gone: BTreeSet<InstanceId>,
}

impl Causes {
    /// What the controller is about to be told.
    pub fn told(&mut self, input: &Input) {
        let (life, cause) = match input {
            Input::Role(life, RoleEvent::Exited { exit, detail, .. }) => {
                (*life, of_exit(exit, detail))
            }
            Input::Gang(
                _,
                GangEvent::StepFailed {
                    rank: Some(rank), ..
                },
            ) => (*rank, Some("raised".to_owned())),
            _ => return,
        };
        self.died_of.entry(life).or_insert(cause);
    }

    /// What the controller knows is on record.
    pub fn written(&mut self) {
        self.on_record.clone_from(&self.rows);
    }

    /// A new life of the controller knows what was on record, and is told the rest again.
    pub fn restored(&mut self) {
        self.rows.clone_from(&self.on_record);
        self.died_of.clear();
    }

    /// A stopped job goes on.
    pub fn begin_anew(&mut self) {
        self.rows.clear();
    }

    /// Only these places are there.
    pub fn keep_places(&mut self, is_there: impl Fn(InstanceId) -> bool) {
        let places = self.rows.keys().map(|(who, _)| *who);
        self.gone.extend(places.filter(|who| !is_there(*who)));
    }

    /// A new life of a place: where one was given up before, it begins its own rows.
    pub fn issued(&mut self, who: InstanceId) {
        if self.gone.remove(&who) {
            self.rows.retain(|(other, _), _| *other != who);
        }
    }

    /// An instance, or the gang, did something useful.
    pub fn useful(&mut self, who: InstanceId) {
        let who = counted_as(who);
        self.rows.retain(|(other, _), _| *other != who);
    }

    /// A death was not the engine's fault: it counts no more, or will not.
    pub fn charge(&mut self, engine: &Taken) {
        self.charged.insert(engine.incident);
        let Some((key, at)) = self.counted.remove(&engine.incident) else {
            return;
        };
        if let Some(row) = self.rows.get_mut(&key).filter(|row| row.since <= at) {
            row.count = row.count.saturating_sub(1);
        }
    }

    /// Counts an incident; how many that makes in a row. None where it came from outside.
    fn count(&mut self, incident: &Incident, now: Time, ran: Option<Duration>) -> Option<u32> {
        if !matches!(incident.rule.as_str(), "exit" | "exception") {
            return None;
        }
        let cause = self.died_of.get(&incident.incarnation).cloned()??;
        let key = (counted_as(incident.who), cause);
        let fresh = Row {
            count: 0,
            since: now,
            at: now,
        };
        let row = self.rows.entry(key.clone()).or_insert(fresh);
        if row.count > 0 && ran.is_some_and(|ran| now.since(row.at) > ran) {
            // A program that tells no steps may have run for so long, which is what it has for progress.
            row.count = incident.cause.as_ref().map_or(0, |cause| cause.count) - 1;
        }
        if !self.charged.contains(&incident.id) {
            (row.count, row.at) = (row.count + 1, now);
            self.counted.insert(incident.id, (key, now));
        }
        Some(row.count)
    }
}

/// Of ranks it is the gang that fails.
fn counted_as(who: InstanceId) -> InstanceId {
    match who.role {
        Role::Trainer => id(Role::Trainer, 0),
        Role::Hybrid | Role::Rollout | Role::Agent => who,
    }
}

fn of_exit(exit: &Exit, detail: &str) -> Option<String> {
    let word = WORDS.iter().find(|word| detail.contains(**word));
    match exit {
        Exit::Code(0 | NO_DAEMON) | Exit::Signal(9) | Exit::Gone => None,
        other => Some(format!("{other:?} {}", word.unwrap_or(&""))),
    }
}

impl World {
    /// An incident's cause is counted right, and costs what it must (I-7) and no more (I-8). Says how often
    /// it was met.
    pub(super) fn check_cause(&mut self, incident: &Incident) -> u32 {
        if incident.rule == "numeric" {
            // No process of this world computes what is no number; a test may say that one did.
            return 0;
        }
        let (now, most) = (self.now, self.config.same_cause);
        let silent = self.config.own_loop.is_some_and(|own| !own.commits);
        let ran = silent.then_some(self.config.budgets.general.window);
        let count = self.checker.verdicts.causes.count(incident, now, ran);
        let said = incident.cause.as_ref().map(|cause| cause.count);
        self.must(said == count, "I-7", || {
            format!(
                "{} died of one cause {count:?} times in a row, and it is said: {said:?}",
                incident.who
            )
        });
        let (count, plan) = (count.unwrap_or(0), &incident.plan);
        let ends = plan.starts_with("fail the job");
        let (escalates, is_met) = (plan.starts_with("restart the whole task"), most > 0);
        let heals = ends || count < most || escalates && count == most;
        self.must(!is_met || heals, "I-7", || {
            format!("one cause was met {count} times, and still: {plan}")
        });
        let blamed = plan.contains("this will not heal");
        self.must(!blamed || is_met && count > most, "I-8", || {
            format!("one cause was met {count} times (limit {most}), and already: {plan}")
        });
        count
    }
}
