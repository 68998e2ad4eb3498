//! Drives the core with real time and real processes.
//!
//! ```text
//!  exits, links, samples, wishes ──► World::next ──► arrivals.rs ──► Input
//!                                                                      │ Core::handle
//!  launcher, links, store, gang, feeds ◄── effects.rs ◄── Output ◄─────┘
//!                                             ▲
//!              records first, durable, with the core's state (store)
//! ```
//! One loop, one thread of decisions: [`World`] only waits, arrivals become inputs, the core
//! decides, effects are carried out in order. Everything slow (calls to the gang, probes, evidence)
//! runs in tasks whose results arrive like everything else.
mod adopt;
mod arrivals;
mod clock;
mod console;
mod effects;
mod end;
mod feeds;
mod gang;
mod happening;
mod leases;
mod links;
mod probe;
mod pulled;
mod saved;
mod served;
mod spawn;
mod status;
mod translate;
mod world;

pub use adopt::{AdoptError, Past, past};
pub use clock::Clock;
pub use console::{print, summary};
pub use end::{End, kill_leftovers};
pub use feeds::Feeds;
pub use happening::{Down, Fenced, Happening, Happenings, Struck};
pub use leases::{LeaseError, Leases};
pub use links::{LinkId, Links};
pub use saved::{SavedError, SnapshotShards};
pub use spawn::{ARITHMETIC, WorkerPlan};
pub use status::{Frame, incident};
pub use world::World;

use crate::ckpt::Checkpointer;
use crate::control::{GangCalls, Prompts};
use crate::launcher::{Launcher, Running};
use crate::store::{Store, StoreError};
use crate::telemetry::Telemetry;
use gang::GangTask;
use pulled::PullMeter;
use robust_proto::v1;
use robust_shared::core::{Core, Input, Outcome, Output, Refusal};
use robust_shared::ids::{Incarnation, Step, TrajectoryId};
use robust_shared::job::Job;
use saved::Snapshots;
use served::Served;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Arrivals handled together at most, so that one record write serves many.
const BATCH: usize = 256;
/// Status is published no more often than this while things happen.
const STATUS_MIN: Duration = Duration::from_millis(50);
/// Status is published at least this often.
const STATUS_MAX: Duration = Duration::from_millis(500);

/// A rollout's own last words on its activity; telemetry adds processor time and memory.
#[derive(Clone, Copy, Debug, Default)]
struct LinkSample {
    tokens_total: u64,
    running: u32,
}

/// A request for a rollout that waits for its answer.
struct WaitingRoute {
    incarnation: Incarnation,
    trajectory: TrajectoryId,
    answer: oneshot::Sender<v1::RouteReply>,
}

/// What the driver works with; made by whoever starts it.
pub struct Parts {
    /// The job, paths absolute, model resolved.
    pub job: Arc<Job>,
    /// Its prompts.
    pub prompts: Prompts,
    /// Time.
    pub clock: Clock,
    /// The durable memory.
    pub store: Store,
    /// Starts and strikes processes.
    pub launcher: Launcher,
    /// Samples them.
    pub telemetry: Telemetry,
    /// Writes checkpoints.
    pub checkpointer: Checkpointer,
    /// Where they are.
    pub checkpoints: PathBuf,
    /// Who holds which trajectory; shared with the role service.
    pub leases: Leases,
    /// How role processes are started.
    pub worker: WorkerPlan,
    /// What operators see.
    pub feeds: Feeds,
    /// The way back to the driver, for its own tasks.
    pub happenings: Happenings,
}

/// The driver. See the module's doc.
pub struct Driver {
    parts: Parts,
    core: Core,
    links: Links,
    calls: GangCalls,
    gang: Option<GangTask>,
    tasks: u64,
    /// The living role processes.
    processes: HashMap<Incarnation, Running>,
    link_samples: HashMap<Incarnation, LinkSample>,
    pulls: PullMeter,
    served: Served,
    snapshots: Snapshots,
    routes: HashMap<u64, WaitingRoute>,
    injections: HashMap<u64, oneshot::Sender<Result<Struck, Refusal>>>,
    inputs: VecDeque<Input>,
    outcome: Option<Outcome>,
    /// The last step that a checkpoint on disk has.
    written: Option<Step>,
    dirty: bool,
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
        self.inputs.push_back(Input::Start);
        let mut published = Instant::now();
        loop {
            self.settle().await?;
            if self.dirty && published.elapsed() >= STATUS_MIN || published.elapsed() >= STATUS_MAX
            {
                self.publish_status();
                published = Instant::now();
            }
            if let Some(outcome) = self.outcome.take() {
                self.publish_status();
                return Ok(outcome);
            }
            let due = published + if self.dirty { STATUS_MIN } else { STATUS_MAX };
            let mut arrival = Some(
                world
                    .next(self.parts.clock, self.core.next_timeout(), due)
                    .await,
            );
            for _ in 0..BATCH {
                let Some(next) = arrival else { break };
                self.on_arrival(next).await;
                arrival = world.next_ready();
            }
        }
    }

    /// Lets the core decide on everything that waits, and carries out what it wants.
    async fn settle(&mut self) -> Result<(), DriverError> {
        while !self.inputs.is_empty() {
            while let Some(input) = self.inputs.pop_front() {
                self.core.handle(self.parts.clock.now(), input);
            }
            let outputs: Vec<Output> = std::iter::from_fn(|| self.core.poll_output()).collect();
            self.carry_out(outputs).await?;
            self.dirty = true;
        }
        Ok(())
    }

    fn publish_status(&mut self) {
        let now = self.parts.clock.now();
        self.parts.feeds.publish(&self.core.view(now), now);
        self.dirty = false;
    }
}
