//! What operators ask for.
use crate::core::config::CoreConfig;
use crate::fault::{At, Fault};
use crate::ids::{Incarnation, InstanceId, Role};
use serde::{Deserialize, Serialize};

/// An operator's wish. Each is answered by one [`crate::core::Output::Reply`] with its ticket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Fault injection: strike an instance for real.
    Inject {
        /// Names the request in the answer.
        ticket: u64,
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
        /// Names the request in the answer.
        ticket: u64,
        /// What.
        fault: Fault,
    },
    /// Injected faults shall not strike any more.
    Disarm {
        /// Names the request in the answer.
        ticket: u64,
        /// Which; all that wait when none is given.
        number: Option<u64>,
    },
    /// A lost slot is there again.
    RestoreSlot {
        /// Names the request in the answer.
        ticket: u64,
        /// The node's name.
        node: String,
        /// The pool's name.
        pool: String,
        /// The slot within the pool on that node, from 0.
        index: u32,
    },
    /// The job shall have this many instances of a role.
    Scale {
        /// Names the request in the answer.
        ticket: u64,
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
        /// Names the request in the answer.
        ticket: u64,
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
        /// Names the request in the answer.
        ticket: u64,
        /// A role with engines.
        role: Role,
        /// Which of them.
        index: u32,
    },
    /// The end of a quarantine.
    Readmit {
        /// Names the request in the answer.
        ticket: u64,
        /// A role with engines.
        role: Role,
        /// Which of them.
        index: u32,
    },
    /// Nothing new shall be started on a node.
    Cordon {
        /// Names the request in the answer.
        ticket: u64,
        /// Its name.
        node: String,
    },
    /// The end of a cordon.
    Uncordon {
        /// Names the request in the answer.
        ticket: u64,
        /// Its name.
        node: String,
    },
    /// Nothing shall be begun beyond the step under way.
    Pause {
        /// Names the request in the answer.
        ticket: u64,
    },
    /// The end of a pause.
    Resume {
        /// Names the request in the answer.
        ticket: u64,
    },
    /// New processes without a fault.
    Restart {
        /// Names the request in the answer.
        ticket: u64,
        /// Whose.
        target: RestartTarget,
    },
    /// End the job.
    Stop,
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
