//! What is to be done, and what a machine is given to decide it.
use super::config::CoreConfig;
use super::output::{Event, Output, Record, Severity};
use crate::ids::InstanceId;
use crate::time::Time;
use std::collections::VecDeque;

/// What is to be done, in order.
#[derive(Clone, Debug, Default)]
pub struct Effects(VecDeque<Output>);

impl Effects {
    /// The last thing to do so far.
    pub fn push(&mut self, output: Output) {
        self.0.push_back(output);
    }

    /// Before everything else.
    pub fn push_first(&mut self, output: Output) {
        self.0.push_front(output);
    }

    /// To be persisted before anything that is pushed later leaves.
    pub fn record(&mut self, record: Record) {
        self.push(Output::Record(record));
    }

    /// Tells people what happened, and to whom.
    pub fn event(
        &mut self,
        at: Time,
        severity: Severity,
        kind: &str,
        id: Option<InstanceId>,
        text: String,
    ) {
        self.push(Output::Event(Event {
            at,
            severity,
            kind: kind.to_owned(),
            id,
            text,
        }));
    }

    /// The first thing to do; none when all is done.
    pub fn pop(&mut self) -> Option<Output> {
        self.0.pop_front()
    }

    /// How many things are to be done.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &Output> {
        self.0.iter()
    }

    /// Nothing is to be done.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// What a machine is given with whatever it is to take in: the instant, the job's values, and where its
/// effects go.
pub struct Cx<'a> {
    /// When it happens.
    pub now: Time,
    /// What is known of the job.
    pub config: &'a CoreConfig,
    /// What follows.
    pub out: &'a mut Effects,
}

impl Cx<'_> {
    /// Tells people what happened, and to whom.
    pub fn event(&mut self, severity: Severity, kind: &str, id: Option<InstanceId>, text: String) {
        self.out.event(self.now, severity, kind, id, text);
    }
}
