//! The state in entries: what is written down with a record is what changed since the record before.
//!
//! ```text
//!  Core ── take_changes ──► Changes ──► disk: one stored key an entry ──► Entries ── state ──► Core::restore
//!   tables note (`changed`)  whole, the first time; then puts and removals
//!   which entries they changed
//! ```
//! Whoever changes an entry of a table does so through the table, which notes it: the cost of taking and
//! writing follows what changed, and so does the cost of finding it out. What has no table is small and
//! compared with what was last taken ([`EntryKey::Head`], [`EntryKey::Plans`], [`EntryKey::Gang`]), or
//! changes with every input anyway ([`EntryKey::Now`]). What an instance does, what is measured of it, and
//! when a node was heard of changes all the time and lies over the entry that it is part of: reading puts it in when that
//! entry is there already, so the order of keys is the order of reading.
//!
//! The fault search persists and restores through exactly this, and compares.
mod coded;
mod head;
mod key;
mod stored;
mod taken;

pub use coded::CodedError;
pub use key::EntryKey;
pub use stored::{Entries, EntryError};
pub(super) use taken::LastTaken;

use crate::core::detect::durations::Durations;
use crate::core::gang::Gang;
use crate::core::recover::Recovery;
use crate::core::recover::deaths::Deaths;
use crate::core::recover::incident::Incident;
use crate::core::roster::instance::Instance;
use crate::core::roster::instance::measured::Measured;
use crate::core::roster::nodes::Node;
use crate::core::weights::Holder;
use crate::core::work::trajectories::{Shape, Trajectory};
use crate::ettr;
use crate::ids::{Step, TrajectoryId};
use crate::time::Time;
use head::{Head, Now, Plans};
use serde::Serialize;

/// The value of an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry(Value);

impl Entry {
    /// The trajectory that it is.
    pub fn trajectory(&self) -> Option<&Trajectory> {
        match &self.0 {
            Value::Trajectory(t) => Some(t),
            _ => None,
        }
    }

    /// The last committed step, of the entry that has it ([`EntryKey::Head`]).
    pub fn committed(&self) -> Option<Step> {
        match &self.0 {
            Value::Head(head) => Some(head.committed()),
            _ => None,
        }
    }

    /// Whether it is a batch that has this trajectory.
    pub fn has(&self, id: TrajectoryId) -> bool {
        match &self.0 {
            Value::Batch(shape) => shape.has(id),
            _ => false,
        }
    }
}

/// Which it is its key says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Value {
    Now(Now),
    Head(Box<Head>),
    Plans(Box<Plans>),
    Gang(Box<Gang>),
    Node(Box<Node>),
    Beat(Time),
    Instance(Box<Instance>),
    Measured(Box<Measured>),
    Batch(Shape),
    Trajectory(Trajectory),
    Incident(Box<Incident>),
    Recovery(Recovery),
    Ledger(ettr::Part),
    Reward(f64),
    Deaths(Box<Deaths>),
    Durations(Durations),
    Holder(Box<Holder>),
}

/// What changed since it was last taken. A key is among the puts or among the removed, once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// The puts are all there is: whatever else was stored is of another life.
    pub whole: bool,
    /// Entries that are new, or have another value.
    pub puts: Vec<(EntryKey, Entry)>,
    /// Entries that are no more. One that was never stored may be among them.
    pub removed: Vec<EntryKey>,
}

impl Changes {
    /// How many entries they concern.
    pub fn len(&self) -> usize {
        self.puts.len() + self.removed.len()
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        !self.whole && self.len() == 0
    }

    /// An entry as it is now; none: it is no more.
    fn note(&mut self, key: EntryKey, value: Option<Value>) {
        match value {
            Some(value) => self.puts.push((key, Entry(value))),
            None if self.whole => {}
            None => self.removed.push(key),
        }
    }
}
