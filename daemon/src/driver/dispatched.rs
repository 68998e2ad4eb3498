//! Handing a trajectory to an agent worker, with what is stored of it.
//!
//! ```text
//!  Dispatch ─► lease given, at once ─► writes of who held it before are durable ─► read from the store
//!                    │                                                                     │
//!                    │ given again, revoked, ended, its agent gone ─► dropped ◄── Loaded ──┤
//!                    └──────────────────────── it stands still ─► to the agent's link ◄────┘
//! ```
//! The loop waits for none of it. A daemon that dies in between leaves an agent worker without what it
//! was to be told: when it links again it does not say that it holds the trajectory, and the core hands
//! it out anew.
use super::Driver;
use crate::leases::{Grant, GrantId, Settling};
use crate::store::{Store, StoredTrajectory};
use crate::tell::Tell;
use robust_proto::v1::{self, host_message};
use robust_shared::core::{Input, ReturnedBy, RoleEvent};
use robust_shared::ids::{Incarnation, TrajectoryId, WeightVersion};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Read together at most: what each took is told before the next are read.
const BATCH: usize = 64;

/// A trajectory that was given to an agent.
#[derive(Clone, Copy, Debug)]
struct Given {
    agent: Incarnation,
    trajectory: TrajectoryId,
    grant: GrantId,
    /// The lease's number, as the core counts them.
    lease: u64,
}

/// What is stored of a trajectory that was given to an agent.
#[derive(Debug)]
pub struct Loaded {
    given: Given,
    stored: Result<StoredTrajectory, String>,
}

/// Reads trajectories one after the other, beside the loop: many are handed out at once.
#[derive(Debug)]
pub(super) struct Loader {
    wanted: UnboundedSender<Given>,
}

impl Loader {
    /// Begins; it ends with the driver.
    pub fn start(store: Store, events: Tell<Loaded>) -> Self {
        let (wanted, waiting) = unbounded_channel();
        tokio::spawn(load(store, waiting, events));
        Self { wanted }
    }

    fn load(&self, given: Given, settling: Settling) {
        let wanted = self.wanted.clone();
        // When the reader is gone, so is the driver.
        if settling.is_over() {
            let _ = wanted.send(given);
            return;
        }
        tokio::spawn(async move {
            settling.over().await;
            let _ = wanted.send(given);
        });
    }
}

async fn load(store: Store, mut waiting: UnboundedReceiver<Given>, events: Tell<Loaded>) {
    let mut next = Vec::with_capacity(BATCH);
    while waiting.recv_many(&mut next, BATCH).await > 0 {
        let (store, batch) = (store.clone(), std::mem::take(&mut next));
        let reading = tokio::task::spawn_blocking(move || {
            let loaded = batch.into_iter().map(|given| Loaded {
                given,
                stored: read(&store, given.trajectory),
            });
            loaded.collect::<Vec<_>>()
        });
        // The runtime is ending when it does not answer.
        for loaded in reading.await.into_iter().flatten() {
            if events.tell(loaded).is_err() {
                return;
            }
        }
    }
}

fn read(store: &Store, trajectory: TrajectoryId) -> Result<StoredTrajectory, String> {
    match store.trajectory(trajectory) {
        Ok(stored) => Ok(stored.unwrap_or_default()),
        Err(error) => Err(format!("the store cannot be read: {error}")),
    }
}

impl Driver {
    pub(super) fn dispatch(&mut self, agent: Incarnation, trajectory: TrajectoryId, lease: u64) {
        let Grant { id, settling } = self.parts.leases.grant(agent, trajectory, lease);
        let given = Given {
            agent,
            trajectory,
            grant: id,
            lease,
        };
        self.loader.load(given, settling);
    }

    /// What is stored of a trajectory is read. It was read after the lease moved: no write of an earlier
    /// holder can come any more.
    pub(super) fn on_loaded(&mut self, loaded: Loaded) {
        let Loaded { given, stored } = loaded;
        let Given {
            agent,
            trajectory,
            grant,
            lease,
        } = given;
        if !self.parts.leases.stands(trajectory, grant) {
            return;
        }
        match stored {
            Err(reason) => self.inputs.push_back(Input::Role(
                agent,
                RoleEvent::TrajectoryReturned {
                    trajectory,
                    reason,
                    by: ReturnedBy::Daemon,
                    lease,
                },
            )),
            Ok(StoredTrajectory {
                finished: Some(end),
                ..
            }) => {
                // Its last holder died between the end's storage and our hearing of it.
                self.inputs.push_back(Input::Role(
                    agent,
                    RoleEvent::TrajectoryFinished {
                        trajectory,
                        reward: end.reward,
                        oldest_version: WeightVersion(end.oldest_version),
                        lease,
                    },
                ));
            }
            Ok(stored) => self.hand_out(agent, trajectory, stored),
        }
    }

    fn hand_out(&self, agent: Incarnation, trajectory: TrajectoryId, stored: StoredTrajectory) {
        let of_job = self.parts.job.batch.prompts;
        let prompts = self.core.batch_prompts(trajectory.batch).unwrap_or(of_job);
        let prompt = self.parts.prompts.of(&self.parts.job, trajectory, prompts);
        let message = v1::Dispatch {
            trajectory: trajectory.key(),
            prompt: prompt.prompt.clone(),
            answer: prompt.answer.clone(),
            seed: self.parts.job.trajectory_seed(),
            turns: stored.turns,
            running: stored.running,
        };
        // Without an open link the core hands it out again when the agent links.
        self.links
            .send(agent, host_message::Body::Dispatch(message));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::leases::Leases;

    const A: Incarnation = Incarnation(1);
    const B: Incarnation = Incarnation(2);
    const T: TrajectoryId = TrajectoryId {
        batch: 1,
        group: 0,
        member: 0,
    };

    fn hand(loader: &Loader, leases: &Leases, trajectory: TrajectoryId) {
        let Grant { id, settling } = leases.grant(B, trajectory, 1);
        let given = Given {
            agent: B,
            trajectory,
            grant: id,
            lease: 1,
        };
        loader.load(given, settling);
    }

    #[tokio::test]
    async fn what_is_stored_is_read_after_the_last_write_of_the_holder_before_and_others_meanwhile()
    {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        let (told, mut events) = unbounded_channel::<Loaded>();
        let loader = Loader::start(store.clone(), Tell::into_channel(&told));
        let leases = Leases::default();
        leases.keep(A, T, 1);
        let writing = leases.check(A, T).await.unwrap();
        let other = TrajectoryId { member: 1, ..T };
        hand(&loader, &leases, T);
        hand(&loader, &leases, other);
        let first = events.recv().await.unwrap();
        assert_eq!(first.given.trajectory, other);
        let span = v1::Span {
            ids: vec![7],
            logprobs: vec![-0.5],
            version: 1,
        };
        let turn = v1::Turn {
            spans: vec![span],
            ..Default::default()
        };
        store.append_turn(T, vec![1], turn).await.unwrap();
        drop(writing);
        let second = events.recv().await.unwrap();
        assert!(leases.stands(T, second.given.grant));
        assert_eq!(second.stored.unwrap().turns.len(), 1);
    }
}
