//! Which machine was in which state when which input came: what the fault search counts, so that nobody
//! takes an order of events for tried that never came up.
//!
//! Each table is a machine, its rows are states and its columns inputs. A state that is a mark upon
//! another one (`condemned` upon `attached`) stands for it.
use super::state::{JobState, State};
use crate::core::gang::Stage;
use crate::core::roster::instance::{Instance, Life};
use crate::core::roster::nodes::NodeState;
use crate::core::work::trajectories::Place;
use crate::core::{Core, GangEvent, Input, NodeEvent, Request, RoleEvent};
use crate::ids::{Incarnation, Role, TrajectoryId};
use serde::{Deserialize, Serialize};

/// One machine with what can come in any of its states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellTable {
    /// The machine.
    pub machine: &'static str,
    /// Its states.
    pub states: &'static [&'static str],
    /// The inputs that it hears.
    pub inputs: &'static [&'static str],
}

/// A place in one of [`CELL_TABLES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// The table.
    pub table: usize,
    /// The row.
    pub state: usize,
    /// The column.
    pub input: usize,
}

/// A machine that a fault can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Machine {
    /// Any instance of a role.
    Instance(Role),
    /// The gang.
    Gang,
    /// Any node.
    Node,
    /// The job.
    Job,
}

impl Machine {
    /// Its table in [`CELL_TABLES`].
    pub fn table(self) -> usize {
        match self {
            Machine::Instance(_) => INSTANCE,
            Machine::Gang => GANG,
            Machine::Node => NODE,
            Machine::Job => JOB,
        }
    }
}

const INSTANCE: usize = 0;
const GANG: usize = 1;
const NODE: usize = 2;
const TRAJECTORY: usize = 3;
const JOB: usize = 4;

/// Every machine that is counted.
pub const CELL_TABLES: [CellTable; 5] = [
    CellTable {
        machine: "instance",
        states: &[
            "former",
            "waiting",
            "spawning",
            "starting",
            "attached",
            "pulling",
            "suspect",
            "going",
            "condemned",
            "unlinked",
        ],
        inputs: &[
            "spawned",
            "spawn failed",
            "attached",
            "detached",
            "exited",
            "phase changed",
            "sampled",
            "probed",
            "evidence",
            "switched",
            "pull started",
            "pull progress",
            "pulled",
            "trajectory finished",
            "trajectory returned",
            "route requested",
            "fault struck",
            "damaged",
        ],
    },
    CellTable {
        machine: "gang",
        states: &[
            "former",
            "forming",
            "restoring",
            "ready",
            "publishing",
            "preparing",
            "training",
        ],
        inputs: &[
            "restored",
            "prepared",
            "step done",
            "trainer over",
            "step failed",
            "published",
            "a rank attached",
            "a rank detached",
            "a rank exited",
            "an engine exited",
            "an agent exited",
        ],
    },
    CellTable {
        machine: "node",
        states: &["unknown", "awaited", "here", "cordoned", "lost", "left"],
        inputs: &["joined", "beat", "left", "hardware"],
    },
    CellTable {
        machine: "trajectory",
        states: &[
            "unknown",
            "pending",
            "leased",
            "of another",
            "finished",
            "set aside",
        ],
        inputs: &["finished", "returned", "route requested"],
    },
    CellTable {
        machine: "job",
        states: &["new", "running", "changing", "pausing", "paused", "over"],
        inputs: &JOB_INPUTS,
    },
];

/// What the job hears that is no operator's request.
const OF_OTHERS: [&str; 7] = [
    "start",
    "timeout",
    "client route requested",
    "route released",
    "service lost",
    "stop",
    "stood still",
];

/// What the job hears, operators' requests last.
const JOB_INPUTS: [&str; OF_OTHERS.len() + Request::KINDS.len()] = {
    let mut all = [""; OF_OTHERS.len() + Request::KINDS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = match at < OF_OTHERS.len() {
            true => OF_OTHERS[at],
            false => Request::KINDS[at - OF_OTHERS.len()],
        };
        at += 1;
    }
    all
};

impl Core {
    /// The cells that this input is about to meet, one for each machine that hears it.
    pub fn cells(&self, input: &Input, mut meets: impl FnMut(Cell)) {
        let mut meet = |table, state, input| {
            meets(Cell {
                table,
                state,
                input,
            });
        };
        match input {
            Input::Role(from, event) => {
                let instance = self.s.roster.instances().life(*from);
                meet(
                    INSTANCE,
                    instance.map_or(0, |i| self.s.instance_row(i)),
                    role_column(event),
                );
                if let Some(column) = instance.and_then(|i| gang_column_of(i.id().role, event)) {
                    meet(GANG, self.s.gang_row(), column);
                }
                if let Some((trajectory, column)) = trajectory_column(event) {
                    meet(TRAJECTORY, self.s.trajectory_row(trajectory, *from), column);
                }
            }
            Input::Gang(from, event) => {
                let former = *from != self.s.gang.generation();
                let row = if former { 0 } else { self.s.gang_row() };
                meet(GANG, row, gang_column(event));
            }
            Input::Node(node, event) => {
                let state = self.node_state(*node);
                let cordoned = self.s.roster.nodes().get(*node).is_some_and(|n| n.cordoned);
                meet(NODE, node_row(state, cordoned), node_column(event));
            }
            Input::NodeJoined { node, .. } => {
                let known = self.s.roster.nodes().by_name(&node.name);
                let cordoned = known.and_then(|id| self.s.roster.nodes().get(id));
                let state = known.and_then(|id| self.node_state(id));
                let cordoned = cordoned.is_some_and(|n| n.cordoned);
                meet(NODE, node_row(state, cordoned), 0);
            }
            Input::Start => meet(JOB, self.s.job_row(), 0),
            Input::Timeout => meet(JOB, self.s.job_row(), 1),
            Input::ClientRouteRequested { .. } => meet(JOB, self.s.job_row(), 2),
            Input::RouteReleased { .. } => meet(JOB, self.s.job_row(), 3),
            Input::ServiceLost { .. } => meet(JOB, self.s.job_row(), 4),
            Input::Stop => meet(JOB, self.s.job_row(), 5),
            Input::StoodStill => meet(JOB, self.s.job_row(), 6),
            Input::Operator(_, request) => {
                meet(JOB, self.s.job_row(), OF_OTHERS.len() + request.kind());
            }
        }
    }

    /// How many of these machines are in the state of this row.
    pub fn in_state(&self, machine: Machine, row: usize) -> usize {
        match machine {
            Machine::Instance(role) => {
                let all = self.s.roster.instances().role(role);
                all.filter(|i| self.s.instance_row(i) == row).count()
            }
            Machine::Gang => usize::from(self.s.gang_row() == row),
            Machine::Node => {
                let rows = self
                    .s
                    .roster
                    .nodes()
                    .iter()
                    .map(|n| node_row(Some(n.state), n.cordoned));
                rows.filter(|of| *of == row).count()
            }
            Machine::Job => usize::from(self.s.job_row() == row),
        }
    }
}

/// Which row a machine is in.
impl State {
    fn job_row(&self) -> usize {
        match (&self.job, self.orders.pause(), self.orders.planned()) {
            (JobState::New, _, _) => 0,
            (JobState::Over(_), _, _) => 5,
            (JobState::Running, Some(pause), _) => 3 + usize::from(pause.reached),
            (JobState::Running, None, Some(_)) => 2,
            (JobState::Running, None, None) => 1,
        }
    }

    fn gang_row(&self) -> usize {
        match self.gang.stage() {
            Stage::Forming => 1,
            Stage::Restoring => 2,
            Stage::Ready => 3,
            Stage::Publishing(_) => 4,
            Stage::Preparing(_) => 5,
            Stage::Training(_) => 6,
        }
    }

    fn trajectory_row(&self, trajectory: TrajectoryId, from: Incarnation) -> usize {
        match self.work.requests.table().get(trajectory).map(|t| t.place) {
            None => 0,
            Some(Place::Pending(_)) => 1,
            Some(Place::Leased(holder)) if holder == from => 2,
            Some(Place::Leased(_)) => 3,
            Some(Place::Finished { .. }) => 4,
            Some(Place::SetAside) => 5,
        }
    }

    fn instance_row(&self, i: &Instance) -> usize {
        match i.life() {
            // A place whose process is gone has no incarnation that anybody speaks for, but while its number
            // is on record and its restart waits.
            Life::None | Life::Waiting { .. } | Life::Homeless => 1,
            Life::Spawning { .. } => 2,
            Life::Starting { .. } => 3,
            _ if i.condemned().is_some() => 8,
            Life::Unlinked { .. } => 9,
            Life::Attached if i.going() => 7,
            Life::Attached if i.suspect().is_some() => 6,
            Life::Attached if self.weights.of(i.id()).pull().is_some() => 5,
            Life::Attached => 4,
        }
    }
}

fn node_row(state: Option<NodeState>, cordoned: bool) -> usize {
    match state {
        None => 0,
        Some(NodeState::Awaited) => 1,
        Some(NodeState::Here) if cordoned => 3,
        Some(NodeState::Here) => 2,
        Some(NodeState::Lost) => 4,
        Some(NodeState::Left) => 5,
    }
}

fn role_column(event: &RoleEvent) -> usize {
    match event {
        RoleEvent::Spawned { .. } => 0,
        RoleEvent::SpawnFailed { .. } => 1,
        RoleEvent::Attached { .. } => 2,
        RoleEvent::Detached => 3,
        RoleEvent::Exited { .. } => 4,
        RoleEvent::PhaseChanged { .. } => 5,
        RoleEvent::Sampled { .. } => 6,
        RoleEvent::Probed { .. } => 7,
        RoleEvent::Evidence { .. } => 8,
        RoleEvent::Switched { .. } => 9,
        RoleEvent::PullStarted { .. } => 10,
        RoleEvent::PullProgress { .. } => 11,
        RoleEvent::Pulled { .. } => 12,
        RoleEvent::TrajectoryFinished { .. } => 13,
        RoleEvent::TrajectoryReturned { .. } => 14,
        RoleEvent::RouteRequested { .. } => 15,
        RoleEvent::FaultStruck { .. } => 16,
        RoleEvent::Damaged { .. } => 17,
    }
}

fn gang_column(event: &GangEvent) -> usize {
    match event {
        GangEvent::Restored { .. } => 0,
        GangEvent::Prepared { .. } => 1,
        GangEvent::StepDone { .. } => 2,
        GangEvent::TrainerOver => 3,
        GangEvent::StepFailed { .. } => 4,
        GangEvent::Published { .. } => 5,
    }
}

/// What the gang, too, hears of what happens to one instance.
fn gang_column_of(role: Role, event: &RoleEvent) -> Option<usize> {
    match (role, event) {
        (Role::Trainer, RoleEvent::Attached { .. }) => Some(6),
        (Role::Trainer, RoleEvent::Detached) => Some(7),
        (Role::Trainer, RoleEvent::Exited { .. }) => Some(8),
        (Role::Hybrid | Role::Rollout, RoleEvent::Exited { .. }) => Some(9),
        (Role::Agent, RoleEvent::Exited { .. }) => Some(10),
        _ => None,
    }
}

fn node_column(event: &NodeEvent) -> usize {
    match event {
        NodeEvent::Beat => 1,
        // That it will, or that it does.
        NodeEvent::Leaving { .. } | NodeEvent::Left { .. } => 2,
        NodeEvent::Hardware { .. } => 3,
    }
}

fn trajectory_column(event: &RoleEvent) -> Option<(TrajectoryId, usize)> {
    match event {
        RoleEvent::TrajectoryFinished { trajectory, .. } => Some((*trajectory, 0)),
        RoleEvent::TrajectoryReturned { trajectory, .. } => Some((*trajectory, 1)),
        RoleEvent::RouteRequested { trajectory, .. } => Some((*trajectory, 2)),
        _ => None,
    }
}
