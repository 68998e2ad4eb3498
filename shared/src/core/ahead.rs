//! A copy of the controller to be run ahead, with what goes on outside of it at that moment: whoever plays the
//! world for the copy goes on from there. The controller itself is looked at, and left as it is.
use super::config::CoreConfig;
use super::detect::node_lost;
use super::output::Output;
use super::state::JobState;
use crate::core::roster::instance::{Instance, Life};
use crate::core::roster::nodes::NodeState;
use crate::core::work::routes::Asker;
use crate::core::{Core, Hello, Incident, PullOrder, RULES, Rule, Sample};
use crate::ids::{Incarnation, InstanceId, NodeId, Role, TrajectoryId};
use crate::phase::Phase;
use crate::time::Time;
use std::time::Duration;

/// Whether a rule judges by a time that passed. In a world without a second fault nobody is silent, so such rules are off
/// unless they are what is to find the fault.
fn judges_by_time(rule: &Rule) -> bool {
    // Nodes have timers of their own, beside those of the rules' watches.
    rule.watch.is_some() || *rule == node_lost::RULE
}

/// A copy, and what goes on outside of it.
#[derive(Clone, Debug)]
pub struct Ahead {
    /// The copy. It has nothing left to do of what it decided before.
    pub core: Core,
    /// Processes that run or are being started, in the order of their places.
    pub lives: Vec<LifeAhead>,
    /// Engines that were asked to end on a slot that its rank waits for.
    pub leaving: Vec<Incarnation>,
    /// Whether each node is there, in the order of their numbers.
    pub nodes: Vec<bool>,
    /// The call to the gang under way, and since when.
    pub call: Option<(Output, Time)>,
    /// Requests for engines, those that wait among them, in the order of their numbers.
    pub requests: Vec<RequestAhead>,
    /// What is leased, and to whom.
    pub leases: Vec<(TrajectoryId, Incarnation)>,
}

/// A process.
#[derive(Clone, Debug)]
pub struct LifeAhead {
    /// Its place.
    pub id: InstanceId,
    /// Which life.
    pub incarnation: Incarnation,
    /// Where it runs.
    pub node: NodeId,
    /// How far its start has come.
    pub start: StartAhead,
    /// What it is doing.
    pub phase: Phase,
    /// Its last sample.
    pub sample: Sample,
    /// What it says when it links again, where its link broke.
    pub hello: Hello,
    /// What it was told to pull, and when.
    pub pull: Option<(PullOrder, Time)>,
    /// Of a hybrid engine: it computes nothing.
    pub paused: bool,
    /// Of a hybrid engine: it was told to pause, or to go on, and did not answer yet.
    pub switching: Option<bool>,
}

/// How far the start of a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAhead {
    /// It is to be started.
    Ordered,
    /// It was started then, or told to.
    Since(Time),
    /// It is linked.
    Linked,
    /// Its link broke.
    Unlinked,
}

/// A request for an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestAhead {
    /// Its number.
    pub ticket: u64,
    /// The agent worker and what it generates for; none: a client of the router.
    pub lease: Option<(Incarnation, TrajectoryId)>,
    /// Who serves it; none: it waits.
    pub rollout: Option<Incarnation>,
}

impl Core {
    /// A copy to be run ahead. Of the rules that judge by a time that passed only those named are in force.
    pub fn ahead(&self, hunting: &[&str]) -> Ahead {
        let mut core = self.clone();
        core.out.clear();
        core.config.rules = core.config.rules.clone().with(|rules| {
            let off = |rule: &Rule| judges_by_time(rule) && !hunting.contains(&rule.name);
            for rule in RULES.iter().copied().filter(|rule| off(rule)) {
                rules.switch_off(rule);
            }
        });
        let called_at = core.s.gang.called_at();
        let call = match core.s.gang.is_called() {
            true => {
                core.call_gang();
                core.out.pop().map(|call| (call, called_at))
            }
            false => None,
        };
        let requests = self.s.work.rollouts.table().all().into_iter();
        let requests = requests.map(|(ticket, asked)| RequestAhead {
            ticket,
            lease: match asked.asker {
                Asker::Agent { agent, trajectory } => Some((agent, trajectory)),
                Asker::Client { .. } => None,
            },
            rollout: asked.rollout,
        });
        let instances = self.s.roster.instances();
        let nodes = self.s.roster.nodes().iter();
        Ahead {
            lives: instances.iter().filter_map(|i| self.life(i)).collect(),
            leaving: instances
                .iter()
                .filter_map(|i| i.leaving().map(|(life, _)| life))
                .collect(),
            nodes: nodes.map(|n| n.state == NodeState::Here).collect(),
            call,
            requests: requests.collect(),
            leases: self.leases(),
            core,
        }
    }

    fn life(&self, i: &Instance) -> Option<LifeAhead> {
        let start = match i.life() {
            Life::None | Life::Waiting { .. } | Life::Homeless => return None,
            Life::Spawning { .. } => StartAhead::Ordered,
            // The phase of one that has not linked is that of its start.
            Life::Starting { .. } => StartAhead::Since(i.phase_since()),
            Life::Attached => StartAhead::Linked,
            Life::Unlinked { .. } => StartAhead::Unlinked,
        };
        let turn = i.turn();
        let switching = [true, false].into_iter().find(|to| turn.awaits(*to));
        let pull = self.s.weights.of(i.id()).pull();
        Some(LifeAhead {
            id: i.id(),
            incarnation: i.incarnation(),
            node: i.slot().map_or(NodeId::LEADER, |slot| slot.node),
            start,
            phase: i.phase(),
            sample: *i.sample(),
            hello: match start {
                StartAhead::Unlinked => self.hello(i),
                _ => Hello::default(),
            },
            pull: pull.map(|pull| (PullOrder::of(pull), pull.since)),
            paused: i.phase() == Phase::Paused,
            switching,
        })
    }

    fn hello(&self, i: &Instance) -> Hello {
        let held = self.leases().into_iter();
        let held = held.filter(|(_, agent)| *agent == i.incarnation());
        Hello {
            version: match i.id().role {
                Role::Trainer => self.s.gang.serves(),
                Role::Hybrid | Role::Rollout => self.s.weights.of(i.id()).version(),
                Role::Agent => None,
            },
            step: self.s.gang.is_restored().then_some(self.s.committed),
            leases: held.map(|(id, _)| id).collect(),
            ..Hello::default()
        }
    }

    /// Whether nothing is on the way: nobody recovers, nothing that was asked for is left to be done, and
    /// whoever has a slot is at work.
    pub fn is_whole(&self) -> bool {
        let s = &self.s;
        let asked = s.orders.planned().is_some() || !s.orders.rolling().is_empty();
        // What a loop of its own publishes, and when, is its own affair.
        let serves = self.config.own_loop.is_some() || s.gang.serves_step(s.committed);
        let up = s.gang.is_restored() && serves;
        s.job == JobState::Running
            && !asked
            && up
            && s.recover.recoveries().is_empty()
            && s.roster.instances().iter().all(|i| self.is_at_work(i))
    }

    fn is_at_work(&self, i: &Instance) -> bool {
        match i.life() {
            // Nobody knows when a slot comes, or whether one does.
            Life::None | Life::Homeless => true,
            Life::Waiting { .. }
            | Life::Spawning { .. }
            | Life::Starting { .. }
            | Life::Unlinked { .. } => false,
            Life::Attached => {
                let serves = i.id().role != Role::Rollout
                    || i.quarantined()
                    || self.s.weights.of(i.id()).is_admitted();
                serves && i.condemned().is_none() && !i.going()
            }
        }
    }

    /// Places for which there is no slot.
    pub fn homeless(&self) -> Vec<InstanceId> {
        let all = self.s.roster.instances().iter();
        let homeless = all.filter(|i| i.life() == Life::Homeless);
        homeless.map(Instance::id).collect()
    }

    /// The last incidents, oldest first.
    pub fn incidents(&self) -> impl DoubleEndedIterator<Item = &Incident> {
        self.s.recover.incidents().iter()
    }

    /// The median of how long instances of a role were in a phase; none where none was seen to leave it.
    pub fn usual(&self, role: Role, phase: Phase) -> Option<Duration> {
        self.s.durations.get(role, phase)?.median()
    }

    /// Trajectories of a step.
    pub fn batch_size(&self) -> u64 {
        let CoreConfig {
            prompts, responses, ..
        } = self.config;
        u64::from(prompts) * u64::from(responses)
    }

    /// Wall time between the last two commits; none before there were two.
    pub fn step_duration(&self) -> Option<Duration> {
        Some(self.s.step_duration).filter(|took| !took.is_zero())
    }

    /// Steps that were lost under way so far.
    pub fn steps_repeated(&self) -> u64 {
        self.s.ledger.figures(self.now).steps_repeated
    }
}
