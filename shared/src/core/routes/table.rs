//! Requests for a rollout: those being served and those that wait.
use crate::hash::IdMap;
use crate::ids::{Incarnation, TrajectoryId};
use std::collections::BTreeSet;

/// Requests for a rollout, found by number, by agent worker, by rollout and, those that wait, by
/// batch and age.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    requests: IdMap<u64, Asked>,
    /// Batch, age, number.
    waiting: BTreeSet<(u64, u64, u64)>,
    of_trajectory: IdMap<(Incarnation, TrajectoryId), u64>,
    of_agent: IdMap<Incarnation, BTreeSet<u64>>,
    of_rollout: IdMap<Incarnation, BTreeSet<u64>>,
    asked: u64,
    /// Rollouts whose number of requests changed.
    changed: Vec<Incarnation>,
}

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// An agent worker that holds the trajectory's lease.
    Agent {
        /// The agent worker.
        agent: Incarnation,
        /// What it generates for.
        trajectory: TrajectoryId,
    },
    /// Somebody outside the job, through the router.
    Client {
        /// The rollout that failed the request before.
        avoid: Option<Incarnation>,
    },
}

impl Asker {
    /// The batch whose turn it is in the queue: clients come after every batch of the job's.
    fn batch(self) -> u64 {
        match self {
            Asker::Agent { trajectory, .. } => trajectory.batch,
            Asker::Client { .. } => u64::MAX,
        }
    }

    fn lease(self) -> Option<(Incarnation, TrajectoryId)> {
        match self {
            Asker::Agent { agent, trajectory } => Some((agent, trajectory)),
            Asker::Client { .. } => None,
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Whose.
    pub asker: Asker,
    /// Who serves it.
    pub rollout: Option<Incarnation>,
    age: u64,
}

impl Asked {
    /// Its place among those that wait.
    fn turn(&self, ticket: u64) -> (u64, u64, u64) {
        (self.asker.batch(), self.age, ticket)
    }
}

impl Routes {
    /// The request of this number.
    pub fn get(&self, ticket: u64) -> Option<&Asked> {
        self.requests.get(&ticket)
    }

    /// Requests a rollout is serving.
    pub fn load(&self, rollout: Incarnation) -> u32 {
        let served = self.of_rollout.get(&rollout).map_or(0, BTreeSet::len);
        u32::try_from(served).unwrap_or(u32::MAX)
    }

    /// One of the requests that a rollout serves.
    #[cfg(test)]
    pub fn of(&self, rollout: Incarnation) -> Option<u64> {
        self.of_rollout.get(&rollout)?.first().copied()
    }

    /// A new request. An agent runs one per trajectory, so it ends what came before it.
    pub fn ask(&mut self, ticket: u64, asker: Asker) {
        self.asked += 1;
        let asked = Asked {
            asker,
            rollout: None,
            age: self.asked,
        };
        if let Some((agent, trajectory)) = asker.lease() {
            if let Some(&before) = self.of_trajectory.get(&(agent, trajectory)) {
                self.end(before);
            }
            self.of_trajectory.insert((agent, trajectory), ticket);
            self.of_agent.entry(agent).or_default().insert(ticket);
        }
        self.requests.insert(ticket, asked);
        self.waiting.insert(asked.turn(ticket));
    }

    /// The oldest that waits, of this batch or a later one.
    pub fn next_waiting(&self, batch: u64) -> Option<u64> {
        let next = self.waiting.range((batch, 0, 0)..).next();
        next.map(|(.., ticket)| *ticket)
    }

    /// A rollout serves it from now on.
    pub fn serve(&mut self, ticket: u64, rollout: Incarnation) {
        let Some(asked) = self.requests.get_mut(&ticket) else {
            return;
        };
        asked.rollout = Some(rollout);
        let waited = asked.turn(ticket);
        self.waiting.remove(&waited);
        self.of_rollout.entry(rollout).or_default().insert(ticket);
        self.changed.push(rollout);
    }

    /// It is over. Returns it.
    pub fn end(&mut self, ticket: u64) -> Option<Asked> {
        let asked = self.requests.remove(&ticket)?;
        self.waiting.remove(&asked.turn(ticket));
        if let Some((agent, trajectory)) = asked.asker.lease() {
            self.of_trajectory.remove(&(agent, trajectory));
            forget(&mut self.of_agent, agent, ticket);
        }
        if let Some(rollout) = asked.rollout {
            forget(&mut self.of_rollout, rollout, ticket);
            self.changed.push(rollout);
        }
        Some(asked)
    }

    /// A rollout is gone: who was served notices by the broken stream and asks again.
    pub fn drop_rollout(&mut self, rollout: Incarnation) {
        self.end_all(self.of_rollout.get(&rollout).cloned());
    }

    /// An agent worker is gone, and with it whoever would use its answers.
    pub fn drop_agent(&mut self, agent: Incarnation) {
        self.end_all(self.of_agent.get(&agent).cloned());
    }

    fn end_all(&mut self, tickets: Option<BTreeSet<u64>>) {
        for ticket in tickets.into_iter().flatten() {
            self.end(ticket);
        }
    }

    /// One of the rollouts whose number of requests changed.
    pub(in crate::core) fn next_changed(&mut self) -> Option<Incarnation> {
        self.changed.pop()
    }

    /// Whether every look-up says what the requests themselves say.
    #[cfg(any(test, feature = "check"))]
    pub(in crate::core) fn check(&self) -> Result<(), String> {
        let mut served = IdMap::<Incarnation, BTreeSet<u64>>::default();
        let mut agents = IdMap::<Incarnation, BTreeSet<u64>>::default();
        let (mut waiting, mut leased) = (BTreeSet::new(), 0);
        for (&ticket, asked) in &self.requests {
            match asked.rollout {
                Some(rollout) => {
                    served.entry(rollout).or_default().insert(ticket);
                }
                None => {
                    waiting.insert(asked.turn(ticket));
                }
            }
            let Some(lease) = asked.asker.lease() else {
                continue;
            };
            leased += 1;
            agents.entry(lease.0).or_default().insert(ticket);
            if self.of_trajectory.get(&lease) != Some(&ticket) {
                return Err(format!("request {ticket} is not its trajectory's"));
            }
        }
        let same =
            (&served, &agents, &waiting) == (&self.of_rollout, &self.of_agent, &self.waiting);
        match same && self.of_trajectory.len() == leased {
            true => Ok(()),
            false => Err(format!("requests and their look-ups differ: {self:#?}")),
        }
    }
}

fn forget(of: &mut IdMap<Incarnation, BTreeSet<u64>>, who: Incarnation, ticket: u64) {
    if let Some(tickets) = of.get_mut(&who) {
        tickets.remove(&ticket);
        if tickets.is_empty() {
            of.remove(&who);
        }
    }
}
