//! How long everything takes in this job: medians of what was measured, and a stated default where nothing was.
use crate::cluster::{LongTail, Timing};
use robust_shared::core::{Core, Incident};
use robust_shared::ids::Role;
use robust_shared::median::median;
use robust_shared::phase::Phase;
use std::fmt;
use std::time::Duration;

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A process that computes, from its start to its link.
const START: Duration = seconds(60);
/// An agent worker, the same.
const AGENT_START: Duration = seconds(5);
/// A gang gets its state.
const RESTORE: Duration = seconds(15);
/// A version is made available.
const PUBLISH: Duration = seconds(1);
/// An engine fetches a version.
const PULL: Duration = seconds(10);
/// A training step.
const STEP: Duration = seconds(60);
/// A trajectory is generated.
const CONVERSATION: Duration = seconds(60);
/// Nobody counts the turns of a conversation: it is taken to have so many.
const TURNS: u32 = 4;
/// An end of a process is seen: what it took where that was measured first (`daemon/src/driver`).
const EXIT_SEEN: Duration = Duration::from_millis(50);
/// A hybrid engine answers a command.
const SWITCH: Duration = seconds(1);

/// Something that takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// From the start of a process of this role to its link.
    Start(Role),
    /// A gang gets its state.
    Restore,
    /// A version is made available.
    Publish,
    /// An engine fetches a version.
    Pull,
    /// A training step.
    Step,
    /// A trajectory is generated.
    Conversation,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Start(role) => write!(f, "start of a {role}"),
            Figure::Restore => f.write_str("restoring the trainer's state"),
            Figure::Publish => f.write_str("publishing a version"),
            Figure::Pull => f.write_str("fetching a version"),
            Figure::Step => f.write_str("a training step"),
            Figure::Conversation => f.write_str("a trajectory"),
        }
    }
}

/// What was measured, and what is assumed.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// How long every order takes.
    pub timing: Timing,
    /// What of that nobody measured yet.
    pub assumed: Vec<(Figure, Duration)>,
}

impl Measured {
    /// What a controller knows of its job.
    pub fn of(core: &Core) -> Self {
        let mut assumed = Vec::new();
        let mut take = |figure, measured: Option<Duration>, default| {
            measured.unwrap_or_else(|| {
                assumed.push((figure, default));
                default
            })
        };
        let trainer_start = take(
            Figure::Start(Role::Trainer),
            start(core, Role::Trainer),
            START,
        );
        let engine = match core.config().rollouts {
            0 => Role::Hybrid,
            _ => Role::Rollout,
        };
        let engine_start = take(Figure::Start(engine), start(core, engine), START);
        let agent_start = start(core, Role::Agent);
        let agent_start = take(Figure::Start(Role::Agent), agent_start, AGENT_START);
        let restore = between(core, "attached", "restored");
        let restore = restore.or_else(|| core.usual(Role::Trainer, Phase::LoadCheckpoint));
        let restore = take(Figure::Restore, restore, RESTORE);
        let publish = core.usual(Role::Trainer, Phase::Publish);
        let publish = take(Figure::Publish, publish, PUBLISH);
        let pull = core.usual(engine, Phase::PullWeights);
        let pull = take(Figure::Pull, pull, PULL);
        let of_rank = |phase| core.usual(Role::Trainer, phase);
        let update = of_rank(Phase::Update).or_else(|| core.step_duration());
        let update = take(Figure::Step, update, STEP);
        let before = [Phase::RefLogprob, Phase::OldLogprob, Phase::Advantage];
        let conversation = take(Figure::Conversation, conversation(core), CONVERSATION);
        let timing = Timing {
            machine: Duration::ZERO,
            container: Duration::ZERO,
            trainer_start,
            engine_start,
            agent_start,
            restore,
            publish,
            pull,
            switch: SWITCH,
            old_logprob: before.into_iter().filter_map(of_rank).sum(),
            update,
            snapshot: of_rank(Phase::Snapshot).unwrap_or_default(),
            concurrency: u32::MAX,
            conversation: LongTail {
                median: conversation,
                sigma: 0.0,
                max: conversation,
            },
            turns: TURNS,
            tool: Duration::ZERO,
            exit_seen: exit_seen(core).unwrap_or(EXIT_SEEN),
            node_seen: Duration::ZERO,
            anew: Duration::ZERO,
        };
        Self { timing, assumed }
    }
}

fn middle(all: impl Iterator<Item = Duration>) -> Option<Duration> {
    let mut seconds: Vec<f64> = all.map(|took| took.as_secs_f64()).collect();
    median(&mut seconds).map(Duration::from_secs_f64)
}

/// From the start of a process to its link: of those that replaced one that failed, else of all that began their work.
fn start(core: &Core, role: Role) -> Option<Duration> {
    let of_role = core.incidents().filter(|i| i.who.role == role);
    let took = of_role.filter_map(|i| {
        let killed = at(i, "killed").unwrap_or(i.verdict);
        Some(i.attached?.since(killed))
    });
    middle(took).or_else(|| core.usual(role, Phase::Init))
}

fn at(incident: &Incident, mark: &str) -> Option<robust_shared::time::Time> {
    let marked = incident.marks.iter().find(|(name, _)| name == mark);
    marked.map(|(_, at)| *at)
}

/// Between two marks of the trainer's incidents.
fn between(core: &Core, from: &str, to: &str) -> Option<Duration> {
    let of_trainer = core.incidents().filter(|i| i.who.role == Role::Trainer);
    middle(of_trainer.filter_map(|i| Some(at(i, to)?.since(at(i, from)?))))
}

fn exit_seen(core: &Core) -> Option<Duration> {
    let exits = core.incidents().filter(|i| i.rule == "exit");
    middle(exits.map(Incident::detect))
}

/// By Little's law: so many are generated at a time, and a batch of them comes in the time of a step.
fn conversation(core: &Core) -> Option<Duration> {
    let held = core.leases().len() as f64;
    let batch = core.batch_size() as f64;
    let step = core.step_duration()?;
    (held > 0.0 && batch > 0.0).then(|| step.mul_f64(held / batch))
}
