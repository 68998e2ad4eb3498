//! The gang's tasks: at most one at a time, ended with the life of the gang it is for.
use super::Driver;
use super::safety::Done;
use crate::ckpt::{Offer, Request, WriteError};
use crate::control::{
    self, Gang, GangWorkEvent, Needed, PeerMemory, StepError, StepOutcome, Trains, shard_from_wire,
};
use crate::nodes::RankThere;
use crate::snapshots::SnapshotShards;
use robust_shared::core::{GangEvent, Input};
use robust_shared::dispatch::calls::{Peer, Region};
use robust_shared::ids::{Generation, Incarnation, NodeId, Step, TrajectoryId, WeightVersion};
use std::future::Future;
use std::ops::RangeInclusive;
use tokio::task::JoinHandle;

/// What a task is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Restore(Step),
    Prepare(Step),
    Train(Step),
    Publish(WeightVersion),
}

impl Work {
    fn step(self) -> Step {
        match self {
            Work::Restore(step) | Work::Prepare(step) | Work::Train(step) => step,
            Work::Publish(version) => Step(version.0),
        }
    }

    /// The steps of which its ranks take snapshots. A restore may train any of those again that were committed.
    fn snapshots(self) -> RangeInclusive<u64> {
        let last = self.step().0;
        match self {
            Work::Restore(_) => 0..=last,
            _ => last..=last,
        }
    }
}

/// A running task; dropping it ends it, and its calls are forgotten.
#[derive(Debug)]
pub(super) struct GangTask {
    /// Tells its outcome from that of an earlier task.
    pub number: u64,
    work: Work,
    pub(super) generation: Generation,
    pub(super) ranks: Vec<Incarnation>,
    task: JoinHandle<()>,
    /// The step is done, and is said to be once its result is as safe as the job wants it.
    pub(super) done: Option<Done>,
}

impl Drop for GangTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Driver {
    pub(super) fn train(
        &mut self,
        generation: Generation,
        ranks: Vec<Incarnation>,
        step: Step,
        trajectories: Vec<TrajectoryId>,
    ) {
        let store = self.parts.store.clone();
        let known = self.ahead.of(generation, step);
        self.replicas.trains(step, trajectories.clone());
        self.begin(Work::Train(step), generation, ranks, |gang| {
            control::train(gang, store, step, trajectories, known)
        });
    }

    pub(super) fn prepare(
        &mut self,
        generation: Generation,
        ranks: Vec<Incarnation>,
        step: Step,
        trajectories: Vec<TrajectoryId>,
    ) {
        let store = self.parts.store.clone();
        self.begin(Work::Prepare(step), generation, ranks, |gang| {
            control::prepare(gang, store, step, trajectories)
        });
    }

    pub(super) fn publish(
        &mut self,
        generation: Generation,
        ranks: Vec<Incarnation>,
        version: WeightVersion,
    ) {
        self.begin(Work::Publish(version), generation, ranks, |gang| {
            control::publish(gang, version)
        });
    }

    /// Starts the work unless this very work is running: its calls go out again over new links by
    /// themselves. Other work is replaced.
    pub(super) fn begin<F, O>(
        &mut self,
        work: Work,
        generation: Generation,
        ranks: Vec<Incarnation>,
        start: F,
    ) where
        F: FnOnce(Gang) -> O,
        O: Future<Output = Result<StepOutcome, StepError>> + Send + 'static,
    {
        let same = |t: &GangTask| (t.work, t.generation, &t.ranks) == (work, generation, &ranks);
        if self.gang.as_ref().is_some_and(same) {
            return;
        }
        if ranks
            .iter()
            .any(|rank| self.core.is_current(*rank).is_none())
        {
            // It waited for a record, and the gang was given up meanwhile.
            return;
        }
        self.gang = None;
        self.parts
            .shards
            .expect_of_gang(work.snapshots(), self.ranks_elsewhere(&ranks));
        self.tasks += 1;
        let number = self.tasks;
        let gang = Gang {
            calls: self.calls.clone(),
            generation,
            ranks: ranks.clone(),
            attempt: 0,
            trains: Trains::of(&self.parts.job),
        };
        let doing = start(gang);
        let events = self.parts.events.clone();
        let task = tokio::spawn(async move {
            let outcome = Box::new(StepOutcome::of(generation, work.step(), doing.await));
            let ended = GangWorkEvent::Ended {
                task: number,
                outcome,
            };
            // When the driver is gone nobody wants to know.
            let _ = events.send(ended.into());
        });
        self.gang = Some(GangTask {
            number,
            work,
            generation,
            ranks,
            task,
            done: None,
        });
    }

    /// A snapshot of the gang at work, with the nodes that its ranks run on.
    pub(super) fn at_homes(&self, snapshot: SnapshotShards) -> SnapshotShards {
        let ranks = self.gang.iter().flat_map(|task| &task.ranks);
        let home = |rank: &Incarnation| {
            let node = self.processes.get(rank).map(|process| process.node);
            let spec = node.and_then(|node| self.core.node(node));
            spec.map(|spec| spec.name.clone()).unwrap_or_default()
        };
        let homes = ranks.map(home).collect();
        SnapshotShards { homes, ..snapshot }
    }

    /// Those of a gang's ranks that run on other nodes, which copy their snapshots here.
    fn ranks_elsewhere(&self, ranks: &[Incarnation]) -> Vec<RankThere> {
        let there = (0..).zip(ranks).filter_map(|(rank, incarnation)| {
            let node = self.processes.get(incarnation)?.node;
            let node = self.core.node(node).filter(|_| node != NodeId::LEADER)?;
            Some(RankThere {
                incarnation: incarnation.0,
                rank,
                node: node.name.clone(),
                bytes: self.bytes_of_snapshot(rank, ranks.len()),
            })
        });
        there.collect()
    }

    /// What a rank's snapshot has to have, by the last one that a gang of as many ranks took: its part of the
    /// model does not change. What a program of one's own keeps may.
    fn bytes_of_snapshot(&self, rank: u32, ranks: usize) -> Option<u64> {
        if self.parts.job.trainer.command.is_some() {
            return None;
        }
        let (_, last) = self.snapshots.all().last_key_value()?;
        let last = Some(last).filter(|last| last.shards.len() == ranks)?;
        Some(last.shards.get(rank as usize)?.bytes)
    }

    /// Ends the task that this rank takes part in: its gang is over.
    pub(super) fn abandon_gang_of(&mut self, rank: Incarnation) {
        if self
            .gang
            .as_ref()
            .is_some_and(|task| task.ranks.contains(&rank))
        {
            self.gang = None;
        }
    }

    /// Remembers what the outcome brings, and says it to the core.
    pub(super) fn note_outcome(&mut self, outcome: StepOutcome) -> Input {
        match outcome {
            StepOutcome::Restored {
                generation,
                step,
                from,
            } => {
                self.note_restored(generation, step, &from);
                Input::Gang(generation, GangEvent::Restored { step })
            }
            StepOutcome::Prepared {
                generation,
                step,
                rows,
            } => {
                self.ahead.add(generation, step, rows);
                Input::Gang(generation, GangEvent::Prepared { step })
            }
            StepOutcome::Done {
                generation,
                step,
                metrics,
                snapshot,
            } => {
                let snapshot = self.at_homes(snapshot);
                self.snapshots.add(step, snapshot);
                self.replicate(step);
                self.tidy_kept_shards();
                Input::Gang(generation, GangEvent::StepDone { step, metrics })
            }
            StepOutcome::Over { generation } => Input::Gang(generation, GangEvent::TrainerOver),
            StepOutcome::Published {
                generation,
                version,
                bytes,
                digest,
                served,
            } => {
                for (rank, served) in served {
                    self.served.add(rank, served);
                }
                self.compare_published(generation, version, &digest);
                Input::Gang(
                    generation,
                    GangEvent::Published {
                        version,
                        bytes,
                        digest,
                    },
                )
            }
            StepOutcome::Failed {
                generation,
                step,
                rank,
                fault,
                reason,
            } => Input::Gang(
                generation,
                GangEvent::StepFailed {
                    step,
                    rank,
                    fault,
                    reason,
                },
            ),
        }
    }

    /// Removes shards of other nodes' ranks that no restore can need any more.
    pub(super) fn tidy_kept_shards(&self) {
        if let Some((oldest, newest)) = self.snapshots.span() {
            let in_use = self.snapshots.paths();
            self.parts.shards.tidy(oldest.0, newest.0, &in_use);
        }
    }

    /// Has a committed step written to disk, in the background; false when the writer is busy.
    pub(super) fn offer_checkpoint(
        &mut self,
        step: Step,
        generation: Generation,
        consumed: Vec<TrajectoryId>,
        reward: Option<f64>,
    ) -> bool {
        let Some(snapshot) = self.snapshots.get(step).cloned() else {
            return true;
        };
        let Some(turn) = self.parts.checkpointer.begin() else {
            return false;
        };
        let by_nodes = self.parts.by_nodes.clone();
        let request = Request {
            step,
            generation,
            shards: snapshot.shards.iter().map(shard_from_wire).collect(),
            consumed,
            reward,
            tensors: self.served.tensors(),
        };
        if let Some(by_nodes) = by_nodes {
            self.put_by_nodes(by_nodes, turn, request, snapshot);
            return true;
        }
        if snapshot.shards.iter().all(|shard| !shard.path.is_empty()) {
            return turn.write(request) == Offer::Taken;
        }
        let memory = PeerMemory::new([(step, snapshot)].into(), self.peer_memory(), Needed::All);
        let pinned = self.parts.shards.pin(step.0);
        tokio::spawn(async move {
            match memory.gather(step).await {
                Ok(shards) => {
                    let request = Request { shards, ..request };
                    turn.write_keeping(request, pinned);
                }
                Err(reason) => turn.fail(step, WriteError::Away(reason)),
            }
        });
        true
    }

    pub(super) fn peers(&self, ranks: &[Incarnation]) -> Vec<Peer> {
        let peer = |(rank, incarnation): (u32, &Incarnation)| {
            let hello = self.links.hello(*incarnation).unwrap_or_default();
            let region = |r: robust_proto::v1::Region| Region {
                key: r.key,
                bytes: r.bytes,
                patches: Vec::new(),
            };
            Peer {
                rank,
                incarnation: *incarnation,
                transport_addr: hello.transport_addr,
                gradients: hello.gradients.into_iter().map(region).collect(),
                master_port: hello.master_port,
            }
        };
        (0..).zip(ranks).map(peer).collect()
    }
}
