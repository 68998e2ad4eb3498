//! What is known of the job: its last status, its journal, and what was seen of it over time.
use super::flow::Flow;
use super::history::History;
use super::steps::Steps;
use crate::ending::is_over;
use crate::pace::Pace;
use robust_proto::v1;
use std::collections::VecDeque;

/// Events kept for the list.
const EVENTS_KEPT: usize = 500;

/// A job as far as this console heard of it.
#[derive(Debug, Default)]
pub struct Job {
    status: Option<v1::Status>,
    /// Unix ms of its arrival.
    heard_at: u64,
    /// Oldest first.
    events: VecDeque<v1::Event>,
    history: History,
    flow: Flow,
    pace: Pace,
    steps: Steps,
    /// Name and start of the job whose events are kept.
    known: Option<(String, u64)>,
    /// Length of the run, fixed when it ended.
    ran_ms: Option<u64>,
}

impl Job {
    /// Takes in a status; whether it is of another job than was known. Of that one nothing is kept.
    #[must_use]
    pub fn observe(&mut self, now: u64, status: v1::Status) -> bool {
        // A daemon that has just started says no more than that, with a start time of its own.
        let full = !status.roles.is_empty();
        let job = (status.job.clone(), status.started_ms);
        let other = full && self.known.as_ref().is_some_and(|known| *known != job);
        if full {
            self.known = Some(job);
        }
        if is_over(&status.state) {
            self.ran_ms.get_or_insert(ran_ms(&status));
        } else {
            self.ran_ms = None;
        }
        if other {
            // Its events count from the start again, so the old numbers say nothing.
            self.events.clear();
            self.history = History::default();
            self.flow = Flow::default();
            self.pace = Pace::default();
            self.steps = Steps::default();
        }
        self.history.observe(&status);
        self.flow.observe(&status);
        self.pace.observe(&status);
        self.steps.observe(&status);
        self.status = Some(status);
        self.heard_at = now;
        other
    }

    /// Takes in an entry of the journal.
    pub fn logged(&mut self, event: v1::Event) {
        // The stream may begin with the last event known.
        if event.seq > self.last_seq() || self.events.is_empty() {
            self.events.push_back(event);
            if self.events.len() > EVENTS_KEPT {
                self.events.pop_front();
            }
        }
    }

    /// Takes in phases that ended.
    pub fn phases_ended(&mut self, spans: &[v1::PhaseSpan]) {
        self.history.told(spans);
    }

    /// A recording that was wound back begins anew.
    pub fn forget(&mut self) {
        *self = Job {
            heard_at: self.heard_at,
            ..Job::default()
        };
    }

    /// The last status.
    pub fn status(&self) -> Option<&v1::Status> {
        self.status.as_ref()
    }

    /// Age of the last status in ms.
    pub fn age_ms(&self, now: u64) -> u64 {
        now.saturating_sub(self.heard_at)
    }

    /// The last events, oldest first.
    pub fn events(&self) -> &VecDeque<v1::Event> {
        &self.events
    }

    /// Number of the last event known, or 0.
    pub fn last_seq(&self) -> u64 {
        self.events.back().map_or(0, |e| e.seq)
    }

    /// Phases of every instance, as far as they were seen.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// How fast engines generated, as far as it was seen.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Seconds until its last step, by the pace of the steps that were seen last; none where that cannot be known.
    pub fn eta_s(&self) -> Option<f64> {
        let status = self.status.as_ref().filter(|s| !is_over(&s.state))?;
        self.pace.eta_s(status)
    }

    /// Figures of its steps, as far as they are known.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Takes in figures of steps of the job that began then; none: its daemon cannot be asked.
    pub fn steps_told(&mut self, started_ms: u64, lines: Option<Vec<v1::StepLine>>) {
        let same = self.status.as_ref().map(|s| s.started_ms) == Some(started_ms);
        match lines {
            _ if !same => {}
            Some(lines) => self.steps.told(lines),
            None => self.steps.never_told(),
        }
    }

    /// How long it ran, up to now or to its end.
    pub fn elapsed_ms(&self) -> u64 {
        self.ran_ms
            .unwrap_or_else(|| self.status.as_ref().map_or(0, ran_ms))
    }

    /// Whether it will not go on.
    pub fn is_over(&self) -> bool {
        self.status.as_ref().is_some_and(|s| is_over(&s.state))
    }

    /// Whether an operator holds it back.
    pub fn is_paused(&self) -> bool {
        self.status.as_ref().is_some_and(|s| s.pause.is_some())
    }

    /// Its instances.
    pub fn roles(&self) -> &[v1::RoleStatus] {
        self.status.as_ref().map_or(&[], |s| &s.roles)
    }

    /// Its incidents, oldest first.
    pub fn incidents(&self) -> &[v1::Incident] {
        self.status.as_ref().map_or(&[], |s| &s.incidents)
    }

    /// Its nodes.
    pub fn nodes(&self) -> &[v1::NodeStatus] {
        self.status.as_ref().map_or(&[], |s| &s.nodes)
    }

    /// The faults that wait for their moment in an instance's life.
    pub fn armed_for<'a>(
        &'a self,
        r: &v1::RoleStatus,
    ) -> impl Iterator<Item = &'a v1::ArmedFault> + use<'a> {
        let (role, index) = (r.role.clone(), r.index);
        let all = self.status.iter().flat_map(|s| &s.armed);
        all.filter(move |a| a.role == role && a.index == index)
    }
}

fn ran_ms(status: &v1::Status) -> u64 {
    status.now_ms.saturating_sub(status.started_ms)
}
