//! A world around a copy of a controller that is at work ([`robust_shared::core::Core::ahead`]): everybody is where the
//! controller knows them to be, every call, pull, start and request under way goes on, and from then on every order
//! takes what [`super::Timing`] says. What an operator asks for is asked of the copy, and faults of his strike here.
use super::processes::Process;
use super::work::{Progress, Request};
use super::{Cluster, Event, Plan};
use robust_shared::core::{
    Ahead, Core, Exit, Input, LifeAhead, Output, Record, Refusal, Reply, RequestAhead, RoleEvent,
    Seen, StartAhead,
};
use robust_shared::fault::Fault;
use robust_shared::ids::{Incarnation, InstanceId, TrajectoryId};
use robust_shared::phase::Phase;
use robust_shared::time::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A process whose link broke links again.
const LINKS_AGAIN: Duration = Duration::from_secs(1);
/// Stacks and states of a process are taken.
const EVIDENCE: Duration = Duration::from_millis(200);
/// An engine that was asked to end before the copy was taken.
const GOODBYE: Duration = Duration::from_secs(1);
/// Between two looks whether all is whole.
const LOOKS: Duration = Duration::from_millis(20);

/// What a copy that is run ahead has done so far.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    replies: BTreeMap<u64, Result<Reply, Refusal>>,
    /// Places whose processes were started, in order and as often as they were.
    pub started: Vec<InstanceId>,
    /// Requests that engines broke off: they go on elsewhere.
    pub moved: u64,
    /// Trajectories that were handed out again.
    pub again: u64,
    /// Trajectories whose work was thrown away.
    pub thrown_away: u64,
    /// Trajectories that were set aside.
    pub set_aside: u64,
}

impl Cluster {
    /// A world around a copy, which goes on at this time.
    pub fn taken_over(plan: Plan, ahead: Ahead, now: Time) -> Self {
        let Ahead {
            core,
            lives,
            leaving,
            nodes,
            call,
            requests,
            leases,
        } = ahead;
        let mut world = Self::around(plan, core, now);
        world.heard = Some(Box::default());
        world.machines = nodes;
        world.serial = requests.iter().map(|r| r.ticket).max().unwrap_or(0);
        for life in &lives {
            world.take_over(life);
        }
        for life in leaving {
            let ended = RoleEvent::Exited {
                at: None,
                exit: Exit::Code(0),
                detail: String::new(),
            };
            world.hears_after(GOODBYE, life, ended);
        }
        if let Some((call, called_at)) = call {
            world.resume_call(call, called_at);
        }
        world.take_over_requests(&requests, &leases);
        world.begin_to_sample();
        world.feed(Input::Timeout);
        world
    }

    /// Asks the copy for something; none: it gave no answer.
    pub fn request(
        &mut self,
        wish: robust_shared::core::Request,
    ) -> Option<Result<Reply, Refusal>> {
        self.serial += 1;
        let ticket = self.serial;
        self.feed(Input::Operator(ticket, wish));
        self.heard.as_mut()?.replies.remove(&ticket)
    }

    /// What it has done so far; none where it is no copy.
    pub fn heard(&self) -> Option<&Heard> {
        self.heard.as_deref()
    }

    /// Runs until nothing is on the way any more, and this holds; says when. None: not by `latest`, or not with so
    /// many inputs, or the job ended.
    pub fn run_until_whole(
        &mut self,
        latest: Time,
        most: u64,
        holds: impl Fn(&Core) -> bool,
    ) -> Option<Time> {
        let mut looked: Option<Time> = None;
        while self.outcome.is_none() && self.inputs < most {
            let next = self.next_at();
            let waits = next.is_none_or(|next| next.since(self.now) >= LOOKS);
            if waits || looked.is_none_or(|at| self.now.since(at) >= LOOKS) {
                looked = Some(self.now);
                if self.core.is_whole() && holds(&self.core) && self.all_is_known() {
                    return Some(self.now);
                }
            }
            match next {
                Some(next) if next <= latest => self.step(),
                _ => {
                    self.now = self.now.max(latest);
                    return None;
                }
            }
        }
        None
    }

    /// Runs to this time. Whether it came there with so many inputs, and before the job ended.
    pub fn run_to(&mut self, at: Time, most: u64) -> bool {
        while self.outcome.is_none() && self.inputs < most {
            match self.next_at() {
                Some(next) if next <= at => self.step(),
                _ => {
                    self.now = self.now.max(at);
                    return true;
                }
            }
        }
        false
    }

    /// Whether the controller has heard of whoever came to harm.
    fn all_is_known(&self) -> bool {
        let known = |life: Incarnation| self.core.is_current(life).is_none();
        let mut lives = self.lives.values();
        lives.all(|life| self.works(*life) || known(*life))
    }

    fn hears_after(&mut self, delay: Duration, life: Incarnation, event: RoleEvent) {
        self.after(delay, Event::Feed(Box::new(Input::Role(life, event))));
    }

    fn take_over(&mut self, life: &LifeAhead) {
        let (id, incarnation) = (life.id, life.incarnation);
        let place = usize::try_from(incarnation.0).unwrap_or(0);
        if self.processes.len() <= place {
            self.processes.resize(place + 1, None);
        }
        self.processes[place] = Some(Process {
            incarnation,
            id,
            node: life.node,
            alive: self.machine_lives(life.node),
            linked: matches!(life.start, StartAhead::Linked | StartAhead::Unlinked),
            phase: life.phase,
            requests: 0,
            waiting: VecDeque::new(),
            paused: life.paused,
            hangs: false,
            tokens: life.sample.tokens_total,
            busy: life.sample.busy,
        });
        self.lives.insert((id.role, id.index), incarnation);
        match life.start {
            StartAhead::Ordered => {
                let pid = u32::try_from(incarnation.0).unwrap_or(u32::MAX);
                self.hears_after(Duration::ZERO, incarnation, RoleEvent::Spawned { pid });
                self.after(Duration::ZERO, Event::Begin(incarnation));
            }
            StartAhead::Since(at) => {
                let age = self.now.since(at);
                let left = self.start_of(id.role).saturating_sub(age);
                self.after(left, Event::Link(incarnation));
            }
            StartAhead::Linked => {}
            StartAhead::Unlinked => {
                let hello = life.hello.clone();
                self.hears_after(LINKS_AGAIN, incarnation, RoleEvent::Attached { hello });
            }
        }
        if let Some((order, since)) = life.pull {
            let left = self.plan.timing.pull.saturating_sub(self.now.since(since));
            self.pulls.insert(incarnation, order);
            self.after(left, Event::PullEnds(incarnation, order.version.0));
        }
        if let Some(paused) = life.switching {
            let takes = self.plan.timing.switch;
            self.after(takes, Event::Switched(incarnation, paused));
        }
    }

    /// Nobody knows how far conversations and turns have come: they are taken to be evenly far.
    fn take_over_requests(
        &mut self,
        requests: &[RequestAhead],
        leases: &[(TrajectoryId, Incarnation)],
    ) {
        let asked = requests.iter().filter_map(|r| r.lease);
        let asked: BTreeSet<TrajectoryId> = asked.map(|(_, id)| id).collect();
        let all = u64::from(self.plan.timing.turns);
        for (at, (trajectory, agent)) in leases.iter().enumerate() {
            let done = all * at as u64 / leases.len() as u64;
            let progress = Progress {
                turns: u32::try_from(done).unwrap_or(0),
                generated: Duration::ZERO,
            };
            self.progress.insert(*trajectory, progress);
            if !asked.contains(trajectory) {
                let tool = self.plan.timing.tool;
                self.after(tool, Event::Turn(*agent, *trajectory));
            }
        }
        for (at, request) in requests.iter().enumerate() {
            let left = (at + 1) as f64 / (requests.len() + 1) as f64;
            self.take_over_request(request, left);
        }
    }

    /// `left`: the part of its turn that is still to be generated.
    fn take_over_request(&mut self, request: &RequestAhead, left: f64) {
        let (ticket, serves) = (request.ticket, request.rollout);
        let Some((agent, trajectory)) = request.lease else {
            if serves.is_some() {
                self.client_leaves(ticket, left);
            }
            return;
        };
        let began = serves.map(|_| self.now);
        let rollout = serves.unwrap_or_default();
        self.requests.insert(
            ticket,
            Request {
                agent,
                trajectory,
                rollout,
                began,
            },
        );
        if serves.is_none() {
            return;
        }
        let turn = self.turn_of(trajectory);
        let left = turn.mul_f64(left);
        let progress = self.progress.entry(trajectory).or_default();
        progress.generated = turn.saturating_sub(left);
        self.after(left, Event::TurnEnds(ticket));
        if let Some(process) = self.process_mut(rollout) {
            process.requests += 1;
            process.phase = Phase::Generating;
        }
    }

    /// A client of the router is served as long as a turn takes. Nobody comes after it.
    pub(super) fn serve_client(&mut self, ticket: u64) {
        if self.heard.is_some() {
            self.client_leaves(ticket, 1.0);
        }
    }

    fn client_leaves(&mut self, ticket: u64, left: f64) {
        let timing = &self.plan.timing;
        let turn = timing.conversation.median / timing.turns.max(1);
        let released = Input::RouteReleased {
            ticket,
            broken: false,
        };
        self.after(turn.mul_f64(left), Event::Feed(Box::new(released)));
    }

    /// Engines broke so many requests off.
    pub(super) fn hear_broken(&mut self, requests: usize) {
        if let Some(heard) = &mut self.heard {
            heard.moved += requests as u64;
        }
    }

    /// Notes what the copy does, and lets faults that it was asked for strike.
    pub(super) fn hear(&mut self, output: &Output) {
        let Some(heard) = &mut self.heard else {
            return;
        };
        match output {
            Output::Reply { ticket, result } => {
                heard.replies.insert(*ticket, result.clone());
            }
            Output::Spawn { id, .. } => heard.started.push(*id),
            Output::Dispatch { lease, .. } if *lease > 1 => heard.again += 1,
            Output::Record(Record::Discarded { trajectories }) => {
                heard.thrown_away += trajectories.len() as u64;
            }
            Output::Record(Record::SetAside { .. }) => heard.set_aside += 1,
            _ => {}
        }
        self.endure(output);
    }

    fn endure(&mut self, output: &Output) {
        match output {
            Output::Strike { incarnation, fault } => self.endure_fault(*incarnation, fault),
            Output::Carry {
                incarnation,
                number,
                fault,
                ..
            } => {
                let struck = RoleEvent::FaultStruck {
                    number: *number,
                    refused: None,
                };
                self.hears_after(Duration::ZERO, *incarnation, struck);
                self.endure_fault(*incarnation, fault);
            }
            Output::Afflict {
                node,
                fault: Fault::LoseNode { .. },
            } => {
                self.machine_dies(*node, "a fault was injected");
            }
            Output::CollectEvidence { incarnation, .. } => {
                let evidence = RoleEvent::Evidence {
                    text: String::new(),
                    seen: Seen::default(),
                };
                self.hears_after(EVIDENCE, *incarnation, evidence);
            }
            _ => {}
        }
    }

    /// The process ends, or hangs; of other faults nobody can say here what comes of them.
    fn endure_fault(&mut self, life: Incarnation, fault: &Fault) {
        match fault {
            Fault::Kill
            | Fault::Exit { .. }
            | Fault::Oom
            | Fault::LoseSlot
            | Fault::KillEngineChild
            | Fault::KillEngineLeader => self.end(life, true),
            Fault::Hang | Fault::HangEngine => {
                if let Some(process) = self.process_mut(life) {
                    process.hangs = true;
                }
                self.requests_hang(life);
            }
            _ => {}
        }
    }
}
