//! Verbs about nodes and their slots.

/// `robustctl cordon`.
pub mod cordon {
    use crate::verbs::{Searched, Sentence, Verb, fills};

    /// The question.
    pub const ASKS: Sentence<1> = Sentence::new("Cordon {node}?");
    /// A yes.
    pub const YES: &str = "cordon";
    /// What follows.
    pub const MEANS: Sentence<1> = Sentence::new(
        "{instances} go on there; nothing new is started on it, and what fails is started elsewhere.",
    );
    /// The answer.
    pub const DONE: Sentence<1> =
        Sentence::new("nothing new is started on {node}; what runs there goes on");
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "cordon",
        about: "Start nothing new on a node; what runs there goes on",
        call: "Cordon",
        takes: &[fills("NODE", &["node"])],
        sets: &["out"],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MEANS.text()],
        undo: Some("uncordon"),
        searched: Searched::As(&["cordon"]),
    };
}

/// `robustctl uncordon`.
pub mod uncordon {
    use crate::verbs::{Searched, Sentence, Verb, fills};

    /// The question.
    pub const ASKS: Sentence<1> = Sentence::new("Uncordon {node}?");
    /// A yes.
    pub const YES: &str = "uncordon";
    /// What follows.
    pub const MEANS: Sentence<0> = Sentence::new("It may be used for new instances again.");
    /// The answer.
    pub const DONE: Sentence<1> = Sentence::new("{node} may be used again");
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "uncordon",
        about: "The end of a cordon",
        call: "Cordon",
        takes: &[fills("NODE", &["node"])],
        sets: &["out"],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MEANS.text()],
        undo: Some("cordon"),
        searched: Searched::As(&["uncordon"]),
    };
}

/// `robustctl restore-slot`.
pub mod restore_slot {
    use crate::verbs::{Searched, Sentence, Verb, fills};

    /// The question.
    pub const ASKS: Sentence<2> = Sentence::new("Restore slot {index} of {pool}?");
    /// A yes.
    pub const YES: &str = "restore";
    /// What follows.
    pub const MEANS: Sentence<3> = Sentence::new(
        "The daemon may place instances on slot {index} of pool {pool} on {node} again.",
    );
    /// The answer.
    pub const DONE: Sentence<3> =
        Sentence::new("slot {index} of pool `{pool}` on {node} is there again");
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "restore-slot",
        about: "A lost slot is there again",
        call: "RestoreSlot",
        takes: &[
            fills("NODE", &["node"]),
            fills("POOL", &["pool"]),
            fills("N", &["index"]),
        ],
        sets: &[],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MEANS.text()],
        undo: None,
        searched: Searched::As(&["restore slot"]),
    };
}
