//! What operators ask for.
use crate::core::config::CoreConfig;
use crate::fault::{At, Fault};
use crate::ids::{Incarnation, InstanceId, Role};
use serde::{Deserialize, Serialize};

/// An operator's wish. Each is answered by one [`crate::core::Output::Reply`] with the ticket that it
/// came with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Fault injection: strike an instance for real.
    Inject {
        /// What.
        fault: Fault,
        /// Whom; the lowest living index when no index is given.
        role: Role,
        /// Which of them.
        index: Option<u32>,
        /// The life that is meant; any when none is given.
        incarnation: Option<Incarnation>,
        /// When; at once when no moment is given.
        #[serde(default)]
        at: Option<At>,
    },
    /// Fault injection: strike a node or the leader.
    Afflict {
        /// What.
        fault: Fault,
    },
    /// Injected faults shall not strike any more.
    Disarm {
        /// Which; all that wait when none is given.
        number: Option<u64>,
    },
    /// A lost slot is there again.
    RestoreSlot {
        /// The node's name.
        node: String,
        /// The pool's name.
        pool: String,
        /// The slot within the pool on that node, from 0.
        index: u32,
    },
    /// The job shall have this many instances of a role.
    Scale {
        /// Which role.
        role: Role,
        /// How many.
        count: u32,
        /// The revision of the job file that says so; 0: none does.
        revision: u32,
    },
    /// New values for one role, which is restarted with them. Not part of recorded schedules: the
    /// rules in a configuration are values of the program.
    #[serde(skip)]
    Update {
        /// Which role.
        role: Role,
        /// The job's configuration with them.
        config: Box<CoreConfig>,
        /// The number of the job file's revision that has them.
        revision: u32,
        /// What differs, as `key = value`.
        changes: Vec<String>,
    },
    /// An engine shall get no traffic and serve no weights.
    Quarantine {
        /// A role with engines.
        role: Role,
        /// Which of them.
        index: u32,
    },
    /// The end of a quarantine.
    Readmit {
        /// A role with engines.
        role: Role,
        /// Which of them.
        index: u32,
    },
    /// Nothing new shall be started on a node.
    Cordon {
        /// Its name.
        node: String,
    },
    /// The end of a cordon.
    Uncordon {
        /// Its name.
        node: String,
    },
    /// Nothing shall be begun beyond the step under way.
    Pause,
    /// The end of a pause.
    Resume,
    /// New processes without a fault.
    Restart {
        /// Whose.
        target: RestartTarget,
    },
}

impl Request {
    /// What they are called where inputs are counted, by their number. The fuzz targets make each of them.
    pub const KINDS: [&str; 14] = [
        "inject",
        "inject at",
        "afflict",
        "disarm",
        "restore slot",
        "scale",
        "update",
        "quarantine",
        "readmit",
        "cordon",
        "uncordon",
        "pause",
        "resume",
        "restart",
    ];

    /// Its number among those.
    pub(in crate::core) fn kind(&self) -> usize {
        match self {
            Request::Inject { at: None, .. } => 0,
            Request::Inject { at: Some(_), .. } => 1,
            Request::Afflict { .. } => 2,
            Request::Disarm { .. } => 3,
            Request::RestoreSlot { .. } => 4,
            Request::Scale { .. } => 5,
            Request::Update { .. } => 6,
            Request::Quarantine { .. } => 7,
            Request::Readmit { .. } => 8,
            Request::Cordon { .. } => 9,
            Request::Uncordon { .. } => 10,
            Request::Pause => 11,
            Request::Resume => 12,
            Request::Restart { .. } => 13,
        }
    }
}

/// Whose processes an operator wants replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartTarget {
    /// One instance's; a rank takes its gang along.
    One(InstanceId),
    /// Those of a role, one after the other; the trainer's together.
    Role(Role),
    /// Everybody's.
    Task,
}
