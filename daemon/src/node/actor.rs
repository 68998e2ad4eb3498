//! The node's own small state: what runs here, and whether somebody leads.
use super::exchange::Exchange;
use super::held::Held;
use super::memory::{Memory, MemoryError, Started};
use super::puts::Puts;
use super::spares::Spares;
use super::starting::{Gate, Start, Starting};
use super::{EarlierTerm, LinkEvent, NodeConfig, NodeEnd, NodeError, Standing, Upstream};
use crate::grouping::{Grouping, GroupingError, role_life};
use crate::launcher::{self, Afflictions, LaunchEvent, Launcher, Looks, Running};
use crate::nodes::JobToken;
use crate::state::{StateDir, give_back};
use crate::telemetry::{Samples, Telemetry};
use crate::worker::{WorkerPlan, WorkerProgram};
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::{self, role_exited};
use robust_shared::core::Exit;
use robust_shared::ids::Incarnation;
use robust_shared::job::{Job, NoSuchDevice, SeenDevices, SlotDevices};
use robust_tree::Groups;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// How long roles outlive their leader until a job says otherwise.
const GRACE: Duration = Duration::from_secs(60);
/// How long a leader waits for what is being started: for less than a node may be away.
const STARTS: Duration = Duration::from_secs(2);
/// What the leader is told of a signal.
const ASKED: &str = "its daemon was asked to end";

/// Everything the node waits for.
#[derive(Debug)]
pub(super) enum Event {
    /// From the launcher.
    Launch(LaunchEvent),
    /// Something is started, or is not.
    Start(Start),
    /// From the telemetry.
    Samples(Samples),
    /// From the link.
    Link(LinkEvent),
    /// Evidence was taken.
    Evidence(Incarnation, launcher::Evidence),
    /// A second passed.
    Tick,
    /// A signal asked for the end.
    Stop(NodeEnd),
}

/// Why a node starts no role: it lacks what the job wants of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lacking {
    /// A device.
    #[error(transparent)]
    Device(#[from] NoSuchDevice),
    /// Control groups.
    #[error(transparent)]
    Groups(#[from] GroupingError),
}

/// How a node starts to sample; deferred until a job says how often.
pub(super) type StartTelemetry = Box<dyn FnOnce(Duration) -> std::io::Result<Telemetry> + Send>;

/// A leader's greeting, its life of the job and its term, and when it came; it is answered when nothing of another job
/// runs here, and nothing is being started, or a start hangs.
type Greeted = (
    (String, u64),
    oneshot::Sender<Result<Standing, EarlierTerm>>,
    Instant,
);

/// See the module's doc.
pub(super) struct Actor {
    pub(super) state: StateDir,
    pub(super) config: Arc<NodeConfig>,
    pub(super) program: WorkerProgram,
    pub(super) launcher: Launcher,
    groups: Groups,
    pub(super) afflictions: Afflictions,
    /// The job's revision that was written last, if one was.
    pub(super) revision: Option<u32>,
    start_telemetry: Option<StartTelemetry>,
    pub(super) telemetry: Option<Telemetry>,
    pub(super) memory: Memory,
    /// How roles are started; without what the job wants of this node none are.
    pub(super) plan: Option<Result<WorkerPlan, Lacking>>,
    /// The devices that there are.
    seen_devices: SeenDevices,
    pub(super) up: Option<mpsc::UnboundedSender<v1::NodeMessage>>,
    pub(super) upstream: watch::Sender<Option<Upstream>>,
    /// Copies of other nodes' shards.
    pub(super) held: Held,
    pub(super) exchange: Exchange,
    pub(super) puts: Puts,
    pub(super) spares: Spares,
    pub(super) starting: Starting,
    /// Passed by who starts something.
    pub(super) gate: Gate,
    pub(super) starts: mpsc::UnboundedSender<Start>,
    pub(super) evidence: mpsc::UnboundedSender<(Incarnation, launcher::Evidence)>,
    /// Looks at what its processes do, for operators.
    pub(super) looks: Looks,
    /// Ends that no leader was told of, and those told to one that has not answered yet.
    ended: Vec<v1::RoleExited>,
    told: Vec<v1::RoleExited>,
    /// A leader that waits for roles of another run to end, and for starts to come to their end.
    greeted: Option<Greeted>,
    advertise: Option<IpAddr>,
    grace: Duration,
    away_since: Option<Instant>,
    joined_once: bool,
    leaving: Option<Leaving>,
}

/// How a node goes.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    end: NodeEnd,
    /// Until when its roles may move elsewhere; none: they were ended.
    moves_until: Option<Instant>,
    /// When it ends whatever is.
    latest: Instant,
}

/// What an actor is made of.
pub(super) struct ActorParts {
    pub state: StateDir,
    pub config: Arc<NodeConfig>,
    pub program: WorkerProgram,
    pub launcher: Launcher,
    pub groups: Groups,
    pub start_telemetry: StartTelemetry,
    pub seen_devices: SeenDevices,
    pub upstream: watch::Sender<Option<Upstream>>,
    pub held: Held,
    pub exchange: Exchange,
    pub starts: mpsc::UnboundedSender<Start>,
    pub evidence: mpsc::UnboundedSender<(Incarnation, launcher::Evidence)>,
}

impl Actor {
    /// Takes over what an earlier life of this daemon left running.
    pub fn new(parts: ActorParts) -> Result<Self, MemoryError> {
        let memory = Memory::load(&parts.state)?;
        let mut actor = Self {
            puts: Puts::new(parts.held.clone()),
            held: parts.held,
            exchange: parts.exchange,
            state: parts.state,
            config: parts.config,
            program: parts.program,
            launcher: parts.launcher,
            groups: parts.groups,
            afflictions: Afflictions::default(),
            revision: None,
            start_telemetry: Some(parts.start_telemetry),
            telemetry: None,
            memory,
            plan: None,
            seen_devices: parts.seen_devices,
            up: None,
            upstream: parts.upstream,
            starting: Starting::default(),
            gate: Gate::default(),
            starts: parts.starts,
            evidence: parts.evidence,
            looks: Looks::default(),
            ended: Vec::new(),
            told: Vec::new(),
            greeted: None,
            advertise: None,
            grace: GRACE,
            away_since: Some(Instant::now()),
            joined_once: false,
            leaving: None,
            spares: Spares::default(),
        };
        if let Some(job) = stored_job(&actor.state) {
            actor.grace = job.job.daemon_grace();
        }
        for (number, started) in actor.memory.started.clone() {
            actor.adopt(Incarnation(number), started);
        }
        actor.launcher.sweep_groups(&[]);
        launcher::kill_spares_before(actor.state.root().as_os_str(), &actor.launcher);
        actor.remember();
        Ok(actor)
    }

    fn adopt(&mut self, incarnation: Incarnation, started: Started) {
        let Started {
            id,
            pid,
            start_time,
        } = started;
        let log = self.state.logs().join(format!("{id}.log"));
        let running = Running { pid, start_time };
        let group = role_life(id, incarnation);
        if self
            .launcher
            .adopt(incarnation, running, Some(&log), Some(&group))
        {
            tracing::info!("adopted {id} {incarnation} (pid {pid})");
        } else {
            self.memory.note(incarnation, None);
            self.ended
                .push(exited(incarnation, &Exit::Gone, String::new()));
        }
    }

    /// Takes one event; some end the node.
    pub fn on_event(&mut self, event: Event) -> Option<Result<NodeEnd, NodeError>> {
        match event {
            Event::Launch(LaunchEvent::Exited {
                incarnation,
                exit,
                tail_of_log,
                ..
            }) => {
                let end = self.starting.hold_end(incarnation, (exit, tail_of_log));
                if let Some((exit, tail_of_log)) = end {
                    self.on_exited(incarnation, &exit, tail_of_log);
                }
            }
            Event::Start(start) => return self.on_start(start).or_else(|| self.left()),
            Event::Samples(samples) => self.say(Up::Samples(super::orders::samples(samples))),
            Event::Evidence(incarnation, found) => self.say(Up::Evidence(v1::RoleEvidence {
                incarnation: incarnation.0,
                text: found.text,
                state: found.seen.state.word().to_owned(),
                frames: found.seen.frames,
            })),
            Event::Tick => self.on_tick(),
            Event::Stop(end) => self.on_stop(end),
            Event::Link(event) => return self.on_link(event),
        }
        self.left()
    }

    fn on_link(&mut self, event: LinkEvent) -> Option<Result<NodeEnd, NodeError>> {
        match event {
            LinkEvent::Greeted { run, epoch, answer } => self.on_greeted((run, epoch), answer),
            LinkEvent::Joined {
                up,
                upstream,
                advertise,
            } => self.on_joined(up, upstream, advertise),
            LinkEvent::Ready { job, token } => self.on_ready(&job, token),
            LinkEvent::Order(order) => return self.on_order(order),
            LinkEvent::Lost { reason } => self.on_lost(&reason),
            LinkEvent::Refused { reason } if self.joined_once => self.on_lost(&reason),
            LinkEvent::Refused { reason } => return Some(Err(NodeError::Refused { reason })),
        }
        self.left()
    }

    fn on_greeted(
        &mut self,
        (run, epoch): (String, u64),
        answer: oneshot::Sender<Result<Standing, EarlierTerm>>,
    ) {
        let joined = self.memory.epoch;
        // One that is alone has no terms: it went on with what several did before.
        if self.memory.run == run && epoch != 0 && epoch < joined {
            // The link may be broken; then the next one asks again.
            let _ = answer.send(Err(EarlierTerm { epoch, joined }));
            return;
        }
        // An earlier one's link is broken by now.
        self.greeted = Some(((run, epoch), answer, Instant::now()));
        if self.running_of_another_run() {
            tracing::warn!("the leader runs another job: roles of the one before are killed");
            self.kill_all();
        }
        self.answer_greeting();
    }

    fn running_of_another_run(&self) -> bool {
        let other = |((run, _), ..): &Greeted| *run != self.memory.run;
        self.greeted.as_ref().is_some_and(other) && self.runs_any()
    }

    /// Whether a role runs here, or is being started.
    fn runs_any(&self) -> bool {
        !self.memory.started.is_empty() || !self.starting.is_empty()
    }

    pub(super) fn answer_greeting(&mut self) {
        // What becomes of a start could be told to nobody until the leader is joined: the answer says what has become,
        // unless the start hangs.
        let waits = |(.., since): &Greeted| !self.starting.is_empty() && since.elapsed() < STARTS;
        if self.running_of_another_run() || self.greeted.as_ref().is_some_and(waits) {
            return;
        }
        let Some(((run, epoch), answer, _)) = self.greeted.take() else {
            return;
        };
        if self.memory.run != run {
            self.memory.run = run;
            self.memory.epoch = epoch;
            (self.ended, self.told) = Default::default();
            self.held.forget();
            self.held.forget_slots();
            self.forget_job();
            self.remember();
        } else if self.memory.epoch != epoch {
            // Before it is answered: no earlier term is obeyed again, whatever ends this program.
            self.memory.epoch = epoch;
            self.remember();
        }
        self.told.append(&mut self.ended);
        let standing = Standing {
            identity: self.memory.identity.clone(),
            running: self.running().collect(),
            ended: self.told.clone(),
            held: self.held.list(),
        };
        // The link may be broken; then the next one asks again.
        let _ = answer.send(Ok(standing));
    }

    /// Another life of the job numbers its revisions from the first again: neither a role nor a spare is to read one of
    /// the life before, and no spare that has read one is to become a role.
    fn forget_job(&mut self) {
        self.spares.wait();
        self.launcher.end_spares();
        self.revision = None;
        if let Err(error) = self.state.clear_revisions() {
            tracing::error!("job files of the life of the job before stay here: {error}");
        }
    }

    fn on_joined(
        &mut self,
        up: mpsc::UnboundedSender<v1::NodeMessage>,
        upstream: Upstream,
        advertise: IpAddr,
    ) {
        tracing::info!("joined {} as {}", upstream.at, self.config.name);
        self.joined_once = true;
        self.away_since = None;
        self.told.clear();
        self.advertise = Some(advertise);
        self.exchange.tell_over(Some(up.clone()));
        self.up = Some(up);
        self.spares.untold();
        self.say(Up::Beat(v1::NodeBeat {}));
        for ended in std::mem::take(&mut self.ended) {
            self.say(Up::Exited(ended));
        }
        self.say_leaving();
        self.upstream.send_replace(Some(upstream));
    }

    /// Roles can be started from now on.
    fn on_ready(&mut self, job: &Job, token: JobToken) {
        self.grace = job.job.daemon_grace();
        let bind = self.advertise.unwrap_or(IpAddr::from([127, 0, 0, 1]));
        let (program, state) = (self.program.clone(), self.state.clone());
        let plan = WorkerPlan::new(program, state, job, token);
        let plan = plan.bound_to(bind, job);
        if let Err(error) = plan.lay_engines_key() {
            tracing::error!("programs here have no key of the engines: {error}");
        }
        self.plan = Some(self.fitted(plan, job));
        let Some(start) = self.start_telemetry.take() else {
            return;
        };
        match start(job.detect.sample_interval()) {
            Ok(telemetry) => {
                for (number, started) in &self.memory.started {
                    telemetry.watch(Incarnation(*number), started.pid);
                }
                self.telemetry = Some(telemetry);
            }
            Err(error) => tracing::error!("nothing is sampled here: {error}"),
        }
    }

    /// The plan with what this node has for it.
    fn fitted(&self, plan: WorkerPlan, job: &Job) -> Result<WorkerPlan, Lacking> {
        let devices = self.devices(job)?;
        let limited = job.limited(self.pools(job), false);
        let grouping = Grouping::prepare(self.groups.clone(), job, &limited);
        let grouping = grouping.inspect_err(|error| tracing::error!("{error}"))?;
        Ok(plan.with_devices(devices).grouped(grouping))
    }

    fn pools<'a>(&'a self, job: &'a Job) -> &'a BTreeMap<String, u32> {
        let name = &self.config.name;
        let of_job = job.nodes.iter().find(|node| node.name == *name);
        match (&self.config.pools, of_job) {
            (own, Some(node)) if own.is_empty() => &node.pools,
            (own, _) => own,
        }
    }

    /// Which devices the slots of this node are.
    fn devices(&self, job: &Job) -> Result<SlotDevices, NoSuchDevice> {
        let name = &self.config.name;
        let devices = job.slot_devices(name, self.pools(job), &self.seen_devices);
        match &devices {
            Err(error) => tracing::error!("{error}"),
            Ok(SlotDevices {
                unassigned: Some(why),
                ..
            }) => tracing::warn!("{why}"),
            Ok(_) => {}
        }
        devices
    }

    fn on_lost(&mut self, reason: &str) {
        if self.up.take().is_some() {
            tracing::warn!("the leader is away ({reason}); roles live on, joining again");
        } else {
            tracing::debug!("not joined: {reason}");
        }
        self.exchange.tell_over(None);
        self.upstream.send_replace(None);
        self.ended.splice(0..0, std::mem::take(&mut self.told));
        self.away_since.get_or_insert_with(Instant::now);
    }

    /// The numbers of the roles that run here or are being started: those are to run, unless they are told not to.
    fn running(&self) -> impl Iterator<Item = u64> + '_ {
        let started = self.memory.started.keys().copied();
        started.chain(self.starting.numbers())
    }

    pub(super) fn on_exited(&mut self, incarnation: Incarnation, exit: &Exit, tail_of_log: String) {
        self.memory.note(incarnation, None);
        self.afflictions.forget(incarnation);
        self.remember();
        if let Some(telemetry) = &self.telemetry {
            telemetry.unwatch(incarnation);
        }
        let ended = exited(incarnation, exit, tail_of_log);
        match &self.up {
            Some(_) => self.say(Up::Exited(ended)),
            None => self.ended.push(ended),
        }
        self.answer_greeting();
    }

    fn on_tick(&mut self) {
        self.answer_greeting();
        self.say(Up::Beat(v1::NodeBeat {}));
        self.look_after_spares();
        let alone = self.away_since.is_some_and(|at| at.elapsed() > self.grace);
        if alone && self.runs_any() {
            tracing::error!("no leader for {:?}: roles are ended", self.grace);
            self.kill_all();
        }
    }

    /// The first SIGTERM lets roles move elsewhere for a while, where the node was started so; all others end them.
    fn on_stop(&mut self, end: NodeEnd) {
        let moves = end == NodeEnd::Terminated && self.leaving.is_none() && self.up.is_some();
        if !moves || self.config.drain.is_zero() || !self.runs_any() {
            return self.leave(end);
        }
        let until = Instant::now() + self.config.drain;
        tracing::info!(
            "asked to end: roles move elsewhere, for up to {:?}",
            self.config.drain
        );
        self.leaving = Some(Leaving {
            end,
            moves_until: Some(until),
            latest: until + super::run::LAST_WORDS,
        });
        self.say_leaving();
    }

    /// A leader that is joined anew takes a node for one that stays.
    fn say_leaving(&self) {
        if self.leaving.is_some_and(|l| l.moves_until.is_some()) {
            self.say(Up::Leaving(v1::NodeLeaving {
                reason: ASKED.to_owned(),
            }));
        }
    }

    fn leave(&mut self, end: NodeEnd) {
        tracing::info!("asked to end: the leader is told, roles are ended");
        self.say(Up::Leave(v1::NodeLeave {
            reason: ASKED.to_owned(),
        }));
        self.kill_all();
        self.leaving = Some(Leaving {
            end,
            moves_until: None,
            latest: Instant::now() + super::run::LAST_WORDS,
        });
    }

    /// Whether the node has left: its roles have ended, and the leader knows or takes too long.
    fn left(&mut self) -> Option<Result<NodeEnd, NodeError>> {
        let leaving = self.leaving?;
        let now = Instant::now();
        if let Some(until) = leaving.moves_until {
            if self.runs_any() && now < until {
                return None;
            }
            match self.running().count() {
                0 => tracing::info!("nothing runs here any more"),
                still => tracing::warn!("{still} roles found no place elsewhere in time"),
            }
            self.leave(leaving.end);
            return None;
        }
        let over = !self.runs_any() && self.up.is_none();
        (over || now >= leaving.latest).then_some(Ok(leaving.end))
    }

    /// Removes what only a running job needs.
    pub(super) fn clean_up(&mut self) {
        // What is being started is running after that, and heard of by nobody.
        self.gate.shut();
        self.kill_all();
        for (incarnation, _) in self.launcher.running() {
            self.launcher.kill(incarnation);
        }
        if let Err(error) = give_back(&self.state.snapshots()) {
            tracing::warn!("{error}");
        }
    }

    pub(super) fn kill_all(&mut self) {
        // None is started again before a leader says so.
        self.spares.wait();
        self.launcher.end_spares();
        let numbers: Vec<u64> = self.running().collect();
        for incarnation in numbers {
            // One that is being started ends as soon as it is.
            let order = Down::Kill(v1::KillRole { incarnation });
            if self.starting.hold(order).is_some() {
                self.launcher.kill(Incarnation(incarnation));
            }
        }
    }

    pub(super) fn say(&self, body: Up) {
        if let Some(up) = &self.up {
            // A link that broke is reported by itself.
            let _ = up.send(v1::NodeMessage { body: Some(body) });
        }
    }

    pub(super) fn remember(&self) {
        if let Err(error) = self.memory.save(&self.state) {
            tracing::error!("what runs here cannot be noted: {error}");
        }
    }
}

fn stored_job(state: &StateDir) -> Option<Job> {
    serde_json::from_slice(&std::fs::read(state.job_json()).ok()?).ok()
}

/// An end as the leader is told of it.
fn exited(incarnation: Incarnation, exit: &Exit, tail_of_log: String) -> v1::RoleExited {
    let exit = match exit {
        Exit::Code(code) => Some(role_exited::Exit::Code(*code)),
        Exit::Signal(signal) => Some(role_exited::Exit::Signal(*signal)),
        Exit::Gone => None,
    };
    v1::RoleExited {
        incarnation: incarnation.0,
        exit,
        tail_of_log,
    }
}
