//! What the controller must know of the job; a plain struct so that a simulator can fill it in.
use super::detect::RuleSet;
use crate::core::gang::own_loop::OwnLoop;
use crate::core::recover::budget::Budgets;
use crate::core::roster::nodes::{Labels, NodeSpec};
use crate::ids::Role;
use crate::job::{Job, Moments, seconds};
pub use crate::job::{Mode, Policy};
use crate::phase::Phase;
use std::collections::BTreeMap;
use std::time::Duration;

/// A rollout that missed more versions than this is not worth asking: it pulls first.
const ROUTE_STALENESS: u64 = 2;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// How many batches may be generated beyond the one that is trained on next.
fn ahead(mode: Mode) -> u64 {
    match mode {
        Mode::Sync => 0,
        Mode::SemiSync | Mode::Async => 1,
    }
}

/// Where a role's instances may run and how many there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleSpec {
    /// The pool whose slots they occupy. Roles of one pool share its slots.
    pub pool: String,
    /// The node that must hold all of them; any if none.
    pub node: Option<String>,
    /// Fewest that an operator may ask for.
    pub min: u32,
    /// Most that an operator may ask for.
    pub max: u32,
    /// Instances that must serve before anything is generated; for engines.
    pub n_init: u32,
}

impl RoleSpec {
    fn default_pool(role: Role) -> &'static str {
        match role {
            Role::Trainer | Role::Hybrid => "train",
            Role::Rollout => "rollout",
            Role::Agent => "agent",
        }
    }

    /// What a role has of which nothing is said.
    pub fn of(role: Role) -> Self {
        Self {
            pool: Self::default_pool(role).to_owned(),
            node: None,
            min: 1,
            max: u32::MAX,
            n_init: 1,
        }
    }
}

/// The controller's knowledge of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreConfig {
    /// How generation and training interleave.
    pub mode: Mode,
    /// What a fault may cost.
    pub policy: Policy,
    /// Training steps of the job.
    pub steps: u64,
    /// The trainer's loop, where it is its own: then no batch is the job's.
    pub own_loop: Option<OwnLoop>,
    /// Ranks of the trainer gang.
    pub ranks: u32,
    /// Rollout engines on the trainer's slots: as many as ranks, or none.
    pub hybrids: u32,
    /// Rollout replicas.
    pub rollouts: u32,
    /// Agent workers.
    pub agents: u32,
    /// Trajectories one agent worker may hold at a time.
    pub agent_concurrency: u32,
    /// Prompts (groups) of a batch.
    pub prompts: u32,
    /// Responses to each prompt.
    pub responses: u32,
    /// The share of a batch's finished prompts from which on the ranks have their slots.
    pub switch_at: f64,
    /// Batches generated beyond the next one to train on: 0 in sync mode, else 1.
    pub ahead: u64,
    /// Versions that a trajectory may be older than those its step trains; any number if none.
    pub max_staleness: Option<u64>,
    /// Slots that a place of the rollouts' pool is; a pool's slots are counted in places.
    pub rollout_slots: u32,
    /// Slots that a place of the trainer's pool is.
    pub rank_slots: u32,
    /// Requests an engine is given at a time; more wait for the next one that has room, or else the
    /// first to verify a version would get all that wait for it.
    pub engine_requests: u32,
    /// Pullers a source serves at a time (I-6). The trainer's ranks are one source.
    pub pullers_per_source: u32,
    /// The nodes it begins with, the leader's own first; none: one with just the slots it needs.
    pub nodes: Vec<NodeSpec>,
    /// Pools and bounds of the roles; those of which nothing is said have the default.
    pub roles: BTreeMap<Role, RoleSpec>,
    /// The phases that the job's instances come into.
    pub moments: Moments,
    /// The detection rules in force.
    pub rules: RuleSet,
    /// How long a kill waits for the stacks of the process.
    pub evidence_timeout: Duration,
    /// What each kind of fault may cost in a row before the task restarts.
    pub budgets: Budgets,
    /// Task restarts in a row without a committed step between, before the job fails.
    pub max_task_restarts: u32,
    /// Times in a row that one cause is borne: the last of them restarts the task, one more ends the job;
    /// 0: any number.
    pub same_cause: u32,
    /// Faults of its own from which on a node is cordoned by itself; 0: any number.
    pub cordon_after: u32,
    /// The time after which a fault of a node counts half.
    pub cordon_half_life: Duration,
    /// The seeded bug that is switched on.
    #[cfg(feature = "mutations")]
    pub mutation: Option<super::Mutation>,
    /// The same among several controllers.
    #[cfg(feature = "mutations")]
    pub bug: Option<crate::ha::Bug>,
}

impl Default for CoreConfig {
    fn default() -> Self {
        Self {
            #[cfg(feature = "mutations")]
            mutation: None,
            #[cfg(feature = "mutations")]
            bug: None,
            mode: Mode::Async,
            policy: Policy::Role,
            steps: 10,
            own_loop: None,
            ranks: 2,
            hybrids: 0,
            rollouts: 3,
            agents: 2,
            agent_concurrency: 32,
            prompts: 8,
            responses: 8,
            switch_at: 0.5,
            ahead: 1,
            max_staleness: None,
            rollout_slots: 1,
            rank_slots: 1,
            engine_requests: u32::MAX,
            pullers_per_source: 1,
            nodes: Vec::new(),
            roles: BTreeMap::new(),
            moments: Moments::default(),
            rules: RuleSet::default(),
            evidence_timeout: Duration::from_secs(2),
            budgets: Budgets::default(),
            max_task_restarts: 3,
            same_cause: 3,
            cordon_after: 0,
            cordon_half_life: DAY,
        }
    }
}

impl CoreConfig {
    /// Outside sync mode, how many versions older than those its step trains a rollout may be that
    /// generates for a batch: what would be thrown away in the end is not begun.
    pub fn route_staleness(&self) -> u64 {
        self.max_staleness.unwrap_or(ROUTE_STALENESS)
    }

    /// Where the limit of one cause came from.
    pub fn source_of_same_cause(&self) -> &'static str {
        match self.same_cause == Self::default().same_cause {
            true => "default",
            false => "job file: restart.same_cause",
        }
    }

    /// How many instances of a role the job has.
    pub fn count(&self, role: Role) -> u32 {
        match role {
            Role::Trainer => self.ranks,
            Role::Hybrid => self.hybrids,
            Role::Rollout => self.rollouts,
            Role::Agent => self.agents,
        }
    }

    /// Makes the job have so many instances of a role.
    pub fn set_count(&mut self, role: Role, count: u32) {
        match role {
            Role::Trainer => self.ranks = count,
            Role::Hybrid => self.hybrids = count,
            Role::Rollout => self.rollouts = count,
            Role::Agent => self.agents = count,
        }
    }

    /// The pool whose slots a role occupies.
    pub fn pool(&self, role: Role) -> &str {
        match self.roles.get(&role) {
            Some(spec) => &spec.pool,
            None => RoleSpec::default_pool(role),
        }
    }

    /// The nodes a job begins with.
    pub fn first_nodes(&self) -> Vec<NodeSpec> {
        if !self.nodes.is_empty() {
            return self.nodes.clone();
        }
        let mut pools = BTreeMap::new();
        for role in Role::ALL {
            let slots = pools.entry(self.pool(role).to_owned()).or_insert(0);
            *slots = self.count(role).max(*slots);
        }
        vec![NodeSpec {
            name: "local".to_owned(),
            labels: Labels::default(),
            pools,
        }]
    }

    /// Pool and bounds of a role.
    pub fn role(&self, role: Role) -> RoleSpec {
        let known = self.roles.get(&role);
        known.cloned().unwrap_or_else(|| RoleSpec::of(role))
    }
}

/// What an engine is given at a time: what the job file says of the user's own; of the built-in one a
/// few more than it decodes together, so that it need not wait for the next one.
fn engine_requests(job: &Job) -> u32 {
    let most = job.rollout.max_running;
    match &job.rollout.command {
        Some(command) => command.requests,
        None => most + most.div_ceil(4),
    }
}

/// The nodes of the job file.
fn nodes(job: &Job) -> Vec<NodeSpec> {
    let spec = |node: &crate::job::Node| NodeSpec {
        name: node.name.clone(),
        labels: node.labels.clone(),
        pools: job.places(&node.name, &node.pools),
    };
    job.nodes.iter().map(spec).collect()
}

/// Pools and bounds of the job file.
fn roles(job: &Job) -> BTreeMap<Role, RoleSpec> {
    let spec = |role: Role| {
        let bounds = job.bounds(role);
        let spec = RoleSpec {
            pool: job.pool(role).to_owned(),
            node: job.pin(role).map(str::to_owned),
            min: bounds.min,
            max: bounds.max,
            n_init: bounds.n_init,
        };
        (role, spec)
    };
    Role::ALL.into_iter().map(spec).collect()
}

/// The rules a job file sets. A validated one has no impossible rule.
fn rules(job: &Job) -> RuleSet {
    let mut rules = RuleSet::from_job(&job.detect).unwrap_or_default();
    // The puller has a deadline of its own; this is for when its report is lost.
    let stall = seconds(job.weights.stall_timeout_s * 5.0);
    let from = "5 x weights.stall_timeout_s";
    rules.pull_stall.window.derive(stall, from);
    if let Some(trainer) = &job.trainer.command {
        let from = "trainer.command.watch.silent_s";
        let (at, silent) = (
            (Role::Trainer, Phase::Loop),
            seconds(trainer.watch.silent_s),
        );
        rules.trainer_idle.window.derive_at(at, silent, from);
    }
    if let Some(agent) = &job.agent.command {
        // It links when its program is up, or gives that up by itself.
        let window = &mut rules.attach_overdue.window;
        let all = window.general() + seconds(agent.ready.timeout_s);
        let from = "the default + agent.command.ready.timeout_s";
        window.derive_of(Role::Agent, all, from);
    }
    if let Some(command) = &job.rollout.command {
        for (setting, said, from) in rules.health_probe.said_by(&command.health) {
            said.into_iter()
                .for_each(|value| setting.derive(value, from));
        }
        let from = "rollout.command.poison";
        rules.poison.engines.derive(command.poison, from);
    }
    if let Some(command) = job.rollout.command.as_ref().filter(|_| job.hybrid()) {
        // It goes on when its weights are loaded and verified; who stands still in that is given up by
        // its shim, which knows how long it ever took.
        let window = &mut rules.context_switch.window;
        let all = window.general() + seconds(command.load_s);
        window.derive(all, "the default + rollout.command.load_s");
    }
    rules
}

impl From<&Job> for CoreConfig {
    fn from(job: &Job) -> Self {
        Self {
            mode: job.job.mode,
            policy: job.job.policy,
            steps: job.steps().unwrap_or(u64::MAX),
            own_loop: job.own_loop(),
            ranks: job.trainer.ranks,
            rollouts: job.rollout.replicas,
            agents: job.agent.workers,
            agent_concurrency: job.agent.concurrency,
            prompts: job.batch.prompts,
            responses: job.batch.responses,
            max_staleness: job.batch.max_staleness,
            hybrids: job.count(Role::Hybrid),
            rollout_slots: job.place_slots(&job.rollout.pool),
            rank_slots: job.place_slots(&job.trainer.pool),
            engine_requests: engine_requests(job),
            switch_at: job.job.switching_point(),
            ahead: ahead(job.job.mode),
            pullers_per_source: job.weights.pullers_per_source,
            nodes: nodes(job),
            roles: roles(job),
            moments: Moments::of(job),
            rules: rules(job),
            evidence_timeout: job.detect.evidence(),
            budgets: job.restart.budgets(),
            max_task_restarts: job.restart.max_task_restarts,
            same_cause: job.restart.same_cause,
            cordon_after: job.restart.cordon_after,
            cordon_half_life: seconds(job.restart.cordon_half_life_s),
            #[cfg(feature = "mutations")]
            mutation: None,
            #[cfg(feature = "mutations")]
            bug: None,
        }
    }
}
