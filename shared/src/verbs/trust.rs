//! Verbs about who is believed: tokens and certificates. The console does not offer them, and the controller hears of
//! none of them.

/// Why the fault search asks for none of them.
const BESIDE: &str = "the daemon certifies beside the controller, which hears of nodes that joined";

/// `robustctl token create`.
pub mod token_create {
    use crate::verbs::{Searched, Verb, fills};

    /// The verb. A token of a person's own is made without a daemon.
    pub const VERB: Verb = Verb {
        command: "token create",
        about: "Make one and print it: it makes one machine a node, once, until its time is over; or it is a person's own",
        call: "CreateJoinToken",
        takes: &[fills("--node", &["node"]), fills("--ttl", &["ttl_s"])],
        sets: &[],
        strikes: false,
        asks: None,
        means: &[],
        undo: Some("token revoke"),
        searched: Searched::Never(super::BESIDE),
    };
}

/// `robustctl token revoke`.
pub mod token_revoke {
    use crate::verbs::{Searched, Verb, fills};

    /// The verb.
    pub const VERB: Verb = Verb {
        command: "token revoke",
        about: "Take a token back, or a node's certificate: it is out at once",
        call: "RevokeJoin",
        takes: &[fills("ID", &["token"]), fills("--node", &["node"])],
        sets: &[],
        strikes: false,
        asks: None,
        means: &[],
        undo: None,
        searched: Searched::Never(super::BESIDE),
    };
}

/// `robustctl ca rotate`.
pub mod ca_rotate {
    use crate::verbs::{Searched, Verb, fills};

    /// The verb.
    pub const VERB: Verb = Verb {
        command: "ca rotate",
        about: "Replace the leader's secret while the job runs: nodes and roles get certificates by the new one",
        call: "RotateAuthority",
        takes: &[fills("--now", &["now"])],
        sets: &[],
        strikes: false,
        asks: None,
        means: &[],
        undo: None,
        searched: Searched::Never(super::BESIDE),
    };
}
