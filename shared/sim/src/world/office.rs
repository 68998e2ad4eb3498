//! The operator: requests with what was promised in answer, and revisions of the job file.
//!
//! A revision is on disk before the controller is asked, and removed when it refuses; a restarted
//! daemon reads the one its controller knows of. What was promised must hold after every crash.
use super::{Happening, World, ms};
use robust_shared::core::{
    CoreConfig, Input, NodeState, Output, PauseView, Refusal, Reply, Request, RestartTarget,
    RoleEvent, SlotRef,
};
use robust_shared::ids::{InstanceId, Role, Step};
use std::collections::{BTreeMap, BTreeSet};

/// What operators were told and hold the controller to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Promises {
    pub lost: BTreeSet<SlotRef>,
    pub cordoned: BTreeSet<String>,
    pub quarantined: BTreeSet<InstanceId>,
    pub counts: BTreeMap<Role, u32>,
    /// The last step that is begun.
    pub pause: Option<Step>,
    /// Faults that wait for the start-up of later lives.
    pub start_ups: BTreeSet<u64>,
}

impl Promises {
    /// Whether an operator wants fewer than would leave it its place. A gang changes at its boundary.
    fn is_to_go(&self, id: InstanceId) -> bool {
        let wanted = self
            .counts
            .get(&id.role)
            .filter(|_| id.role == Role::Rollout);
        wanted.is_some_and(|wanted| id.index >= *wanted)
    }
}

/// An operator's new value for a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Count(u32),
    Value(u32),
}

/// Whom accepted requests end: once for each that includes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends(BTreeMap<InstanceId, u32>);

impl Ends {
    fn insert(&mut self, who: InstanceId) {
        *self.0.entry(who).or_default() += 1;
    }

    /// Whether a request ends it, which is used up.
    pub fn remove(&mut self, who: &InstanceId) -> bool {
        let left = self.0.get_mut(who).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    }
}

impl Extend<InstanceId> for Ends {
    fn extend<T: IntoIterator<Item = InstanceId>>(&mut self, all: T) {
        all.into_iter().for_each(|who| self.insert(who));
    }
}

/// The operator's side.
#[derive(Clone, Debug)]
pub(super) struct Office {
    /// The job file in force.
    job: CoreConfig,
    revisions: BTreeMap<u32, CoreConfig>,
    /// Requests without an answer, with the revision they are about.
    asked: BTreeMap<u64, (Role, Option<u32>)>,
    /// The daemon died over a request: whether it was done has to be looked up.
    pub unsure: bool,
    pub promises: Promises,
    /// Faults that waited, by number.
    disarmed: BTreeSet<u64>,
    /// Accepted changes of the gang that were not seen to come.
    pub changes: u32,
    /// Instances that an accepted update restarts.
    pub rolling: Ends,
    /// Prompts that a batch may have.
    pub prompts: BTreeSet<u32>,
}

impl Office {
    pub fn new(config: &CoreConfig) -> Self {
        let counts = Role::ALL.map(|role| (role, config.count(role)));
        Self {
            job: config.clone(),
            revisions: BTreeMap::from([(0, config.clone())]),
            asked: BTreeMap::new(),
            unsure: false,
            disarmed: BTreeSet::new(),
            promises: Promises {
                counts: counts.into_iter().collect(),
                ..Promises::default()
            },
            changes: 0,
            rolling: Ends::default(),
            prompts: BTreeSet::from([config.prompts]),
        }
    }

    /// What a daemon that starts reads.
    pub fn job_of(&mut self, revision: u32) -> CoreConfig {
        if let Some(job) = self.revisions.get(&revision) {
            self.job = job.clone();
        }
        self.job.clone()
    }

    /// The job as it was then, as one reads it that nobody listens to.
    pub fn job_at(&self, revision: u32) -> CoreConfig {
        let job = self.revisions.get(&revision);
        job.unwrap_or(&self.job).clone()
    }

    pub fn forget_asked(&mut self) {
        self.unsure |= !self.asked.is_empty();
        self.asked.clear();
    }
}

impl World {
    /// An operator asks for something, if anybody listens.
    pub(super) fn ask(&mut self, about: Role, revision: Option<u32>, request: Request) {
        if !self.daemon.up || self.outcome.is_some() {
            return;
        }
        let ticket = self.number();
        self.office.asked.insert(ticket, (about, revision));
        self.feed(Input::Operator(ticket, request));
    }

    fn change(&mut self, role: Role, change: Change) {
        // A revision is made of the job as it is, so there is one at a time.
        if self.office.asked.values().any(|(_, r)| r.is_some()) {
            return;
        }
        let revision = self.core.state().revision() + 1;
        let mut job = self.office.job.clone();
        match (role, change) {
            (Role::Trainer, Change::Count(count)) => {
                job.ranks = count;
                job.hybrids = if job.hybrids > 0 { count } else { 0 };
            }
            (_, Change::Count(count)) => job.set_count(role, count),
            (Role::Trainer, Change::Value(prompts)) => job.prompts = prompts,
            (Role::Agent, Change::Value(held)) => job.agent_concurrency = held,
            (_, Change::Value(_)) => {}
        }
        let samples = u64::from(job.prompts) * u64::from(job.responses);
        let fits = samples.is_multiple_of(u64::from(job.ranks.max(1)));
        if matches!(change, Change::Value(_)) && (samples == 0 || !fits) {
            // No job: refused before the controller hears of it.
            return;
        }
        self.office.revisions.insert(revision, job.clone());
        self.ask(
            role,
            Some(revision),
            match change {
                Change::Count(count) => Request::Scale {
                    role,
                    count,
                    revision,
                },
                Change::Value(_) => Request::Update {
                    role,
                    config: Box::new(job),
                    revision,
                    changes: vec!["a = 1".to_owned()],
                },
            },
        );
    }

    /// `robustctl scale`.
    pub fn scale(&mut self, role: Role, count: u32) {
        self.change(role, Change::Count(count));
    }

    /// `robustctl update`: prompts of a batch, or trajectories that an agent worker may hold.
    pub fn update(&mut self, role: Role, value: u32) {
        self.change(role, Change::Value(value));
    }

    /// `robustctl cordon` and `uncordon`.
    pub fn cordon(&mut self, at: usize, out: bool) {
        let Some(machine) = self.machines.all.get(at) else {
            return;
        };
        let node = machine.spec.name.clone();
        self.ask(
            Role::Trainer,
            None,
            match out {
                true => Request::Cordon { node },
                false => Request::Uncordon { node },
            },
        );
    }

    /// `robustctl restore-slot`.
    pub fn restore_slot(&mut self, at: usize, pool: &str, index: u32) {
        let Some(machine) = self.machines.all.get(at) else {
            return;
        };
        let (node, pool) = (machine.spec.name.clone(), pool.to_owned());
        self.ask(
            Role::Trainer,
            None,
            Request::RestoreSlot { node, pool, index },
        );
    }

    /// `robustctl quarantine` and `readmit`.
    pub fn quarantine(&mut self, who: InstanceId, out: bool) {
        let InstanceId { role, index } = who;
        self.ask(
            Role::Trainer,
            None,
            match out {
                true => Request::Quarantine { role, index },
                false => Request::Readmit { role, index },
            },
        );
    }

    /// `robustctl pause` and `resume`.
    pub fn pause_job(&mut self, pause: bool) {
        self.ask(
            Role::Trainer,
            None,
            match pause {
                true => Request::Pause,
                false => Request::Resume,
            },
        );
    }

    /// `robustctl restart`.
    pub fn restart(&mut self, target: RestartTarget) {
        self.ask(Role::Trainer, None, Request::Restart { target });
    }

    /// Everything that an operator took out comes back, as he finds it in the status.
    pub(super) fn mend(&mut self) {
        if !self.daemon.idle() {
            return self.after(ms(200), Happening::Mend);
        }
        self.wake_tools();
        let view = self.core.view(self.now);
        let nodes: Vec<_> = view.nodes.into_iter().map(|n| n.node).collect();
        for node in nodes {
            let name = node.spec.name;
            let at = self.machines.all.iter().position(|m| m.spec.name == name);
            let Some(at) = at else { continue };
            if node.cordoned {
                self.cordon(at, false);
            }
            for (pool, index) in node.lost.into_iter().chain(node.draining) {
                self.restore_slot(at, &pool, index);
            }
            if node.state != NodeState::Here && self.machines.all[at].trouble.is_none() {
                self.after(ms(200), Happening::Mend);
            }
        }
        if !view.armed.is_empty() {
            let number = None;
            self.ask(Role::Trainer, None, Request::Disarm { number });
        }
        if view.pause.is_some() {
            self.pause_job(false);
        }
        let out = view.instances.iter().filter(|i| i.quarantined);
        for who in out.map(|i| i.id).collect::<Vec<_>>() {
            self.quarantine(who, false);
        }
    }

    /// The controller answered.
    pub(super) fn answered_request(&mut self, ticket: u64, result: Result<Reply, Refusal>) {
        let asked = self.office.asked.remove(&ticket);
        let revision = asked.and_then(|(_, revision)| revision);
        let Ok(reply) = result else {
            if let Some(revision) = revision {
                self.office.revisions.remove(&revision);
            }
            return;
        };
        if let Some(job) = revision.and_then(|r| self.office.revisions.get(&r)) {
            self.office.job = job.clone();
            self.office.prompts.insert(job.prompts);
        }
        let promises = &mut self.office.promises;
        match reply {
            Reply::Struck { slot, .. } => promises.lost.extend(slot),
            Reply::Armed {
                life: None, number, ..
            } if !self.office.disarmed.contains(&number) => {
                promises.start_ups.insert(number);
            }
            Reply::Armed { .. } | Reply::Disarmed { .. } | Reply::Afflicted { .. } => {}
            Reply::SlotRestored { slot } => {
                promises.lost.remove(&slot);
                self.checker.slot_is_back(&slot);
            }
            Reply::Scaled { role, to, .. } => {
                let was = promises.counts.insert(role, to).unwrap_or(to);
                promises
                    .quarantined
                    .retain(|id| id.role != role || id.index < to);
                // One that was to go and stays keeps what was asked for it meanwhile.
                let view = self.core.view(self.now);
                let comes_back = |id: InstanceId| id.role == role && (was..to).contains(&id.index);
                let out = view.instances.iter().filter(|i| i.quarantined);
                let out = out.map(|i| i.id).filter(|id| comes_back(*id));
                promises.quarantined.extend(out);
                if role == Role::Trainer {
                    self.office.changes += 1;
                }
            }
            Reply::Updated {
                role: Role::Trainer,
                ..
            } => self.office.changes += 1,
            Reply::Updated { role, .. } => {
                let all = self.all_of(role);
                self.office.rolling.extend(all);
                if role == Role::Rollout {
                    // Hybrid engines have the same values.
                    let ranks = self.core.config().count(Role::Hybrid);
                    let role = Role::Hybrid;
                    let all = (0..ranks).map(|index| InstanceId { role, index });
                    self.office.rolling.extend(all);
                }
            }
            // The place of one that is to go anyway takes its quarantine along.
            Reply::Quarantined { id, out: true } if promises.is_to_go(id) => {}
            Reply::Quarantined { id, out: true } => drop(promises.quarantined.insert(id)),
            Reply::Quarantined { id, out: false } => drop(promises.quarantined.remove(&id)),
            Reply::Cordoned { node, out: true } => drop(promises.cordoned.insert(node)),
            Reply::Cordoned { node, out: false } => drop(promises.cordoned.remove(&node)),
            Reply::Paused { pause, .. } => promises.pause = pause.map(|p| p.after),
            Reply::Restarting { target, .. } => self.expect_restart(target),
        }
    }

    /// Those that may be asked to end from now on.
    fn expect_restart(&mut self, target: RestartTarget) {
        match target {
            RestartTarget::One(who) if who.role != Role::Trainer => {
                self.office.rolling.insert(who);
            }
            RestartTarget::Role(role) if role != Role::Trainer => {
                let all = self.all_of(role);
                self.office.rolling.extend(all);
            }
            RestartTarget::Task => {
                self.office.changes += 1;
                for role in [Role::Hybrid, Role::Rollout, Role::Agent] {
                    let all = self.all_of(role);
                    self.office.rolling.extend(all);
                }
            }
            RestartTarget::One(_) | RestartTarget::Role(_) => self.office.changes += 1,
        }
    }

    /// Those of a role that are wanted, and those that finish what they hold: these may be wanted again before
    /// a change that was asked for now comes to them.
    fn all_of(&self, role: Role) -> Vec<InstanceId> {
        let wanted = self.office.promises.counts.get(&role);
        let wanted = (0..wanted.copied().unwrap_or(0)).map(|index| InstanceId { role, index });
        let surplus = |who: &&InstanceId| who.role == role && self.is_surplus(**who);
        wanted
            .chain(self.places.keys().filter(surplus).copied())
            .collect()
    }

    /// What the controller holds to, as an operator sees it.
    fn kept(&self) -> Promises {
        let view = self.core.view(self.now);
        let mut kept = Promises::default();
        for (node, seen) in (0..).map(robust_shared::ids::NodeId).zip(view.nodes) {
            let slot = |(pool, index)| SlotRef { node, pool, index };
            kept.lost.extend(seen.node.lost.into_iter().map(slot));
            if seen.node.cordoned && !seen.node.faults.cordoned() {
                kept.cordoned.insert(seen.node.spec.name);
            }
        }
        let out = view.instances.iter().filter(|i| i.quarantined);
        kept.quarantined = out.map(|i| i.id).collect();
        let counts = Role::ALL.map(|role| (role, self.core.config().count(role)));
        kept.counts = counts.into_iter().collect();
        kept.pause = view.pause.map(|PauseView { after, .. }| after);
        let stays = |id: &InstanceId| !kept.is_to_go(*id);
        kept.quarantined = kept.quarantined.iter().copied().filter(stays).collect();
        let start_ups = view.armed.iter().filter(|on| on.armed.after.is_some());
        kept.start_ups = start_ups.map(|on| on.armed.number).collect();
        kept
    }

    /// A fault does not wait for a start-up any more: it is a life's own now.
    pub(super) fn carried(&mut self, number: u64) {
        self.office.promises.start_ups.remove(&number);
    }

    /// A fault does not wait any more, and that is on record: it never does again.
    pub(super) fn disarmed(&mut self, number: u64) {
        self.office.promises.start_ups.remove(&number);
        let once = self.office.disarmed.insert(number);
        self.must(once, "I-1", || format!("fault {number} was over already"));
    }

    /// A daemon that starts again holds to what was promised; what nobody answered may be done.
    pub(super) fn remember_promises(&mut self) {
        let (mut kept, unsure) = (self.kept(), std::mem::take(&mut self.office.unsure));
        // A change of the gang comes at a step boundary.
        for role in [Role::Trainer, Role::Hybrid] {
            let count = self.office.promises.counts.get(&role).copied();
            kept.counts.insert(role, count.unwrap_or(0));
        }
        if self.begun_anew {
            self.checker.begin_anew();
        }
        if unsure || self.begun_anew {
            if unsure {
                self.office.changes += 1;
                let planned = self.core.config().count(Role::Trainer);
                self.checker.may_have.insert(planned);
                let jobs = self.office.revisions.values();
                self.checker.may_have.extend(jobs.map(|job| job.ranks));
                self.office
                    .prompts
                    .extend(self.office.revisions.values().map(|job| job.prompts));
                for role in [Role::Rollout, Role::Hybrid, Role::Agent] {
                    let all = (0..8).map(|index| InstanceId { role, index });
                    self.office.rolling.extend(all);
                }
            }
            self.office.promises = kept;
            return;
        }
        let promised = &self.office.promises;
        let text = format!("promised {promised:?}, the restarted daemon holds to {kept:?}");
        let holds = *promised == kept;
        self.must(holds, "promise", || text);
    }

    /// Gives the controller an input. A request it refuses changes nothing.
    pub(super) fn handle(&mut self, input: Input) {
        if let Input::Role(life, RoleEvent::Exited { .. }) = &input
            && let Some(ended) = self.procs.get_mut(life)
        {
            ended.end_heard = true;
        }
        let asks = matches!(&input, Input::Operator(..));
        let twin = asks.then(|| self.core.clone());
        self.core.handle(self.now, input);
        let Some(mut twin) = twin else { return };
        let mut outputs = Vec::new();
        while let Some(output) = self.core.poll_output() {
            outputs.push(output);
        }
        let refused = outputs
            .iter()
            .any(|o| matches!(o, Output::Reply { result: Err(_), .. }));
        if refused {
            twin.handle(self.now, Input::Timeout);
            let same = twin.state() == self.core.state() && twin.config() == self.core.config();
            let mut others = outputs
                .iter()
                .filter(|o| !matches!(o, Output::Reply { .. }));
            let mut quiet = true;
            while let Some(output) = twin.poll_output() {
                quiet &= others.next() == Some(&output);
            }
            let quiet = quiet && others.next().is_none();
            self.must(same && quiet, "refusal", || {
                format!("a refused request changed something: {outputs:?}")
            });
        }
        self.taken.extend(outputs);
    }
}
