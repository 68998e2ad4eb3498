//! What the daemon of a node says of it.
use crate::hardware::Finding;
use crate::ids::Incarnation;
use serde::{Deserialize, Serialize};

/// One thing that happened to a node that the job knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NodeEvent {
    /// Its daemon is alive.
    Beat,
    /// Its daemon says that it will leave: nobody new comes to it, and who is there moves when he can.
    Leaving {
        /// Why.
        reason: String,
    },
    /// Its daemon says that it leaves; its role processes end with it.
    Left {
        /// Why.
        reason: String,
    },
    /// A device of it showed something.
    Hardware {
        /// The device's number on it.
        device: u32,
        /// What it showed.
        finding: Finding,
        /// The incarnations whose processes compute on it.
        #[serde(default)]
        users: Vec<Incarnation>,
    },
}
