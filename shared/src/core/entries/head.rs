//! What of the state is in no table: small, and in three entries by how often it changes.
use super::super::state::{JobState, State};
use crate::core::ops::orders::Parts;
use crate::core::ops::pause::Pause;
use crate::core::ops::planned::{Planned, Rolling};
use crate::core::recover::deaths::Deaths;
use crate::core::recover::incident::Incident;
use crate::core::recover::{Recover, Recovery};
use crate::core::weights::{Holder, Weights};
use crate::core::work::trajectories::Tally;
use crate::ids::{Generation, Incarnation, IncidentId, InstanceId, Role, Step, WeightVersion};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// What changes with almost every input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Now {
    last: Time,
    #[serde(default)]
    finished: u64,
}

/// What changes with a step, a process, or never.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    job: JobState,
    started_at: Time,
    next_incarnation: Incarnation,
    next_generation: Generation,
    next_incident: IncidentId,
    next_fault: u64,
    committed: Step,
    committed_at: Option<Time>,
    step_duration: Duration,
    published: Option<WeightVersion>,
    weight_bytes: u64,
    resumed_at: Time,
    begun: bool,
    restored: bool,
    discarded: u64,
    stale: u64,
    set_aside: u64,
    given_back: u64,
    task_restarts: u32,
}

/// What operators and job files asked for, and what roles proved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plans {
    revision: u32,
    revisions: BTreeMap<Role, u32>,
    planned: Option<Planned>,
    rolling: Vec<Rolling>,
    pause: Option<Pause>,
    proven: Vec<Role>,
}

impl Now {
    pub fn of(s: &State) -> Self {
        Self {
            last: s.last_now,
            finished: s.work.requests.tally().finished_since,
        }
    }

    pub fn put_back(self, s: &mut State, tally: &mut Tally) {
        (s.last_now, tally.finished_since) = (self.last, self.finished);
    }
}

impl Head {
    pub fn of(s: &State) -> Self {
        let tally = s.work.requests.tally();
        Self {
            job: s.job.clone(),
            started_at: s.started_at,
            next_incarnation: s.roster.next_incarnation(),
            next_generation: s.next_generation,
            next_incident: s.recover.next_incident(),
            next_fault: s.next_fault,
            committed: s.committed,
            committed_at: s.committed_at,
            step_duration: s.step_duration,
            published: s.weights.published(),
            weight_bytes: s.weights.bytes(),
            resumed_at: s.orders.resumed_at(),
            begun: tally.begun,
            restored: s.restored,
            discarded: tally.discarded,
            stale: tally.stale,
            set_aside: tally.set_aside,
            given_back: tally.given_back,
            task_restarts: s.recover.task_restarts(),
        }
    }

    /// The last committed step.
    pub fn committed(&self) -> Step {
        self.committed
    }

    /// What failed, with what is stored of it elsewhere.
    pub fn recover(
        &self,
        incidents: Vec<Incident>,
        recoveries: Vec<Recovery>,
        deaths: Deaths,
    ) -> Recover {
        let counters = (self.next_incident, self.task_restarts);
        Recover::put_back(incidents, recoveries, deaths, counters)
    }

    /// With what engines hold of the weights.
    pub fn put_back(self, s: &mut State, tally: &mut Tally, holders: Vec<(InstanceId, Holder)>) {
        s.job = self.job;
        s.started_at = self.started_at;
        s.roster.number_from(self.next_incarnation);
        s.next_generation = self.next_generation;
        s.next_fault = self.next_fault;
        s.committed = self.committed;
        s.committed_at = self.committed_at;
        s.step_duration = self.step_duration;
        s.weights = Weights::put_back(self.published, self.weight_bytes, holders);
        s.orders.put_back_resumed_at(self.resumed_at);
        tally.begun = self.begun;
        s.restored = self.restored;
        tally.discarded = self.discarded;
        tally.stale = self.stale;
        tally.set_aside = self.set_aside;
        tally.given_back = self.given_back;
    }
}

impl Plans {
    /// Whether they are what the state has, without a copy of it.
    pub fn are_of(&self, s: &State) -> bool {
        let orders = &s.orders;
        self.revision == orders.revision()
            && &self.revisions == orders.revisions()
            && self.planned.as_ref() == orders.planned()
            && self.rolling == orders.rolling()
            && self.pause == orders.pause()
            && self.proven == s.proven
    }

    pub fn of(s: &State) -> Self {
        let orders = &s.orders;
        Self {
            revision: orders.revision(),
            revisions: orders.revisions().clone(),
            planned: orders.planned().cloned(),
            rolling: orders.rolling().to_vec(),
            pause: orders.pause(),
            proven: s.proven.clone(),
        }
    }

    pub fn put_back(self, s: &mut State) {
        s.orders.put_back(Parts {
            revision: self.revision,
            revisions: self.revisions,
            planned: self.planned,
            rolling: self.rolling,
            pause: self.pause,
        });
        s.proven = self.proven;
    }
}
