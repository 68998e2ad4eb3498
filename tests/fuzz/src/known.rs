//! The names that an outsider may use: those that the controller gave, of the present and of before, and now and
//! then some that it never gave.

use std::collections::BTreeMap;
use std::time::Duration;

use robust_shared::core::{
    CallFault, Core, CoreConfig, Exit, GangEvent, Hello, Input, NodeEvent, NodeSpec, Output,
    ReturnedBy, RoleEvent, Sample, Seen,
};
use robust_shared::hardware::{Finding, FindingKind};
use robust_shared::ids::{
    Generation, Incarnation, InstanceId, NodeId, Role, Step, TrajectoryId, WeightVersion,
};
use robust_shared::phase::Phase;
use robust_shared::time::Time;

use crate::Bytes;
use crate::answers::failure;
use crate::driver::step_done;
use crate::requests::request;

/// So many of each are remembered.
const KEPT: usize = 24;

/// What the controller named so far.
#[derive(Default)]
pub struct Known {
    config: CoreConfig,
    lives: Vec<Incarnation>,
    generations: Vec<Generation>,
    trajectories: Vec<TrajectoryId>,
    /// Pulls: who, what, and the order's number.
    pulls: Vec<(Incarnation, WeightVersion, u64)>,
    leases: Vec<(Incarnation, TrajectoryId, u64)>,
    faults: Vec<(Incarnation, u64)>,
    last_step: Step,
    last_version: WeightVersion,
    tickets: u64,
    /// Tickets of those who asked for a trajectory.
    pub asked: BTreeMap<u64, (Incarnation, TrajectoryId)>,
}

fn keep<T>(all: &mut Vec<T>, one: T) {
    if all.len() == KEPT {
        all.remove(0);
    }
    all.push(one);
}

impl Known {
    /// Nothing but the job.
    pub fn new(config: &CoreConfig) -> Known {
        let config = config.clone();
        Known {
            config,
            ..Known::default()
        }
    }

    /// Remembers the names in what the controller wants.
    pub fn note(&mut self, output: &Output) {
        match output {
            Output::Spawn {
                incarnation,
                generation,
                ..
            } => {
                keep(&mut self.lives, *incarnation);
                if generation.0 > 0 && self.generations.last() != Some(generation) {
                    keep(&mut self.generations, *generation);
                }
            }
            Output::Restore { step, .. }
            | Output::TrainStep { step, .. }
            | Output::Prepare { step, .. } => self.last_step = *step,
            Output::Publish { version, .. } => self.last_version = *version,
            Output::AssignPull {
                puller,
                version,
                order,
                ..
            } => {
                keep(&mut self.pulls, (*puller, *version, *order));
            }
            Output::Dispatch {
                agent,
                trajectory,
                lease,
            } => {
                keep(&mut self.trajectories, *trajectory);
                keep(&mut self.leases, (*agent, *trajectory, *lease));
            }
            Output::Carry {
                incarnation,
                number,
                ..
            } => {
                keep(&mut self.faults, (*incarnation, *number));
            }
            _ => {}
        }
    }

    /// A ticket that was not used before.
    pub fn new_ticket(&mut self, of: Option<(Incarnation, TrajectoryId)>) -> u64 {
        self.tickets += 1;
        if let Some(of) = of {
            self.asked.insert(self.tickets, of);
            if self.asked.len() > 4 * KEPT {
                self.asked.pop_first();
            }
        }
        self.tickets
    }

    fn life(&self, bytes: &mut Bytes<'_>) -> Incarnation {
        match bytes.byte() {
            at @ 0..=239 => {
                let newest = self.lives.len().checked_sub(1 + usize::from(at) % KEPT);
                let life = newest.and_then(|at| self.lives.get(at));
                life.copied().unwrap_or(Incarnation(u64::from(at)))
            }
            _ => Incarnation(bytes.number()),
        }
    }

    fn generation(&self, bytes: &mut Bytes<'_>) -> Generation {
        match bytes.byte() {
            0..=199 => self.generations.last().copied().unwrap_or_default(),
            200..=239 => bytes.one_of(&self.generations).copied().unwrap_or_default(),
            _ => Generation(bytes.number()),
        }
    }

    fn trajectory(&self, bytes: &mut Bytes<'_>) -> TrajectoryId {
        match bytes.byte() {
            0..=229 => bytes.one_of(&self.trajectories).copied(),
            _ => None,
        }
        .unwrap_or_else(|| TrajectoryId::from_key(bytes.number() << 32 | u64::from(bytes.short())))
    }

    fn step(&self, bytes: &mut Bytes<'_>) -> Step {
        match bytes.byte() {
            0..=199 => self.last_step,
            _ => Step(bytes.number()),
        }
    }

    fn version(&self, bytes: &mut Bytes<'_>) -> WeightVersion {
        match bytes.byte() {
            0..=199 => self.last_version,
            _ => WeightVersion(bytes.number()),
        }
    }

    /// Something that happens, whoever says so.
    pub fn input(&mut self, bytes: &mut Bytes<'_>, core: &Core, now: Time) -> Input {
        match bytes.below(12) {
            0 => self.gang(bytes),
            1 => self.node(bytes),
            2 => self.joined(bytes),
            3 => Input::ClientRouteRequested {
                ticket: self.new_ticket(None),
                avoid: bytes.flag().then(|| self.life(bytes)),
            },
            4 => Input::RouteReleased {
                ticket: u64::from(bytes.byte()).min(self.tickets + 1),
                broken: bytes.flag(),
            },
            5 => match bytes.byte() {
                0..=7 => Input::Stop,
                8..=15 => Input::ServiceLost {
                    reason: "it died".to_owned(),
                },
                _ => Input::Timeout,
            },
            6 | 7 => {
                let ticket = self.new_ticket(None);
                let life = self.life(bytes);
                Input::Operator(ticket, request(bytes, &self.config, life))
            }
            _ => self.role(bytes, core, now),
        }
    }

    /// The driver made the call, so the step or the version is that of a call; whose answer it is may be wrong.
    fn gang(&self, bytes: &mut Bytes<'_>) -> Input {
        let from = self.generation(bytes);
        let (step, version) = (self.last_step, self.last_version);
        let event = match bytes.below(7) {
            0 => GangEvent::Restored { step },
            1 => GangEvent::Prepared { step },
            2 => step_done(step),
            3 => GangEvent::TrainerOver,
            4 => GangEvent::Published {
                version,
                bytes: bytes.number(),
                digest: String::new(),
            },
            _ => GangEvent::StepFailed {
                step: self.step(bytes),
                rank: bytes.flag().then(|| self.life(bytes)),
                fault: match bytes.flag() {
                    true => CallFault::Exception,
                    false => CallFault::Numeric,
                },
                reason: "ValueError: no".to_owned(),
            },
        };
        Input::Gang(from, event)
    }

    fn node(&self, bytes: &mut Bytes<'_>) -> Input {
        let node = NodeId(u32::from(bytes.byte()) % 5);
        let event = match bytes.below(4) {
            0 | 1 => NodeEvent::Beat,
            2 => NodeEvent::Left {
                reason: "it was asked to".to_owned(),
            },
            _ => NodeEvent::Hardware {
                device: bytes.below(3) as u32,
                finding: finding(bytes),
                users: (0..bytes.below(3)).map(|_| self.life(bytes)).collect(),
            },
        };
        Input::Node(node, event)
    }

    fn joined(&self, bytes: &mut Bytes<'_>) -> Input {
        let known = self.config.first_nodes();
        let mut node = match bytes.below(4) {
            0 => NodeSpec {
                name: format!("new-{}", bytes.below(3)),
                ..NodeSpec::default()
            },
            _ => bytes.one_of(&known).cloned().unwrap_or_default(),
        };
        if bytes.below(4) == 0 {
            let pool = *bytes
                .one_of(&["train", "rollout", "agent"])
                .unwrap_or(&"train");
            node.pools.insert(pool.to_owned(), bytes.below(4) as u32);
        }
        let running = (0..bytes.below(4)).map(|_| self.life(bytes)).collect();
        Input::NodeJoined { node, running }
    }

    fn role(&mut self, bytes: &mut Bytes<'_>, core: &Core, now: Time) -> Input {
        let life = self.life(bytes);
        let event = match bytes.below(18) {
            0 => RoleEvent::Spawned {
                pid: bytes.short().into(),
            },
            1 => RoleEvent::SpawnFailed {
                reason: "no memory".to_owned(),
            },
            2 => RoleEvent::Attached {
                hello: self.hello(bytes),
            },
            3 => RoleEvent::Detached,
            4 => RoleEvent::Exited {
                at: bytes
                    .flag()
                    .then(|| now + Duration::from_secs(bytes.byte().into())),
                exit: exit(bytes),
                detail: "panicked".to_owned(),
            },
            5 | 6 => RoleEvent::PhaseChanged {
                phase: Phase::ALL[bytes.below(Phase::ALL.len())],
                step: self.step(bytes),
            },
            7 => RoleEvent::Sampled {
                sample: sample(bytes),
            },
            8 => RoleEvent::Probed { ok: bytes.flag() },
            9 => RoleEvent::Evidence {
                text: String::new(),
                seen: Seen::default(),
            },
            10 => RoleEvent::Switched {
                paused: bytes.flag(),
                ok: bytes.flag(),
            },
            11 => return self.pull(bytes),
            12 => RoleEvent::PullProgress {
                version: self.version(bytes),
                bytes: bytes.number(),
                total: bytes.number(),
            },
            13 => RoleEvent::Damaged {
                version: self.version(bytes),
                chunks: bytes.number(),
                total: bytes.number(),
            },
            14 => return self.finished(bytes),
            15 => return self.returned(bytes, core),
            16 => {
                let trajectory = self.trajectory(bytes);
                let ticket = self.new_ticket(Some((life, trajectory)));
                RoleEvent::RouteRequested { ticket, trajectory }
            }
            _ => {
                let (_, number) = bytes.one_of(&self.faults).copied().unwrap_or((life, 1));
                let refused = bytes.flag().then(|| "it cannot".to_owned());
                RoleEvent::FaultStruck { number, refused }
            }
        };
        Input::Role(life, event)
    }

    fn hello(&self, bytes: &mut Bytes<'_>) -> Hello {
        Hello {
            transport_addr: "127.0.0.1:1".to_owned(),
            http_addr: "127.0.0.1:2".to_owned(),
            version: bytes.flag().then(|| self.version(bytes)),
            step: bytes.flag().then(|| self.step(bytes)),
            leases: (0..bytes.below(4))
                .map(|_| self.trajectory(bytes))
                .collect(),
        }
    }

    fn pull(&self, bytes: &mut Bytes<'_>) -> Input {
        let none = (self.life(bytes), self.version(bytes), bytes.number());
        let (puller, version, order) = bytes.one_of(&self.pulls).copied().unwrap_or(none);
        let event = match bytes.below(3) {
            0 => RoleEvent::PullStarted { version, order },
            1 => RoleEvent::Pulled {
                version,
                order,
                result: Ok(()),
            },
            _ => {
                let result = Err(failure(bytes.below(5), self.life(bytes)));
                RoleEvent::Pulled {
                    version,
                    order,
                    result,
                }
            }
        };
        Input::Role(puller, event)
    }

    /// Only who holds a lease stores anything, for the daemon's store looks at that; that it did so may be said late.
    fn finished(&self, bytes: &mut Bytes<'_>) -> Input {
        let Some((agent, trajectory, lease)) = bytes.one_of(&self.leases).copied() else {
            return Input::Timeout;
        };
        let event = RoleEvent::TrajectoryFinished {
            trajectory,
            reward: f64::from(bytes.byte()) / 16.0,
            oldest_version: self.version(bytes),
            lease,
        };
        Input::Role(agent, event)
    }

    fn returned(&self, bytes: &mut Bytes<'_>, core: &Core) -> Input {
        let agent = self.life(bytes);
        let none = (agent, self.trajectory(bytes), bytes.number());
        let (agent, trajectory, lease) = bytes.one_of(&self.leases).copied().unwrap_or(none);
        let by = match bytes.below(3) {
            0 => ReturnedBy::Worker,
            1 => ReturnedBy::Daemon,
            _ => ReturnedBy::Diverged,
        };
        let lease = match bytes.below(3) {
            0 => 0,
            1 => core.lease_of(trajectory),
            _ => lease,
        };
        let reason = "its tool failed".to_owned();
        Input::Role(
            agent,
            RoleEvent::TrajectoryReturned {
                trajectory,
                reason,
                by,
                lease,
            },
        )
    }
}

fn exit(bytes: &mut Bytes<'_>) -> Exit {
    match bytes.below(3) {
        0 => Exit::Code(i32::from(bytes.byte())),
        1 => Exit::Signal(9),
        _ => Exit::Gone,
    }
}

fn sample(bytes: &mut Bytes<'_>) -> Sample {
    Sample {
        busy: Duration::from_millis(bytes.number()),
        tokens_total: bytes.number(),
        running: bytes.below(9) as u32,
        rss_bytes: bytes.number(),
        accelerator: bytes.flag().then(|| Duration::from_millis(bytes.number())),
        tool_failures: bytes.number(),
        callers_refused: bytes.number(),
        ..Sample::default()
    }
}

fn finding(bytes: &mut Bytes<'_>) -> Finding {
    let repeated = bytes.flag();
    let kind = match bytes.below(8) {
        0 => FindingKind::Xid(u32::from(bytes.byte())),
        1 => FindingKind::EccUncorrected,
        2 => FindingKind::EccCorrectedRising,
        3 => FindingKind::RowRemapFailed,
        4 => FindingKind::Throttle { repeated },
        5 => FindingKind::LinkReplay { repeated },
        6 => FindingKind::DeviceLost,
        _ => FindingKind::DriverStuck,
    };
    let text = "as it was read".to_owned();
    Finding { kind, text }
}

/// An instance, which may not be there.
pub fn instance(bytes: &mut Bytes<'_>) -> InstanceId {
    let role = Role::ALL[bytes.below(Role::ALL.len())];
    let index = bytes.below(5) as u32;
    InstanceId { role, index }
}
