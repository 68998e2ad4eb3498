//! Names of things: roles, instances, fencing numbers, versions, trajectories.
use crate::wire::Word;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A kind of work a process does for the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A rank of the training gang.
    Trainer,
    /// A rollout engine on a trainer's slot, which it shares with the rank of its index: one of the
    /// two works at a time.
    Hybrid,
    /// An independent generation replica.
    Rollout,
    /// An agent worker: runs multi-turn conversations and their tools.
    Agent,
}

impl Role {
    /// Every role, in the order they are shown.
    pub const ALL: [Role; 4] = [Role::Trainer, Role::Hybrid, Role::Rollout, Role::Agent];

    /// The name used in job files, commands and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Role::Trainer => "trainer",
            Role::Hybrid => "hybrid",
            Role::Rollout => "rollout",
            Role::Agent => "agent",
        }
    }

    /// Whether it generates tokens: requests are routed to it, and it pulls weights.
    pub fn is_engine(self) -> bool {
        matches!(self, Role::Rollout | Role::Hybrid)
    }
}

impl Word for Role {
    const ALL: &'static [Self] = &Role::ALL;

    fn word(self) -> &'static str {
        self.name()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is no role's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown role `{0}`; roles are trainer, hybrid, rollout, agent")]
pub struct UnknownRole(pub String);

impl FromStr for Role {
    type Err = UnknownRole;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Role::ALL
            .into_iter()
            .find(|r| r.name() == s)
            .ok_or_else(|| UnknownRole(s.to_owned()))
    }
}

/// A place in the job: rank 1 of the trainer, replica 0 of the rollouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceId {
    /// What it does.
    pub role: Role,
    /// Rank or replica number, from 0.
    pub index: u32,
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}", self.role, self.index))
    }
}

/// The text is no instance's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no instance; write role and number, as in `rollout-1`")]
pub struct UnknownInstance(pub String);

impl FromStr for InstanceId {
    type Err = UnknownInstance;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let parts = s.rsplit_once('-');
        let id = parts.and_then(|(role, index)| {
            Some(InstanceId {
                role: role.parse().ok()?,
                index: index.parse().ok()?,
            })
        });
        id.ok_or_else(|| UnknownInstance(s.to_owned()))
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The number that follows.
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

/// A machine of the job: its place in the core's table of nodes, never used again. Node 0 is the
/// leader's own.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The node whose daemon leads the job.
    pub const LEADER: NodeId = NodeId(0);
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

number!(
    /// The fencing number of one running process of a role; never reused in a job.
    Incarnation,
    "#"
);
number!(
    /// The fencing number of one life of the whole trainer gang.
    Generation,
    "g"
);
number!(
    /// One RL iteration; step 1 is the first.
    Step,
    ""
);
number!(
    /// The weights after that step; 0 is the initial weights.
    WeightVersion,
    "v"
);
number!(
    /// One fault and its recovery.
    IncidentId,
    ""
);

/// A trajectory's name: which batch (= the step that will consume it), which prompt of that batch
/// (group) and which response to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TrajectoryId {
    /// The step that consumes it.
    pub batch: u64,
    /// The prompt within the batch.
    pub group: u32,
    /// The response within the group.
    pub member: u32,
}

impl TrajectoryId {
    /// A key that orders like the id; used by stores and as the sampler's trajectory number.
    /// Injective for up to 65,536 groups of up to 65,536 members.
    pub fn key(self) -> u64 {
        (self.batch << 32)
            | (u64::from(self.group & 0xffff) << 16)
            | u64::from(self.member & 0xffff)
    }

    /// The inverse of [`Self::key`].
    pub fn from_key(key: u64) -> Self {
        let low = |shift: u32| u32::try_from((key >> shift) & 0xffff).unwrap_or(0);
        Self {
            batch: key >> 32,
            group: low(16),
            member: low(0),
        }
    }
}

impl fmt::Display for TrajectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.batch, self.group, self.member)
    }
}
