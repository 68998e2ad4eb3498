//! Steps that are done, and said to be so once they are as safe as the job wants them.
//!
//! ```text
//!  the step is done ── publish_after ──► safe already, or waits ─► said to the core: committed,
//!                                          │        ▲               published
//!                                          │        └── Held, Written, or nobody can hold it
//!                                          └── its gang died: forgotten with its task
//! ```
use super::Driver;
use super::alarms::Alarm;
use super::gang::GangTask;
use robust_proto::v1;
use robust_shared::core::{GangEvent, Input, Severity, StepMetrics};
use robust_shared::ids::{Generation, Step};
use robust_shared::job::PublishAfter;
use robust_shared::replicas::{Safety, ShardKey};
use robust_shared::wire::ReplicaState;
use std::time::Duration;
use tokio::time::Instant;

/// How often a checkpoint that a step waits for is offered again, when the disk is full, say.
const PRESS: Duration = Duration::from_secs(1);

/// How long a step waits at least for a second machine to have what a rank on another one made.
const LEAST_PATIENCE: Duration = Duration::from_secs(15);
/// Bytes a second that a copy makes at least.
const SLOWEST: u64 = 10_000_000;

/// A step that is done and not yet said to be.
#[derive(Debug)]
pub(super) struct Done {
    step: Step,
    input: Input,
    since: Instant,
}

impl Driver {
    /// The step's result is there. It is said to the core when it is as safe as the job wants it;
    /// until then its task stays, and dies with its gang.
    pub(super) fn on_done(&mut self, mut task: GangTask, step: Step, input: Input) {
        task.done = Some(Done {
            step,
            input,
            since: Instant::now(),
        });
        self.gang = Some(task);
        self.pressed = None;
        self.press_checkpoint();
        self.say_what_is_safe();
    }

    /// Says to the core what was held back and is safe by now.
    pub(super) fn say_what_is_safe(&mut self) {
        let Some(task) = &self.gang else { return };
        let Some(Done { step, since, .. }) = &task.done else {
            return;
        };
        let (step, since) = (*step, *since);
        if !self.is_safe((step, since), task.generation) {
            return;
        }
        let waits = self.parts.job.checkpoint.publish_after != PublishAfter::Disk;
        if waits && self.is_lonely(step) != self.replicas.given_up {
            self.replicas.given_up = !self.replicas.given_up;
            let safety = match self.replicas.given_up {
                true => Safety::Short,
                false => self.replicas.safety(step),
            };
            self.note_safety(step, safety);
        }
        if let Some(Done { input, .. }) = self.gang.take().and_then(|mut t| t.done.take()) {
            self.inputs.push_back(input);
        }
    }

    fn is_safe(&self, (step, since): (Step, Instant), generation: Generation) -> bool {
        let enough = || since.elapsed() > self.patience(step);
        // A step outlives any machine but this one, as far as there is another.
        let is_apart = || match self.is_lonely(step) {
            true if self.replicas.given_up => !self.is_on_its_way(step) || enough(),
            true => enough(),
            false => true,
        };
        match self.parts.job.checkpoint.publish_after {
            PublishAfter::Snapshot => is_apart(),
            PublishAfter::Disk => self.written == Some((step, generation)),
            PublishAfter::Replica => match self.replicas.safety(step) {
                Safety::Copying if !enough() => false,
                safety => {
                    let is_safe = is_apart();
                    if is_safe {
                        self.note_safety(step, safety);
                    }
                    is_safe
                }
            },
        }
    }

    /// How long a step waits for second copies: longer than a node that is gone is taken for one that is there, and than
    /// the copies take.
    fn patience(&self, step: Step) -> Duration {
        let shards = self.snapshots.get(step).into_iter().flat_map(|s| &s.shards);
        let largest = shards.map(|shard| shard.bytes).max().unwrap_or_default();
        LEAST_PATIENCE + Duration::from_secs(largest / SLOWEST)
    }

    fn elsewhere(&self, step: Step) -> impl Iterator<Item = ShardKey> {
        let snapshot = self.snapshots.get(step).into_iter();
        snapshot.flat_map(move |snapshot| {
            let shards = (0..).zip(&snapshot.shards);
            let elsewhere = shards.filter(|(_, shard)| shard.path.is_empty());
            elsewhere.map(move |(rank, _)| ShardKey {
                step,
                generation: snapshot.generation,
                rank,
            })
        })
    }

    /// Whether a shard of a rank on another machine is on that alone, and there is a third one.
    fn is_lonely(&self, step: Step) -> bool {
        let is_alone = |key| self.replicas.copies(key) < 2;
        self.replicas.has_others() && self.elsewhere(step).any(is_alone)
    }

    fn is_on_its_way(&self, step: Step) -> bool {
        self.elsewhere(step)
            .any(|key| self.replicas.is_on_its_way(key))
    }

    /// Asks again for copies that a step waits for, and looks whether it has waited long enough.
    pub(super) fn press_copies(&mut self) {
        let done = self.gang.as_ref().and_then(|task| task.done.as_ref());
        let Some(step) = done.map(|done| done.step) else {
            return;
        };
        let soon = self.asked_again.is_some_and(|at| at.elapsed() < PRESS);
        if !soon && self.is_lonely(step) && !self.is_on_its_way(step) {
            self.asked_again = Some(Instant::now());
            self.copy_again(step);
        }
        self.say_what_is_safe();
    }

    /// Steps go on that no other node holds: an alarm for as long as it is so.
    fn note_safety(&self, step: Step, safety: Safety) {
        let text = match safety {
            Safety::Copying => return,
            Safety::Alone => {
                format!("step {step} is committed on this node alone: no other node has joined")
            }
            Safety::Short | Safety::Nothing => {
                format!("step {step} is committed though no other node could hold all of it")
            }
            Safety::Safe(spread) => {
                let spread = spread.word();
                format!("from step {step} on other nodes hold every shard: two {spread}")
            }
        };
        let (now, feeds) = (self.parts.clock.now(), &self.parts.feeds);
        match safety {
            Safety::Safe(_) => feeds.lower(now, Alarm::NoReplica, "replica", text),
            _ => feeds.raise(now, Alarm::NoReplica, Severity::Warn, "replica", text),
        }
    }

    /// Offers the checkpoint that a step waits for, and offers it again while it is not written.
    pub(super) fn press_checkpoint(&mut self) {
        let waits = self.parts.job.checkpoint.publish_after == PublishAfter::Disk;
        let Some(task) = self.gang.as_ref().filter(|_| waits) else {
            return;
        };
        let Some(Done { step, input, .. }) = &task.done else {
            return;
        };
        let soon = self.pressed.is_some_and(|at| at.elapsed() < PRESS);
        if soon || self.written == Some((*step, task.generation)) {
            return;
        }
        let (step, generation, reward) = (*step, task.generation, reward(input));
        let consumed = self.replicas.consumed(step);
        // One that is behind is offered again; the writer never queues.
        self.offer_checkpoint(step, generation, consumed, reward);
        self.pressed = Some(Instant::now());
    }

    pub(super) fn replica_status(&self) -> v1::ReplicaStatus {
        let newest = self.replicas.newest();
        let safety = newest.map_or(Safety::Nothing, |step| self.replicas.safety(step));
        let (state, spread) = match safety {
            Safety::Nothing => (ReplicaState::NoneYet, ""),
            Safety::Alone => (ReplicaState::Alone, ""),
            Safety::Copying => (ReplicaState::Copying, ""),
            Safety::Short => (ReplicaState::Short, ""),
            Safety::Safe(spread) => (ReplicaState::Safe, spread.word()),
        };
        let done = self.gang.as_ref().and_then(|task| task.done.as_ref());
        let waiting = done.map(|done| {
            let what = match self.parts.job.checkpoint.publish_after {
                PublishAfter::Disk => "its checkpoint on disk",
                _ => "its copies on other nodes",
            };
            format!("step {} waits for {what}", done.step)
        });
        v1::ReplicaStatus {
            step: newest.map_or(0, |step| step.0),
            state: state.word().to_owned(),
            spread: spread.to_owned(),
            waiting: waiting.unwrap_or_default(),
        }
    }
}

fn reward(input: &Input) -> Option<f64> {
    match input {
        Input::Gang(
            _,
            GangEvent::StepDone {
                metrics: StepMetrics { reward, .. },
                ..
            },
        ) => Some(*reward),
        _ => None,
    }
}
