//! One fault and its recovery, with the instants that the timings are made of.
use crate::changed::Changed;
use crate::core::recover::cause::Recurring;
use crate::core::recover::root::Root;
use crate::core::recover::testimony::Testimony;
use crate::ids::{Incarnation, IncidentId, InstanceId, Step};
use crate::time::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::VecDeque;
use std::time::Duration;

/// One fault and its recovery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// Its number.
    pub id: IncidentId,
    /// Who failed; of a gang that hung the rank that it comes from, once that is known.
    pub who: InstanceId,
    /// Whom the rule had named, where the evidence shows another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<InstanceId>,
    /// The incident that it is a consequence of: it counts against no budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<IncidentId>,
    /// What ran on it is to blame: it counts neither against it nor against its node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub innocent: bool,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The rule that found it: `exit`, `trainer idle`, `rollout silent`, ...
    pub rule: String,
    /// What was seen.
    pub reason: String,
    /// What it came of; none where it came from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Recurring>,
    /// What was decided, as a sentence.
    pub plan: String,
    /// The committed step when it struck.
    pub step: Step,
    /// When the fault struck: the injection's instant where it was injected, else the exit's, else
    /// the last sign of life.
    pub struck: Time,
    /// When the verdict fell.
    pub verdict: Time,
    /// When the last replacement process was attached.
    pub attached: Option<Time>,
    /// When useful work went on: trainer in compute again, rollout admitted, agent leased again.
    pub resumed: Option<Time>,
    /// How it ended.
    pub outcome: IncidentOutcome,
    /// Stacks and states, taken before the kill of a hung process; of a gang those of all ranks.
    pub evidence: String,
    /// What was found of each process that may be part of a hang.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub testimony: Vec<Testimony>,
    /// What a hang comes from, by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Root>,
    /// Other lives that ended with it: the gang's other ranks, or everything.
    #[serde(default)]
    pub swept: Vec<Incarnation>,
    /// Finer instants (name, when), in order: `exited` (the process gone, as the operating system
    /// says), `seen` (the verdict), `killed` (where evidence was taken first), `spawned`,
    /// `attached`, `restored`, ...
    pub marks: Vec<(String, Time)>,
}

/// How an incident ended.
///
/// ```text
///  a verdict ──► recovering ──┬── useful work goes on ─────────────────────► recovered
///                             └── no restart can help, a budget is spent ──► failed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IncidentOutcome {
    /// Not over yet.
    Recovering,
    /// Useful work goes on.
    Recovered,
    /// It ended the job. Stores of earlier versions say `escalated`.
    #[serde(alias = "escalated")]
    Failed,
}

crate::wire::named! {
    IncidentOutcome:
    /// In a word, as in the protocol.
    word {
        Recovering = "recovering",
        Recovered = "recovered",
        Failed = "failed",
    }
}

impl Incident {
    /// Fault to verdict.
    pub fn detect(&self) -> Duration {
        self.verdict.since(self.struck)
    }

    /// Verdict to the replacement attached.
    pub fn restart(&self) -> Option<Duration> {
        self.attached.map(|t| t.since(self.verdict))
    }

    /// Replacement attached to useful work.
    pub fn reconnect(&self) -> Option<Duration> {
        Some(self.resumed?.since(self.attached?))
    }

    /// Fault to useful work.
    pub fn total(&self) -> Option<Duration> {
        self.resumed.map(|t| t.since(self.struck))
    }
}

/// The last incidents, open ones included, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Incidents {
    all: VecDeque<Incident>,
    changed: Changed<IncidentId>,
}

impl Incidents {
    /// All of them, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Incident> {
        self.all.iter()
    }

    /// The one of a number.
    pub fn get(&self, id: IncidentId) -> Option<&Incident> {
        self.all.get(self.place(id)?)
    }

    /// The one of a number, to be changed.
    pub fn get_mut(&mut self, id: IncidentId) -> Option<&mut Incident> {
        let at = self.place(id)?;
        self.changed.note(id);
        self.all.get_mut(at)
    }

    /// One more, the newest.
    pub fn open(&mut self, incident: Incident) {
        self.changed.note(incident.id);
        self.all.push_back(incident);
    }

    /// The oldest that may go is forgotten where there are more than so many.
    pub fn keep(&mut self, most: usize, may_go: impl Fn(&Incident) -> bool) {
        if self.all.len() > most
            && let Some(at) = self.all.iter().position(may_go)
        {
            let gone = self.all.remove(at).map(|i| i.id);
            self.changed.note_all(gone);
        }
    }

    /// Only so many of the newest keep their evidence: it can be long.
    pub fn keep_evidence(&mut self, newest: usize) {
        if let Some(at) = self.all.len().checked_sub(newest + 1)
            && let Some(old) = self.all.get_mut(at).filter(|old| !old.evidence.is_empty())
        {
            old.evidence.clear();
            old.testimony.clear();
            self.changed.note(old.id);
        }
    }

    /// Those that changed since this was last asked; none: all of them.
    pub(in crate::core) fn take_changed(&mut self) -> Option<Vec<IncidentId>> {
        self.changed.take()
    }

    fn place(&self, id: IncidentId) -> Option<usize> {
        self.all.binary_search_by_key(&id, |i| i.id).ok()
    }
}

impl FromIterator<Incident> for Incidents {
    fn from_iter<I: IntoIterator<Item = Incident>>(all: I) -> Self {
        Self {
            all: all.into_iter().collect(),
            changed: Changed::default(),
        }
    }
}

impl Serialize for Incidents {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Incidents {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(VecDeque::<Incident>::deserialize(from)?
            .into_iter()
            .collect())
    }
}
