//! Who is where: instances with their present incarnation, slots, nodes, and what is derived from them.
//!
//! ```text
//!  what an instance, a node or another machine says ──► [`Roster`]: places, machines ──► touched
//!                                                                                          │
//!        placement: where one is to run ◄── index: counts, ordered sets, slots ◄── refresh ┘
//!                                                                                   └──► news for the others
//! ```
//! All of it is private and changed by named transitions alone. The other machines see instances and nodes
//! through shared references, what is derived through the index; what of it concerns them they are told as
//! news (`router/derive`).
mod access;
mod derived;
pub(in crate::core) mod index;
pub(in crate::core) mod instance;
pub(in crate::core) mod instances;
pub(in crate::core) mod nodes;

pub use derived::News;

use crate::core::config::CoreConfig;
use crate::core::roster::instance::Instance;
use crate::core::weights::{Holder, Weights};
use crate::ids::{Incarnation, InstanceId};
use crate::time::Time;
use derived::Due;
use index::Index;
use instances::Instances;
use nodes::{Node, NodeTable, Placement};
use serde::{Deserialize, Serialize};

/// Who is where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Roster {
    /// The number of the next incarnation; none is used twice in a job.
    next_incarnation: Incarnation,
    /// The machines of the job.
    #[serde(default)]
    nodes: NodeTable,
    /// The places of the job.
    instances: Instances,
    /// Derived from both, and from what the others know.
    #[serde(skip)]
    index: Index,
    /// What is to be done about it.
    #[serde(skip)]
    due: Due,
    /// Instances whose timers are to be set; kept for its memory.
    #[serde(skip)]
    rearm: Vec<InstanceId>,
}

/// Nobody, nowhere.
impl Default for Roster {
    fn default() -> Self {
        Self::of(Vec::new(), Vec::new())
    }
}

/// Equal are those that remember the same, whatever was derived from it so far.
impl PartialEq for Roster {
    fn eq(&self, other: &Self) -> bool {
        self.next_incarnation == other.next_incarnation
            && (&self.nodes, &self.instances) == (&other.nodes, &other.instances)
    }
}

impl Roster {
    /// Every place and every machine of a job that begins.
    pub fn new(config: &CoreConfig) -> Self {
        Self {
            nodes: NodeTable::new(config.first_nodes()),
            instances: Instances::new(config),
            ..Self::default()
        }
    }

    /// As it was stored, in the order of numbers; nothing is derived yet.
    pub fn of(nodes: Vec<Node>, instances: Vec<Instance>) -> Self {
        Self {
            next_incarnation: Incarnation(1),
            nodes: nodes.into_iter().collect(),
            instances: instances.into_iter().collect(),
            index: Index::default(),
            due: Due::default(),
            rearm: Vec::new(),
        }
    }

    /// The same, of which nothing is derived yet; with a job's first machines where it is of before there
    /// were any.
    pub fn resumed(mut self, config: &CoreConfig) -> Self {
        self.instances = self.instances.all_touched();
        self.nodes = match self.nodes.is_empty() {
            true => NodeTable::new(config.first_nodes()),
            false => self.nodes.all_changed(),
        };
        (self.index, self.due) = Default::default();
        self
    }

    /// A job that was stopped goes on: every process of it has ended. Numbers go on.
    pub fn begin_anew(&mut self, config: &CoreConfig) {
        *self = Self {
            next_incarnation: self.next_incarnation,
            ..Self::new(config)
        };
    }

    /// What an earlier build stored with instances of the weights that they have.
    pub fn take_former(&mut self) -> Vec<(InstanceId, Holder)> {
        self.instances.take_former()
    }

    /// The places of the job.
    pub fn instances(&self) -> &Instances {
        &self.instances
    }

    /// The machines of the job.
    pub fn nodes(&self) -> &NodeTable {
        &self.nodes
    }

    /// The number of the next incarnation.
    pub fn next_incarnation(&self) -> Incarnation {
        self.next_incarnation
    }

    /// Numbers go on from that one.
    pub fn number_from(&mut self, next: Incarnation) {
        self.next_incarnation = next;
    }

    /// The number of a new incarnation, which is used up with it.
    pub fn take_number(&mut self) -> Incarnation {
        let number = self.next_incarnation;
        self.next_incarnation = number.next();
        number
    }

    /// What was derived, as it was last brought up to date.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// What decides where an instance is to run, as the index was last brought up to date.
    pub fn placement<'a>(
        &'a self,
        now: Time,
        config: &'a CoreConfig,
        weights: &'a Weights,
    ) -> Placement<'a> {
        Placement {
            now,
            config,
            instances: &self.instances,
            nodes: &self.nodes,
            slots: self.index.slots(),
            weights,
        }
    }
}
