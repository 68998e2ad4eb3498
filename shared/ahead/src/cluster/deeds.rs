//! The driver's part: outputs become events.
use super::gang::Call;
use super::{Cluster, Event};
use robust_shared::core::{Input, Output, PullOrder, Record, RoleEvent};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// A health probe's answer.
const PROBE: Duration = Duration::from_millis(200);
/// A process that is asked to end.
const GOODBYE: Duration = Duration::from_secs(1);

impl Cluster {
    pub(super) fn act(&mut self, output: Output) {
        self.note(&output);
        self.guard(&output);
        self.hear(&output);
        if self.plan.journal {
            self.journal.push(format!("{} -> {output:?}", self.now));
        }
        match output {
            Output::Spawn {
                id,
                incarnation,
                node,
                ..
            } => self.spawn(id, incarnation, node),
            Output::Kill { incarnation, .. } | Output::Fence { incarnation, .. } => {
                self.end(incarnation, false);
            }
            Output::Retire { incarnation } => self.after(GOODBYE, Event::Ends(incarnation)),
            Output::Pause { engine } => {
                self.after(self.plan.timing.switch, Event::Switched(engine, true));
            }
            Output::Resume { engine } => {
                self.after(self.plan.timing.switch, Event::Switched(engine, false));
            }
            Output::AssignPull {
                puller,
                version,
                order,
                sources,
                from_trainer,
            } => self.pull(puller, PullOrder { version, order }, &sources, from_trainer),
            Output::Dispatch {
                agent, trajectory, ..
            } => {
                self.after(Duration::ZERO, Event::Turn(agent, trajectory));
            }
            Output::Route { ticket, rollout } => self.routed(ticket, rollout),
            Output::Probe { incarnation, .. } => {
                let ok = self.works(incarnation);
                let input = Input::Role(incarnation, RoleEvent::Probed { ok });
                self.after(PROBE, Event::Feed(Box::new(input)));
            }
            Output::Record(record) => self.keep(record),
            Output::Finish { outcome } => self.outcome = Some(outcome),
            call => self.act_on_gang(call),
        }
    }

    pub(super) fn act_on_gang(&mut self, output: Output) {
        let (generation, ranks, call) = match output {
            Output::Restore {
                generation,
                ranks,
                step,
            } => (generation, ranks, Call::Restore(step)),
            Output::Prepare {
                generation,
                ranks,
                step,
                trajectories,
            } => (generation, ranks, Call::Prepare(step, trajectories.len())),
            Output::TrainStep {
                generation,
                ranks,
                step,
                ..
            } => (generation, ranks, Call::Train(step)),
            Output::Publish {
                generation,
                ranks,
                version,
            } => (generation, ranks, Call::Publish(version)),
            _ => return,
        };
        self.call(generation, ranks, call);
    }

    fn keep(&mut self, record: Record) {
        match record {
            Record::Committed { trajectories, .. } | Record::Discarded { trajectories } => {
                for id in trajectories {
                    self.progress.remove(&id);
                }
            }
            Record::SetAside { trajectory, .. } => drop(self.progress.remove(&trajectory)),
            Record::Interval(interval) => self.intervals.push(interval),
            Record::Incident(incident) => {
                self.incidents.insert(incident.id, *incident);
            }
            _ => {}
        }
    }

    /// Folds what was decided into the digest.
    fn note(&mut self, output: &Output) {
        let mut hasher = robust_shared::hash::IdHasher::default();
        (self.digest, self.now.0).hash(&mut hasher);
        std::mem::discriminant(output).hash(&mut hasher);
        match output {
            Output::Spawn {
                id,
                incarnation,
                node,
                ..
            } => (id, incarnation, node.0).hash(&mut hasher),
            Output::Kill {
                id, incarnation, ..
            } => (id, incarnation).hash(&mut hasher),
            Output::Route { ticket, rollout } => (ticket, rollout).hash(&mut hasher),
            Output::Dispatch {
                agent,
                trajectory,
                lease,
            } => (agent, trajectory, lease).hash(&mut hasher),
            Output::AssignPull {
                puller, version, ..
            } => (puller, version).hash(&mut hasher),
            Output::TrainStep {
                generation, step, ..
            } => (generation, step).hash(&mut hasher),
            Output::Event(event) => event.text.hash(&mut hasher),
            Output::Record(Record::Interval(interval)) => {
                (interval.from.0, interval.to.0, interval.value.to_bits()).hash(&mut hasher);
            }
            _ => {}
        }
        self.digest = hasher.finish();
    }
}
