//! Requests for a rollout: those being served and those that wait.
use crate::core::detect::poison::BROKEN_OFF;
use crate::hash::IdMap;
use crate::ids::{Incarnation, TrajectoryId};
use crate::time::Time;
use std::collections::{BTreeSet, VecDeque};

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
    /// What rollouts broke off lately: when, who, what.
    broken: VecDeque<(Time, Incarnation, TrajectoryId)>,
    /// Rollouts that may serve requests which an earlier daemon gave them.
    blind: BTreeSet<Incarnation>,
}

/// More than this is broken off within seconds only where all of it is.
const BROKEN_KEPT: usize = 4096;

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
    /// What it is generated for; nothing of the job's for a client of the router.
    pub fn trajectory(&self) -> Option<TrajectoryId> {
        self.asker.lease().map(|(_, trajectory)| trajectory)
    }

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

    /// All of them, in the order of their numbers.
    pub fn all(&self) -> Vec<(u64, Asked)> {
        let all = self
            .requests
            .iter()
            .map(|(ticket, asked)| (*ticket, *asked));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|(ticket, _)| *ticket);
        all
    }

    /// Requests a rollout is serving.
    pub fn load(&self, rollout: Incarnation) -> u32 {
        let served = self.of_rollout.get(&rollout).map_or(0, BTreeSet::len);
        u32::try_from(served).unwrap_or(u32::MAX)
    }

    /// One of the requests that a rollout serves.
    #[cfg(any(test, feature = "inspect"))]
    pub fn of(&self, rollout: Incarnation) -> Option<u64> {
        self.of_rollout.get(&rollout)?.first().copied()
    }

    /// A new request. An agent runs one per trajectory, so it ends what came before it, which is
    /// returned.
    pub fn ask(&mut self, ticket: u64, asker: Asker) -> Option<Asked> {
        let before = asker
            .lease()
            .and_then(|lease| self.of_trajectory.get(&lease).copied());
        let before = before.and_then(|before| self.end(before));
        self.asked += 1;
        let asked = Asked {
            asker,
            rollout: None,
            age: self.asked,
        };
        if let Some((agent, trajectory)) = asker.lease() {
            self.of_trajectory.insert((agent, trajectory), ticket);
            self.of_agent.entry(agent).or_default().insert(ticket);
        }
        self.requests.insert(ticket, asked);
        self.waiting.insert(asked.turn(ticket));
        before
    }

    /// The first that waits from a batch and age on: its batch, age and number.
    pub fn next_waiting(&self, (batch, age): (u64, u64)) -> Option<(u64, u64, u64)> {
        self.waiting.range((batch, age, 0)..).next().copied()
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
        drop(self.end_all(self.of_rollout.get(&rollout).cloned()));
        self.broken.retain(|(_, by, _)| *by != rollout);
        self.blind.remove(&rollout);
    }

    /// A rollout broke a request off.
    pub fn break_off(&mut self, asked: Asked, now: Time) {
        let old = |(at, ..): &(Time, _, _)| now.since(*at) > BROKEN_OFF * 2;
        while self.broken.len() >= BROKEN_KEPT || self.broken.front().is_some_and(old) {
            self.broken.pop_front();
        }
        if let Some((rollout, trajectory)) = asked.rollout.zip(asked.trajectory()) {
            self.broken.push_back((now, rollout, trajectory));
        }
    }

    /// What a rollout serves, and what it broke off since then.
    pub fn in_flight(
        &self,
        rollout: Incarnation,
        since: Time,
    ) -> impl Iterator<Item = TrajectoryId> {
        let served = self.of_rollout.get(&rollout).into_iter().flatten();
        let served = served.filter_map(|ticket| self.get(*ticket)?.trajectory());
        let of = move |(at, by, _): &&(Time, Incarnation, _)| *by == rollout && *at >= since;
        served.chain(self.broken.iter().filter(of).map(|(.., broken)| *broken))
    }

    /// How many rollouts that are still there broke it off since then.
    pub fn broke_off(&self, trajectory: TrajectoryId, since: Time) -> usize {
        let of = |(at, _, of): &&(Time, _, _)| *of == trajectory && *at >= since;
        let by = self.broken.iter().filter(of).map(|(_, by, _)| *by);
        by.collect::<BTreeSet<_>>().len()
    }

    /// The rollouts that serve these.
    pub fn engines_of(&self, of: impl Fn(&Asker) -> bool) -> BTreeSet<Incarnation> {
        let asked = self.requests.values().filter(|asked| of(&asked.asker));
        asked.filter_map(|asked| asked.rollout).collect()
    }

    /// These were here before this daemon.
    pub fn adopt(&mut self, rollouts: impl Iterator<Item = Incarnation>) {
        self.blind.extend(rollouts);
    }

    /// It serves nothing: what it is given from now on is known.
    pub fn seen_idle(&mut self, rollout: Incarnation) {
        self.blind.remove(&rollout);
    }

    /// Whether it may serve what is not known here.
    pub fn is_blind(&self, rollout: Incarnation) -> bool {
        self.blind.contains(&rollout)
    }

    /// An agent worker is gone, and with it whoever would use its answers.
    pub fn drop_agent(&mut self, agent: Incarnation) -> Vec<Asked> {
        self.end_all(self.of_agent.get(&agent).cloned())
    }

    fn end_all(&mut self, tickets: Option<BTreeSet<u64>>) -> Vec<Asked> {
        let each = tickets.into_iter().flatten();
        each.filter_map(|ticket| self.end(ticket)).collect()
    }

    /// One of the rollouts whose number of requests changed.
    pub(in crate::core) fn next_changed(&mut self) -> Option<Incarnation> {
        self.changed.pop()
    }

    /// Whether every look-up says what the requests themselves say.
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
