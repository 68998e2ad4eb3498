//! A trace on a cluster: the agenda of faults, repairs and machines that come, driving the real controller.
use super::fleet::{Fleet, Place};
use super::losses::{self, Loss, Open};
use super::rows::{Class, TooMany, Trace};
use crate::scale;
use robust_ahead::cluster::{Cluster, Plan};
use robust_shared::core::{CoreConfig, IncidentOutcome, Labels, NodeSpec, Outcome, Policy};
use robust_shared::ids::{IncidentId, NodeId, Role};
use robust_shared::time::Time;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
/// So long before a machine leaves for maintenance it is said: two steps.
pub const NOTICE: Duration = HOUR;
/// A recovery is looked into so long after its fault, in the middle of it.
const LOOK_AFTER: Duration = Duration::from_secs(90);

/// A cluster, and what is asked of it.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Machines of the job, without the leader's own, which never fails.
    pub nodes: u32,
    /// Machines that wait for one of them to fail.
    pub spares: u32,
    /// What a fault costs.
    pub policy: Policy,
    /// How long a machine is away of which the trace does not say it.
    pub repair: Duration,
    /// Decides lengths, and which machine has which name of the trace.
    pub seed: u64,
}

/// What is to be done at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Todo {
    Back(u32),
    Comes(u32),
    Goes(u32),
    Strikes(usize),
    Look,
    Heard,
}

/// A trace under way.
pub struct Run {
    setup: Setup,
    cluster: Cluster,
    fleet: Fleet,
    trace: Trace,
    hosts: Vec<u32>,
    names: Vec<String>,
    agenda: BinaryHeap<Reverse<(Duration, Todo)>>,
    /// What struck a machine of the job, by machine, oldest first.
    struck: BTreeMap<String, Vec<(Time, usize)>>,
    /// How long those that will leave are to be away.
    leaving: BTreeMap<u32, Duration>,
    counted: Counted,
    broken: Option<String>,
    checks: u64,
}

/// What became of the trace's faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// That met a machine of the job.
    pub of_the_job: u64,
    /// That met a spare machine.
    pub spare: u64,
    /// That met one that was away already.
    pub away: u64,
}

/// Restarts, by what they took along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restarts {
    /// Everything.
    pub task: u64,
    /// The trainer's gang.
    pub trainer: u64,
    /// One engine.
    pub rollout: u64,
    /// One agent worker.
    pub agent: u64,
}

/// The figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// `role`, `task`.
    pub policy: &'static str,
    /// Days of virtual time that were run.
    pub days: f64,
    /// Why the job ended before the trace did.
    pub ended: Option<String>,
    /// Steps committed.
    pub steps: u64,
    /// Effective training time ratio.
    pub ettr: f64,
    /// The same less the work done twice.
    pub goodput: f64,
    /// Hours that did not count, by the trace's causes.
    pub lost_by_cause: Vec<Loss>,
    /// The same by what the ledger calls them.
    pub lost_by_kind: Vec<Loss>,
    /// What became of the faults.
    pub faults: Counted,
    /// Restarts.
    pub restarts: Restarts,
    /// Times a spare machine took a place of the job.
    pub spares_used: u64,
    /// The most places of the job that were empty at once.
    pub most_missing: u32,
    /// Machine-hours of places that were empty.
    pub missing_h: f64,
    /// Inputs that the controller took.
    pub inputs: u64,
    /// Times all its derived state was compared with a fresh derivation.
    pub checks: u64,
    /// What broke of the invariants, if anything did.
    pub broken: Option<String>,
    /// Digest of everything it decided.
    pub digest: u64,
}

impl Setup {
    /// Machines that train.
    fn ranks(self) -> u32 {
        let fifth = self.nodes / 5;
        match fifth {
            0 => 1,
            // A multiple of 8 divides a batch of any number of prompts.
            n => (n - n % 8).max(n.min(8)),
        }
    }

    fn config(self, names: &[String]) -> CoreConfig {
        let ranks = self.ranks();
        let nodes = names.iter().take(self.nodes as usize).zip(0..);
        let nodes = nodes.map(|(name, number)| {
            let pool = if number < ranks { "train" } else { "rollout" };
            spec(name, pool)
        });
        let head = NodeSpec {
            name: scale::HEAD.to_owned(),
            labels: Labels::default(),
            pools: [("agent".to_owned(), scale::agents(self.nodes))].into(),
        };
        let base = scale::config(
            self.nodes,
            ranks,
            std::iter::once(head).chain(nodes).collect(),
        );
        // Of a process that hangs there are samples, so the rules that live of them are in force.
        let ours = robust_shared::core::RuleSet::default();
        let rules = base.rules.clone().with(|r| {
            r.rollout_silent = ours.rollout_silent.clone();
            r.trainer_idle = ours.trainer_idle.clone();
        });
        CoreConfig {
            policy: self.policy,
            rules,
            // Where a job gives up after so many restarts, an operator starts it again: a trace goes on.
            max_task_restarts: u32::MAX - 1,
            same_cause: 0,
            ..base
        }
    }

    /// Starts the job, on machines that are all there.
    pub fn start(self, trace: Trace) -> Result<Run, TooMany> {
        let machines = self.nodes + self.spares;
        let hosts = trace.number(machines, self.seed)?;
        let mut names: Vec<String> = (0..machines).map(|n| format!("machine-{n}")).collect();
        for (fault, host) in trace.faults().iter().zip(&hosts) {
            if fault.node.parse::<u32>().is_err() {
                names[*host as usize].clone_from(&fault.node);
            }
        }
        let config = self.config(&names);
        let fleet = Fleet::new(config.ranks, config.rollouts, self.spares);
        let strikes = trace.faults().iter().zip(0..);
        let agenda = strikes.map(|(fault, at)| Reverse((fault.at, Todo::Strikes(at))));
        let agenda = agenda.chain([Reverse((DAY, Todo::Heard))]);
        Ok(Run {
            setup: self,
            agenda: agenda.collect(),
            cluster: Cluster::new(Plan {
                config,
                timing: scale::TIMING,
                seed: self.seed,
                samples: Duration::ZERO,
                beats: Duration::ZERO,
                journal: false,
                records: true,
                guard: true,
            }),
            fleet,
            trace,
            hosts,
            names,
            struck: BTreeMap::new(),
            leaving: BTreeMap::new(),
            counted: Counted::default(),
            broken: None,
            checks: 0,
        })
    }
}

fn spec(name: &str, pool: &str) -> NodeSpec {
    NodeSpec {
        name: name.to_owned(),
        labels: Labels::default(),
        pools: [(pool.to_owned(), 1)].into(),
    }
}

impl Run {
    /// Goes on to that virtual time, or to the job's end, or until an invariant breaks.
    pub fn run_until(&mut self, until: Duration) {
        while let Some(Reverse((at, todo))) = self.agenda.peek().copied()
            && at <= until
            && self.goes_on()
        {
            self.agenda.pop();
            self.cluster.run_until(at);
            if self.cluster.outcome().is_none() {
                self.act(at, todo);
            }
        }
        if self.goes_on() {
            self.cluster.run_until(until);
            self.look();
        }
    }

    /// Every incident, oldest first.
    pub fn incidents(&self) -> impl Iterator<Item = &robust_shared::core::Incident> {
        self.cluster.incidents()
    }

    /// Whether there is more to come.
    pub fn goes_on(&self) -> bool {
        self.cluster.outcome().is_none() && self.broken.is_none()
    }

    fn act(&mut self, now: Duration, todo: Todo) {
        match todo {
            Todo::Strikes(at) => self.strikes(now, at),
            Todo::Back(host) => drop(self.fleet.is_back(host, now)),
            Todo::Comes(host) => self.comes(now, host),
            Todo::Goes(host) => {
                let due = matches!(self.fleet.place(host), Place::Leaves(_, at) if at == now);
                if due && let Some(node) = self.node(host) {
                    // Of what is left there the end is the maintenance's doing.
                    self.cluster.machine_dies(node, "its maintenance begins");
                    let repair = self.leaving.remove(&host);
                    let repair = repair.unwrap_or(self.setup.repair);
                    self.goes(now, host, repair);
                }
            }
            Todo::Look => self.look(),
            Todo::Heard => {
                self.cluster.machines_are_heard();
                self.plan(now + DAY, Todo::Heard);
            }
        }
        self.fill(now);
    }

    fn node(&self, host: u32) -> Option<NodeId> {
        self.cluster.core().node_id(&self.names[host as usize])
    }

    /// A machine will leave in a while, and be away for so long.
    fn will_leave(&mut self, now: Duration, host: u32, why: &str, repair: Duration) {
        if let Some(node) = self.node(host) {
            self.cluster.machine_will_leave(node, why);
            self.fleet.leaves(host, now + NOTICE);
            self.leaving.insert(host, repair);
            self.plan(now + NOTICE, Todo::Goes(host));
        }
    }

    fn strikes(&mut self, now: Duration, at: usize) {
        let (host, fault) = (self.hosts[at], &self.trace.faults()[at]);
        let (class, cause) = (fault.class, fault.cause.clone());
        let repair = fault.repair.unwrap_or(self.setup.repair);
        let place = self.fleet.place(host);
        let of_job = matches!(place, Place::Job(_) | Place::Leaves(..));
        match place {
            Place::Job(_) | Place::Leaves(..) => self.counted.of_the_job += 1,
            Place::Spare | Place::Comes(..) => self.counted.spare += 1,
            Place::Away(_) => self.counted.away += 1,
        }
        let Some(node) = self.node(host).filter(|_| of_job) else {
            // A process that fails where none runs is nothing; a machine is away all the same.
            if class.takes_the_machine() {
                self.goes(now, host, repair);
            }
            return;
        };
        let name = self.names[host as usize].clone();
        let when = self.cluster.now();
        self.struck.entry(name).or_default().push((when, at));
        match class {
            Class::Node => {
                self.cluster.machine_dies(node, &cause);
                self.goes(now, host, repair);
            }
            Class::Process => drop(self.cluster.lose_processes_of(node)),
            Class::Hang => drop(self.cluster.hang_processes_of(node)),
            Class::Maintenance => self.will_leave(now, host, &cause, repair),
        }
        self.plan(now + LOOK_AFTER, Todo::Look);
    }

    fn goes(&mut self, now: Duration, host: u32, repair: Duration) {
        self.fleet.goes(host, now, now + repair);
        self.plan(now + repair, Todo::Back(host));
    }

    fn comes(&mut self, now: Duration, host: u32) {
        let Some(pool) = self.fleet.comes(host, now) else {
            return;
        };
        let name = self.names[host as usize].clone();
        self.cluster.join(spec(&name, pool.name()));
    }

    fn fill(&mut self, now: Duration) {
        let at = now + scale::TIMING.machine + scale::TIMING.container;
        while let Some(host) = self.fleet.fill(at) {
            self.plan(at, Todo::Comes(host));
        }
    }

    fn plan(&mut self, at: Duration, todo: Todo) {
        self.agenda.push(Reverse((at, todo)));
    }

    /// Holds what is derived against a fresh derivation.
    fn look(&mut self) {
        self.checks += 1;
        let broken = self.cluster.broken().map(str::to_owned);
        let index = self.cluster.core().check().err();
        self.broken = broken.or(index.map(|e| format!("the controller's indexes: {e}")));
    }

    /// The figures so far.
    pub fn summary(&self) -> Summary {
        let cluster = &self.cluster;
        let (ettr, goodput) = robust_shared::ettr::totals(cluster.intervals());
        let now = cluster.elapsed();
        let (most_missing, missing_h) = self.fleet.shortage(now);
        Summary {
            policy: match self.setup.policy {
                Policy::Role => "role",
                Policy::Task => "task",
            },
            days: now.as_secs_f64() / DAY.as_secs_f64(),
            ended: match cluster.outcome() {
                None => None,
                Some(Outcome::Failed { reason }) => Some(reason.clone()),
                Some(other) => Some(format!("{other:?}")),
            },
            steps: cluster.core().state().committed().0,
            ettr,
            goodput,
            lost_by_cause: losses::by_cause(cluster.intervals(), &self.open()),
            lost_by_kind: losses::by_kind(cluster.intervals()),
            faults: self.counted,
            restarts: self.restarts(),
            spares_used: self.fleet.joined(),
            most_missing,
            missing_h,
            inputs: cluster.inputs(),
            checks: self.checks,
            broken: self.broken.clone(),
            digest: cluster.digest(),
        }
    }

    fn restarts(&self) -> Restarts {
        let mut restarts = Restarts::default();
        for incident in self.cluster.incidents().filter(|i| i.under.is_none()) {
            let of = match incident.who.role {
                _ if incident.plan.contains("whole task") => &mut restarts.task,
                Role::Trainer | Role::Hybrid => &mut restarts.trainer,
                Role::Rollout => &mut restarts.rollout,
                Role::Agent => &mut restarts.agent,
            };
            *of += 1;
        }
        restarts
    }

    /// When each incident was open, and what of the trace it came of.
    fn open(&self) -> Vec<Open> {
        let now = self.cluster.now();
        let mut causes: BTreeMap<IncidentId, String> = BTreeMap::new();
        let mut open = Vec::new();
        for incident in self.cluster.incidents() {
            let own = self.cause_of(incident);
            let above = incident.under.and_then(|id| causes.get(&id).cloned());
            let cause = above.or(own).unwrap_or_else(|| incident.rule.clone());
            causes.insert(incident.id, cause.clone());
            let whole = incident.plan.contains("whole task");
            let over = incident.outcome != IncidentOutcome::Recovering;
            open.push(Open {
                // Work is thrown away at the verdict, before which it counted.
                from: incident.verdict,
                to: incident.resumed.filter(|_| over).unwrap_or(now),
                stops: whole || incident.who.role == Role::Trainer,
                cause,
            });
        }
        open
    }

    /// What struck its machine last before it was judged.
    fn cause_of(&self, incident: &robust_shared::core::Incident) -> Option<String> {
        let node = self.cluster.node_of(incident.incarnation)?;
        let struck = self.struck.get(&self.cluster.core().node(node)?.name)?;
        let last = struck.iter().rev().find(|(at, _)| *at <= incident.verdict);
        let (_, at) = last?;
        Some(self.trace.faults().get(*at)?.cause.clone())
    }
}
