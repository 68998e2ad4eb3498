//! Processes that end alone, or that stop and stay. What hangs is found by the controller's own rules,
//! from its samples: only what hangs is sampled where [`Plan::samples`](super::Plan::samples) is zero, because
//! a process of which nothing is known is judged by none of them.
use super::{Cluster, Event};
use robust_shared::core::{Input, RoleEvent, Sample};
use robust_shared::ids::{Incarnation, NodeId};
use std::time::Duration;

/// A process that hangs is sampled so often: fine enough for windows of a minute.
const EVERY: Duration = Duration::from_secs(10);

impl Cluster {
    /// The processes of a machine that live, in the order in which they were started.
    pub(super) fn living_on(&self, node: NodeId) -> Vec<Incarnation> {
        let there = self.processes.iter().flatten();
        let there = there.filter(|p| p.node == node && p.alive);
        there.map(|p| p.incarnation).collect()
    }

    /// The processes of a machine end, and it stays. Returns how many there were.
    pub fn lose_processes_of(&mut self, node: NodeId) -> usize {
        let living = self.living_on(node);
        for incarnation in &living {
            self.struck(*incarnation);
            self.end(*incarnation, true);
        }
        living.len()
    }

    /// The processes of a machine stop doing anything, and stay there. Returns how many there were.
    pub fn hang_processes_of(&mut self, node: NodeId) -> usize {
        let working = self.living_on(node);
        let working: Vec<_> = working.into_iter().filter(|i| self.works(*i)).collect();
        for incarnation in &working {
            // What it did until now is seen once more.
            self.sample_stuck(*incarnation);
            self.struck(*incarnation);
            if let Some(process) = self.process_mut(*incarnation) {
                process.hangs = true;
            }
            self.requests_hang(*incarnation);
        }
        working.len()
    }

    /// It came to harm: a verdict on it is true.
    pub(super) fn struck(&mut self, incarnation: Incarnation) {
        if let Some(guard) = &mut self.guard {
            guard.struck(incarnation);
        }
    }

    /// Says what a process that hangs has done: nothing since the last time.
    pub(super) fn sample_stuck(&mut self, incarnation: Incarnation) {
        let Some(process) = self.process(incarnation).filter(|p| p.alive) else {
            return;
        };
        let sample = Sample {
            busy: process.busy,
            tokens_total: process.tokens,
            running: process.requests,
            ..Sample::default()
        };
        if process.linked {
            self.feed(Input::Role(incarnation, RoleEvent::Sampled { sample }));
        }
        self.after(EVERY, Event::Stuck(incarnation));
    }
}
