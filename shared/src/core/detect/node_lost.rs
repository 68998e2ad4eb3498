//! Node lost: the heartbeat of a node's daemon stopped, or the daemon left. Whatever ran there is
//! given up: one incident for the gang if a rank was there, one for every other instance. The
//! leader's own node is not watched: who would.
use super::{ForAll, Rule, Setting, settings};
use crate::core::FaultKind;
use crate::ids::Role;
use std::time::Duration;

/// A node that is not heard any more.
pub const RULE: Rule = Rule {
    name: "node lost",
    roles: &Role::ALL,
    phases: &[],
    signal: "no heartbeat of the node's daemon (one comes every second), or it left",
    action: "everything on the node starts anew elsewhere; what it still runs is fenced",
    kind: Some(FaultKind::Node),
    event: None,
    // A node has a timer of its own: `Core::node_deadline`.
    watch: None,
};

settings! {
    /// What a job file may set of it.
    pub struct NodeLost {
        /// How long a node may not be heard.
        pub window: ForAll<Duration> = Setting::seconds("window_s", 5.0),
    }
}
