//! RequestManager: which trajectory is whose, and which one goes to whom next.
//!
//! ```text
//!            dispatch                finish (durable)          commit of its batch
//!  pending ───────────► leased ───────────────────► finished ───────────────────► (gone)
//!     ▲                   │                            │
//!     │                   │                            └─ policy `task`: a task restart (`discard`)
//!     ├───────────────────┴ given back (its tool or environment failed: no sample), or its agent
//!     │                     worker died; what is stored stays (I-2)
//!     └──── too old to train on (`stale`): thrown away
//!
//!  pending, leased ── took engines along (`poison`) ──► set aside ── commit of its batch ──► (gone)
//! ```
//! A trajectory's batch is the step that will consume it, so each is consumed once (I-3): the table
//! only ever holds batches after the committed step.
mod past;
mod stale;
mod table;

pub use past::{Past, Provenance, SETBACKS, Setback, SetbackKind};
pub use stale::staleness;
pub use table::{Place, Shape, Trajectories, Trajectory};

use super::idlest::Idlest;
use crate::core::Mutation;
use crate::core::config::Mode;
use crate::core::effects::Cx;
use crate::core::input::ReturnedBy;
use crate::core::output::{Output, Record, Severity};
use crate::ids::{Incarnation, InstanceId, Role, Step, TrajectoryId, WeightVersion};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Wait before a trajectory that was given back is handed out again, per time it was given back.
const RETURN_DELAY: Duration = Duration::from_millis(200);

/// When one is handed out again that came back for the how-manieth time.
fn delayed(now: Time) -> impl Fn(u32) -> Time {
    move |times| now + RETURN_DELAY * times.min(25)
}

/// Hands out trajectories and takes them in.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RequestManager {
    #[serde(rename = "trajectories")]
    table: Trajectories,
    #[serde(flatten)]
    tally: Tally,
    /// Agent workers that may get trajectories.
    #[serde(skip)]
    agents: Idlest<()>,
    /// Agent workers whose number of leases changed, for the roster.
    #[serde(skip)]
    changed: Vec<Incarnation>,
}

/// What became of trajectories since the job began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Engines enough have served once: generation began.
    #[serde(default)]
    pub begun: bool,
    /// Finished since the last commit.
    #[serde(default)]
    pub finished_since: u64,
    /// Their work was thrown away (policy `task`).
    #[serde(default)]
    pub discarded: u64,
    /// They ended too old to train on.
    #[serde(default)]
    pub stale: u64,
    /// They took engines along and are trained on by no step.
    #[serde(default)]
    pub set_aside: u64,
    /// Times that one was given back unfinished.
    #[serde(default)]
    pub given_back: u64,
}

/// A trajectory that was brought to its end, and stored.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// Which.
    pub trajectory: TrajectoryId,
    /// Its reward.
    pub reward: f64,
    /// The oldest weights used for it.
    pub oldest: WeightVersion,
    /// The lease under which it was stored; 0 where that is not known.
    pub lease: u64,
}

/// What generation depends on besides the work.
#[derive(Clone, Copy, Debug)]
pub struct Supply {
    /// Engines that serve.
    pub serving: u32,
    /// Engines that the job has.
    pub engines: usize,
    /// The newest version that engines can have.
    pub published: Option<WeightVersion>,
    /// The last batch that may be begun: a job that is to pause begins none beyond it.
    pub last: Step,
}

/// Equal are those that remember the same.
impl PartialEq for RequestManager {
    fn eq(&self, other: &Self) -> bool {
        (&self.table, self.tally) == (&other.table, other.tally)
    }
}

impl RequestManager {
    /// As they were written down.
    pub fn of(table: Trajectories, tally: Tally) -> Self {
        Self {
            table,
            tally,
            ..Self::default()
        }
    }

    /// The trajectories of open batches.
    pub fn table(&self) -> &Trajectories {
        &self.table
    }

    /// What became of trajectories since the job began.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether this agent worker holds the lease of this trajectory.
    pub fn is_leased(&self, agent: Incarnation, id: TrajectoryId) -> bool {
        self.table.get(id).map(|t| t.place) == Some(Place::Leased(agent))
    }

    /// The number of the lease of a trajectory that was given last; 0: none was.
    pub fn lease_of(&self, id: TrajectoryId) -> u64 {
        self.table.get(id).map_or(0, |t| t.lease)
    }

    /// Makes the table hold the batches that may be generated after this step.
    pub fn open_batches(&mut self, cx: &Cx<'_>, committed: Step) {
        if cx.config.own_loop.is_some() {
            return;
        }
        let first = committed.0 + 1;
        let last = (first + cx.config.ahead).min(cx.config.steps);
        for batch in first..=last {
            self.table
                .open(batch, cx.config.prompts, cx.config.responses);
        }
    }

    /// Hands pending trajectories to the agent workers with the fewest, below their concurrency.
    pub fn dispatch(&mut self, cx: &mut Cx<'_>, supply: Supply) {
        // Before anything is waited for: what is due and stays so would wake the driver again and again.
        self.table.take_due(cx.now);
        self.settle();
        if !self.begins(cx, supply) {
            return;
        }
        while let Some(id) = self.table.next_pending() {
            if id.batch > supply.last.0 || !weights_exist(cx, supply, id.batch) {
                return;
            }
            let most = cx.config.agent_concurrency;
            let Some(agent) = self.agents.idlest(.., most, |_| true) else {
                return;
            };
            let who = self.agents.who(agent);
            let lease = self.table.lease(id, (agent, who), cx.now);
            self.settle();
            cx.out.push(Output::Dispatch {
                agent,
                trajectory: id,
                lease,
            });
        }
    }

    /// Whether generation may begin: it waits for `n_init` engines once, at the job's start.
    fn begins(&mut self, cx: &Cx<'_>, supply: Supply) -> bool {
        if !self.tally.begun {
            let wanted = cx.config.role(Role::Rollout).n_init as usize;
            self.tally.begun = supply.serving as usize >= wanted.min(supply.engines);
        }
        self.tally.begun
    }

    /// An agent worker stored a finished trajectory. It counts even from one that died since: it is
    /// durable, and must not be generated again (I-2), unless it was thrown away since. Whether it is work of the
    /// one that brought it. A daemon that starts (`restores`) hears of all that is stored, whoever held it.
    pub fn finished(
        &mut self,
        cx: &mut Cx<'_>,
        restores: bool,
        agent: Incarnation,
        Finished {
            trajectory: id,
            reward,
            oldest,
            lease,
        }: Finished,
    ) -> bool {
        let Some(t) = self.table.get(id) else {
            return false;
        };
        let over = matches!(t.place, Place::Finished { .. } | Place::SetAside);
        let void = lease != 0 && lease <= t.void;
        if over || void || !(restores || t.holders.contains(&agent)) {
            return false;
        }
        // That it was brought to its end is useful work, though the weights that its engines had may make
        // it too old to train on.
        if cx.config.is_stale(id, oldest) {
            self.drop_stale(cx, id, oldest);
            return true;
        }
        let holder = match t.place {
            Place::Leased(holder) if holder != agent => Some(holder),
            _ => None,
        };
        self.table.set(id, Place::Finished { reward, oldest });
        self.tally.finished_since += 1;
        if let Some(agent) = holder {
            let trajectory = id;
            cx.out.push(Output::Revoke { agent, trajectory });
        }
        true
    }

    /// Throws away one that ended too old. Whoever holds it by now is told to drop it.
    fn drop_stale(&mut self, cx: &mut Cx<'_>, id: TrajectoryId, oldest: WeightVersion) {
        if let Some(Place::Leased(agent)) = self.table.get(id).map(|t| t.place) {
            let trajectory = id;
            cx.out.push(Output::Revoke { agent, trajectory });
        }
        self.tally.stale += 1;
        let most = cx.config.max_staleness.unwrap_or_default();
        let text = stale::words(id, oldest, most);
        self.table.set_back(id, cx.now, SetbackKind::TooOld, &text);
        cx.event(Severity::Warn, "stale", None, text);
        self.begin_again(cx, id);
    }

    /// What is stored of it is thrown away, on record.
    fn begin_again(&mut self, cx: &mut Cx<'_>, id: TrajectoryId) {
        self.table.begin_again(id, delayed(cx.now));
        let trajectories = vec![id];
        cx.out.record(Record::Discarded { trajectories });
    }

    /// An agent worker gave a trajectory back: an infrastructure failure is never a sample, so it has
    /// no reward and its step waits for it. It is generated on from what is stored, unless just that is
    /// what cannot be done. Whether it held it.
    pub fn returned(
        &mut self,
        cx: &mut Cx<'_>,
        (agent, who): (Incarnation, InstanceId),
        (id, lease): (TrajectoryId, u64),
        reason: &str,
        by: ReturnedBy,
    ) -> bool {
        if !self.is_leased(agent, id) || lease != 0 && lease != self.lease_of(id) {
            return false;
        }
        let kind = match by {
            ReturnedBy::Worker | ReturnedBy::Daemon => SetbackKind::GivenBack,
            ReturnedBy::Diverged => SetbackKind::Diverged,
        };
        self.table.set_back(id, cx.now, kind, reason);
        match by {
            _ if cx.config.mutant(Mutation::LoseReturned) => {}
            ReturnedBy::Worker | ReturnedBy::Daemon => self.table.give_back(id, delayed(cx.now)),
            ReturnedBy::Diverged => self.begin_again(cx, id),
        }
        if cx.config.mutant(Mutation::TrainReturned) {
            let (reward, oldest) = (0.0, WeightVersion(id.batch.saturating_sub(1)));
            self.table.set(id, Place::Finished { reward, oldest });
        }
        let text = format!("trajectory {id} given back, no sample: {reason}");
        cx.event(Severity::Warn, "returned", Some(who), text);
        self.tally.given_back += 1;
        true
    }

    /// An agent worker linked: what it holds and what the table says are brought together. It is told to
    /// begin nothing of a batch beyond the `last` one.
    pub fn reconcile(
        &mut self,
        cx: &mut Cx<'_>,
        (agent, who): (Incarnation, InstanceId),
        held: &[TrajectoryId],
        last: Step,
    ) {
        for trajectory in self.table.held_by(agent) {
            if held.contains(&trajectory) {
                continue;
            }
            if trajectory.batch <= last.0 {
                let lease = self.lease_of(trajectory);
                cx.out.push(Output::Dispatch {
                    agent,
                    trajectory,
                    lease,
                });
            } else {
                // The command was lost before the job was to pause: it was not begun.
                let kind = SetbackKind::NotBegun;
                self.table.set_back(trajectory, cx.now, kind, "");
                self.table.set(trajectory, Place::Pending(Time(0)));
                cx.out.push(Output::Revoke { agent, trajectory });
            }
        }
        for &trajectory in held {
            let t = self.table.get(trajectory);
            // Whoever held it after this one may have stored turns that this one does not know of. Where nobody is on
            // record as its holder it may have been given since the last record, unless what was done of it was ever
            // thrown away: then this one may hold what was thrown away.
            let was_last = |t: &Trajectory| match t.holders.last() {
                Some(last) => *last == agent,
                None => t.void == 0,
            };
            match t.map(|t| (t.place, was_last(t))) {
                Some((Place::Leased(holder), _)) if holder == agent => {}
                Some((Place::Pending(_), true)) => {
                    self.table.lease(trajectory, (agent, Some(who)), cx.now);
                }
                place => {
                    if let Some((Place::Pending(until), _)) = place {
                        // Nobody's for a moment: handed to the same worker at once, a turn of its old holding that
                        // is on its way would be taken for one of the new.
                        let until = until.max(cx.now + RETURN_DELAY);
                        self.table.set(trajectory, Place::Pending(until));
                    }
                    cx.out.push(Output::Revoke { agent, trajectory });
                }
            }
        }
    }

    /// The leases of an agent worker are nobody's any more.
    pub fn void(&mut self, cx: &Cx<'_>, agent: Incarnation) {
        if !cx.config.mutant(Mutation::KeepLeases) {
            self.table.void(agent, cx.now, SetbackKind::AgentGone);
        }
    }

    /// It is handed out no more, and its step does without it. Who held it.
    pub fn set_aside(&mut self, id: TrajectoryId, now: Time, why: &str) -> Option<Incarnation> {
        let place = self.table.get(id).map(|t| t.place);
        self.table.set_back(id, now, SetbackKind::SetAside, why);
        self.table.set(id, Place::SetAside);
        self.tally.set_aside += 1;
        match place {
            Some(Place::Leased(agent)) => Some(agent),
            _ => None,
        }
    }

    /// A step is committed: its batch is consumed, once (I-3). The share of what finished since the step before
    /// that is for later steps, in 0..=1.
    pub fn committed(&mut self, cx: &Cx<'_>, step: Step) -> f64 {
        if !cx.config.mutant(Mutation::ConsumeTwice) {
            self.table.consume(step);
        }
        let (_, ahead) = self.table.counts();
        let since = std::mem::take(&mut self.tally.finished_since).max(1);
        (ahead as f64 / since as f64).min(1.0)
    }

    /// Policy `task`, the baseline: a fault costs the rollout work of every uncommitted batch. Trajectories
    /// under way and those that finished go back to their prompts and are generated again, as they are
    /// where rollouts live in the process that restarts. Counted, and subtracted from goodput.
    ///
    /// The record comes before anything that follows from it, and whoever stores turns takes the leases
    /// away first: no late word of an agent worker brings back what was thrown away. I-2 holds under
    /// policy `role`; here it is given up on purpose.
    pub fn discard(&mut self, cx: &mut Cx<'_>) {
        let trajectories: Vec<TrajectoryId> = self.table.discard(cx.now);
        if trajectories.is_empty() {
            return;
        }
        let count = trajectories.len();
        self.tally.discarded += count as u64;
        self.tally.finished_since = 0;
        let text = format!("{count} trajectories are thrown away and generated again");
        cx.event(Severity::Warn, "discarded", None, text);
        cx.out.record(Record::Discarded { trajectories });
    }

    /// What is derived from the table is derived anew: it may be a copy of one.
    pub fn derived_anew(&mut self) {
        *self = Self::of(self.table.derived_anew(), self.tally);
    }

    /// Nobody holds anything any more: every process of the job has ended.
    pub fn return_leases(&mut self, now: Time) {
        self.table.return_leases(now);
    }

    /// The table, for whoever writes down what changed in it.
    pub fn changes(&mut self) -> &mut Trajectories {
        &mut self.table
    }

    /// An agent worker takes trajectories, or none any more.
    pub fn offer(&mut self, id: InstanceId, agent: Incarnation, takes: bool) {
        match takes {
            true => self.agents.add(agent, id, (), self.table.leases(agent)),
            false => self.agents.remove(agent),
        }
    }

    /// One of the agent workers whose number of leases changed.
    pub fn next_changed(&mut self) -> Option<Incarnation> {
        self.settle();
        self.changed.pop()
    }

    /// Those whose leases changed are in order again.
    fn settle(&mut self) {
        while let Some(agent) = self.table.next_changed() {
            self.agents.loads(agent, self.table.leases(agent));
            self.changed.push(agent);
        }
    }

    pub(super) fn forget_offers(&mut self) {
        self.agents = Idlest::default();
    }

    pub(super) fn has_same_offers(&self, other: &Self) -> bool {
        self.agents == other.agents
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let table = self.table.clone().settled();
        let scanned = self.table.derived_anew().settled();
        match table.is_same(&scanned) {
            true => Ok(()),
            false => Err(crate::core::difference(&table, &scanned)),
        }
    }
}

/// Whether anything published is fit to generate for a batch. Agent workers full of trajectories that
/// wait for weights would have no room for those that the step before still needs.
fn weights_exist(cx: &Cx<'_>, supply: Supply, batch: u64) -> bool {
    let oldest = *cx.config.fit_versions(batch).start();
    cx.config.mode == Mode::Sync || supply.published.unwrap_or_default() >= oldest
}
