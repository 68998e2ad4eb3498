//! Drives the core with real time and real processes.
//!
//! ```text
//!  exits, links, samples, wishes ──► World::next ──► arrivals.rs ──► Input
//!   ▲ Event, a type a source                                           │ decide: Core::handle
//!   └── launcher, links, store, gang ◄── effects.rs ◄── outbox.rs ◄────┘ Output
//!                                                            ▲
//!                  records first, durable, with what changed of the core's state (store)
//! ```
//! One loop, one thread of decisions: [`World`] only waits, events become inputs, the core decides in
//! one place (`decide`), effects are begun in order. The loop awaits nothing but its events, one of which is
//! the end of the write under way. Everything slow (calls to the gang, probes, evidence, starting a
//! process, handing out a trajectory, whatever reads or writes a disk) runs beside it, and its results
//! come as events; whoever they are for may be gone by then, so each names the incarnation, task or grant
//! that it is of, and is dropped when that is over.
//!
//! An exit is judged at once. The launcher stamps it when the kernel tells, and it overtakes every
//! other event; nothing here waits for the disk, and what a verdict ends is killed though the disk stands
//! still (`outbox`). What an exit takes before that is the kernel's: a
//! process counts as ended only when its last thread is gone, after its memory was given back (the
//! pidfd becomes readable then, and the link closes less than a millisecond before, so it tells
//! nothing sooner). Giving back 120 MB took about 15 ms of processor time on the machine this was
//! measured on, in the dying process's own share of a core: 50 to 120 ms when four others compute on
//! the two cores, against 1 to 16 ms for a process of 1 MB.
mod adopt;
mod afflict;
mod alarms;
mod arrivals;
mod assign;
mod certificates;
mod change;
mod clock;
mod console;
mod dispatched;
mod early;
mod effects;
mod end;
mod event;
mod feeds;
mod gang;
mod gauges;
mod hands;
mod inspect;
mod linked;
mod logs;
mod lost;
mod nodes;
mod operators;
mod outbox;
mod pulled;
mod puts;
mod recent;
mod replicas;
mod restoring;
mod safety;
mod sampled;
mod saved;
mod served;
mod services;
mod spares;
mod status;
mod switch;
mod taped;
mod translate;
mod world;

pub use adopt::{AdoptError, Past, past};
pub use alarms::Alarm;
pub use change::{Change, Revision};
pub use clock::Clock;
pub use console::{print, summary};
pub use end::{End, kill_leftovers};
pub use event::{Event, Events, OperatorEvent, ProcessEvent, StoreEvent, Struck, TimerEvent};
pub use feeds::Feeds;
pub use inspect::{InspectAnswer, InspectError, ProbeAnswer};
pub use logs::{LogAnswer, LogError, NodePage, read_here};
pub use lost::{refuse_while_elsewhere, without_database};
pub use recent::{RecentPhases, span};
pub use saved::SavedError;
pub use status::{Frame, armed, incident, pause, slot, step_line};
pub use world::World;

use crate::ckpt::{ByNodes, Checkpointer, Uploader};
use crate::control::{Ahead, Far, GangCalls, Prompts};
use crate::grouplog::Logging;
use crate::launcher::Launcher;
use crate::leases::Leases;
use crate::links::Links;
use crate::logging::Rarer;
use crate::nodes::{Authorities, Members, Puts, Shards};
use crate::services::Services;
use crate::state::StateDir;
use crate::store::{Quota, Store, StoreError};
use crate::telemetry::{Telemetry, TestDevices};
use crate::worker::WorkerPlan;
use console::Printer;
use dispatched::Loader;
use gang::GangTask;
use gauges::Gauges;
use hands::{Here, Process};
use inspect::Inspecting;
use logs::Readers;
use nodes::Nodes;
use outbox::Outbox;
use pulled::Pulls;
use replicas::Replicas;
use robust_proto::v1;
use robust_shared::core::{Core, Input, Outcome, Refusal, Reply, STALL, View};
use robust_shared::ids::{Generation, Incarnation, NodeId, Step, TrajectoryId, WeightVersion};
use robust_shared::job::Job;
use robust_shared::service;
use robust_shared::time::Time;
use robust_shared::weights::PlanCache;
use saved::Snapshots;
use served::Served;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use switch::Switching;
use taped::Taped;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Events handled together at most, so that one record write serves many.
const BATCH: usize = 256;
/// Status is published no more often than this while things happen.
const STATUS_MIN: Duration = Duration::from_millis(50);
/// Status is published at least this often.
const STATUS_MAX: Duration = Duration::from_millis(500);
/// What grows with the job and is done again and again, the status above all, takes the loop one part of so many, as far
/// as it comes often enough then: an exit waits behind it.
const SHARE: u32 = 20;

/// A rollout's own last words on its activity; telemetry adds processor time and memory.
#[derive(Clone, Copy, Debug, Default)]
struct LinkSample {
    /// Processor time of what the role computes with: of all processes of a user's program, which are not
    /// its shim's own.
    busy: Duration,
    tokens_total: u64,
    running: u32,
    tool_failures: u64,
    callers_refused: u64,
}

/// A request for a rollout that waits for its answer.
struct WaitingRoute {
    /// What an agent worker asks for; none for a client of the router.
    lease: Option<(Incarnation, TrajectoryId)>,
    answer: oneshot::Sender<v1::RouteReply>,
}

/// What the driver works with; made by whoever starts it.
pub struct Parts {
    /// The job, paths absolute, model resolved.
    pub job: Arc<Job>,
    /// Its prompts.
    pub prompts: Prompts,
    /// Where its files are.
    pub state: StateDir,
    /// Time.
    pub clock: Clock,
    /// The durable memory.
    pub store: Store,
    /// Called before anything is decided: where the job has several controllers it ends the program of one that may lead no
    /// more.
    pub fence: Box<dyn Fn() + Send + Sync>,
    /// Starts and strikes processes.
    pub launcher: Launcher,
    /// Samples them.
    pub telemetry: Telemetry,
    /// Writes checkpoints.
    pub checkpointer: Checkpointer,
    /// Puts them into the object store, where the job has one.
    pub uploader: Option<Uploader>,
    /// Has them put there by those who hold their shards, where the job wants that.
    pub by_nodes: Option<ByNodes>,
    /// Orders to nodes to put shards there.
    pub puts: Puts,
    /// Brings them back from there.
    pub far: Option<Arc<Far>>,
    /// Where they are.
    pub checkpoints: PathBuf,
    /// Where shards of ranks on other nodes are kept.
    pub shards: Shards,
    /// Who holds which trajectory; shared with the role service.
    pub leases: Leases,
    /// Who is a node; none where nobody can be one.
    pub members: Option<Members>,
    /// Certify nodes and roles.
    pub authorities: Authorities,
    /// How role processes are started.
    pub worker: WorkerPlan,
    /// The room that the database sees.
    pub quota: Quota,
    /// The way from the store to the job's log.
    pub logging: Logging,
    /// This node's devices, where they are the test library's.
    pub test_devices: Option<TestDevices>,
    /// What operators see.
    pub feeds: Feeds,
    /// The way back to the driver, for its own tasks.
    pub events: Events,
}

/// The driver. See the module's doc.
pub struct Driver {
    parts: Parts,
    core: Core,
    links: Links,
    loader: Loader,
    calls: GangCalls,
    gang: Option<GangTask>,
    /// Old logprobs computed before their batch was whole.
    ahead: Ahead,
    /// Commands to hybrid engines under way.
    switches: HashMap<Incarnation, Switching>,
    tasks: u64,
    /// The role processes, here and on other nodes.
    processes: HashMap<Incarnation, Process>,
    here: Here,
    nodes: Nodes,
    link_samples: HashMap<Incarnation, LinkSample>,
    gauges: Gauges,
    /// Operators that wait for a part of a log on another node.
    readers: Readers,
    /// Operators that wait for what a process does, or for its answer.
    inspecting: Inspecting,
    pulls: Pulls,
    taped: Taped,
    served: Served,
    plans: PlanCache,
    snapshots: Snapshots,
    replicas: Replicas,
    /// Since when no other controller follows, where the job has several.
    alone_since: Option<Time>,
    /// The newest version that was published, with the digest of its content.
    version_digest: Option<(WeightVersion, String)>,
    /// The gang that came to its step by training again.
    replayed: Option<Generation>,
    routes: HashMap<u64, WaitingRoute>,
    requests: HashMap<u64, oneshot::Sender<Result<Reply, Refusal>>>,
    revising: change::Revising,
    revisions: change::Revisions,
    /// What the last committed step consumed, once one was committed in this life.
    consumed: Option<(Step, Vec<TrajectoryId>)>,
    injections: HashMap<u64, oneshot::Sender<Result<Struck, Refusal>>>,
    inputs: VecDeque<Input>,
    outbox: Outbox,
    printer: Printer,
    outcome: Option<Outcome>,
    services: Services,
    /// Whether the job was told to begin, or to go on.
    begun: bool,
    /// The last step that a checkpoint on disk has, and the gang that made it.
    written: Option<(Step, Generation)>,
    /// When a step that waits for its checkpoint was last offered.
    pressed: Option<Instant>,
    /// When copies that a step waits for were asked for again.
    asked_again: Option<Instant>,
    dirty: bool,
    published: Instant,
    /// What it took to look at the core for a status, and to show that.
    viewing: Duration,
    showing: Duration,
    /// When certificates were looked at last.
    certified: Instant,
    /// What that took.
    certifying: Duration,
    /// The authority before the present one cannot be dropped.
    undropped: Rarer,
    /// What the write under way makes true, when the status was due as it began.
    due_view: Option<(View, Time)>,
    /// Nodes whose loss the write under way makes true.
    due_lost: Vec<NodeId>,
}

/// The driver cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// What must be durable cannot be made so.
    #[error("the store does not take records any more: {0}")]
    Store(#[from] StoreError),
    /// The core's state cannot be encoded.
    #[error(transparent)]
    Saved(#[from] saved::SavedError),
}

impl Driver {
    /// Starts the job, or goes on with it, until it is over; role processes are still there then.
    pub async fn run(&mut self, world: &mut World) -> Result<Outcome, DriverError> {
        self.services
            .handle(self.parts.clock.now(), service::Event::Begin);
        loop {
            self.serve_services();
            self.settle()?;
            if self.outbox.is_empty()
                && let Some(outcome) = self.outcome.take()
            {
                self.publish_status();
                return Ok(outcome);
            }
            if self.status_due() <= Instant::now() {
                self.publish_status();
            }
            self.look_after_certificates();
            let wakes = [self.core.next_timeout(), self.services.next_timeout()];
            let (wake, due) = (wakes.into_iter().flatten().min(), self.status_due());
            tokio::select! {
                biased;
                written = self.outbox.written() => {
                    (self.parts.fence)();
                    self.note_standstill(due);
                    written?;
                    self.publish_written();
                }
                event = world.next(self.parts.clock, wake, due) => {
                    (self.parts.fence)();
                    self.note_standstill(due);
                    self.on_events(event, world);
                }
            }
        }
    }

    /// It wakes to show the status at the latest: much later, its process or its machine stood still.
    fn note_standstill(&mut self, due: Instant) {
        if due.elapsed() > STALL {
            tracing::warn!("the daemon stood still for {:.1?}", due.elapsed());
            self.inputs.push_back(Input::StoodStill);
        }
    }

    fn on_events(&mut self, first: Event, world: &mut World) {
        world.hand_over(first, BATCH, |event| {
            self.on_event(event);
            self.decide();
        });
    }

    /// Lets the core decide on what waits. Nobody else asks it.
    fn decide(&mut self) {
        while let Some(input) = self.inputs.pop_front() {
            self.core.handle(self.parts.clock.now(), input);
            self.dirty = true;
        }
    }

    /// Lets the core decide on everything that waits, and carries out what may be carried out.
    fn settle(&mut self) -> Result<(), DriverError> {
        loop {
            self.decide();
            while let Some(output) = self.core.poll_output() {
                self.outbox.push(output);
            }
            if self.outbox.is_held() {
                return Ok(());
            }
            self.release()?;
        }
    }

    /// When the status is to be published: never while it is ahead of what is durable.
    fn status_due(&self) -> Instant {
        let wait = match (self.outbox.is_empty(), self.dirty) {
            (false, _) => return Instant::now() + STATUS_MAX,
            (true, true) => self.status_min(),
            (true, false) => STATUS_MAX,
        };
        self.published + wait
    }

    /// Between two statuses at least. That of a large job takes a while.
    fn status_min(&self) -> Duration {
        spaced(self.viewing + self.showing, STATUS_MIN).min(STATUS_MAX)
    }

    /// The core as it is now, for a status.
    fn look(&mut self) -> (View, Time) {
        let (now, began) = (self.parts.clock.now(), Instant::now());
        let view = self.core.view(now);
        self.viewing = began.elapsed();
        (view, now)
    }

    fn publish_status(&mut self) {
        self.let_go_of(self.lost_nodes());
        let (view, now) = self.look();
        self.show(&view, now);
        self.dirty = false;
    }

    /// Shows what has just become durable: under constant writing nothing else would be shown.
    fn publish_written(&mut self) {
        let lost = std::mem::take(&mut self.due_lost);
        self.let_go_of(lost);
        if let Some((view, at)) = self.due_view.take() {
            self.show(&view, at);
        }
    }

    fn show(&mut self, view: &View, at: Time) {
        let began = Instant::now();
        let (replicas, remote) = (self.replica_status(), self.remote_status());
        self.look_for_followers();
        self.look_for_lemons(view);
        self.parts.feeds.durable(replicas, remote);
        self.parts.feeds.services(self.services.status());
        self.look_after_spares(view);
        self.parts.feeds.spares(self.spares());
        let skipped = self.parts.checkpointer.skipped();
        self.parts
            .feeds
            .publish(view, at, (&self.pulls, &self.gauges), &self.served, skipped);
        self.published = Instant::now();
        self.showing = began.elapsed();
    }
}

/// The least time between two of what took so long, so that it takes no more than its share.
fn spaced(took: Duration, least: Duration) -> Duration {
    (took * SHARE).max(least)
}
