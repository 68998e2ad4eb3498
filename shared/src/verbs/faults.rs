//! Verbs about faults: on purpose, and what people write about them.

/// `robustctl inject`.
pub mod inject {
    use crate::verbs::{Searched, Sentence, Verb, fills};

    /// The question, but for the commonest faults, which have words of their own.
    pub const ASKS: Sentence<3> = Sentence::new("Inject `{fault}` into {whom}{when}?");
    /// A yes to one that waits for its moment; else it is the fault's name.
    pub const YES_LATER: &str = "arm it";
    /// The verb. What follows depends on the fault and on whom it befalls.
    pub const VERB: Verb = Verb {
        command: "inject",
        about: "Strike an instance, a node or the leader with a real fault",
        call: "Inject",
        takes: &[
            fills("--fault", &["fault", "role", "node"]),
            fills("--index", &["index"]),
            fills("--incarnation", &["incarnation"]),
            fills("--at", &["at"]),
            fills("--code", &["code"]),
            fills("--seconds", &["seconds"]),
            fills("--percent", &["percent"]),
            fills("--peer", &["peer"]),
            fills("--event", &["event"]),
            fills("--i-know", &["i_know"]),
            fills("--wait", &["wait"]),
            fills("--timeout", &["wait_timeout_ms"]),
        ],
        sets: &[],
        strikes: true,
        asks: Some(ASKS.text()),
        means: &[],
        undo: Some("inject --disarm"),
        searched: Searched::As(&["inject", "inject at", "afflict"]),
    };
}

/// `robustctl inject --disarm`.
pub mod disarm {
    use crate::verbs::{Searched, Sentence, Verb, fills};

    /// The question.
    pub const ASKS: Sentence<1> = Sentence::new("Take back `{fault}`?");
    /// A yes.
    pub const YES: &str = "take it back";
    /// What follows.
    pub const MEANS: Sentence<1> = Sentence::new("{whom} is not struck by it any more.");
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "inject --disarm",
        about: "Take back a fault that waits, by its number, or `all`",
        call: "Disarm",
        takes: &[fills("ID", &["id"])],
        sets: &[],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MEANS.text()],
        undo: None,
        searched: Searched::As(&["disarm"]),
    };
}

/// `robustctl note`.
pub mod note {
    use crate::verbs::{Searched, Sentence, Verb, fills};

    /// The question.
    pub const ASKS: Sentence<1> = Sentence::new("Note this on incident {incident}?");
    /// A yes.
    pub const YES: &str = "note it";
    /// What follows.
    pub const MEANS: Sentence<0> = Sentence::new(
        "It is kept with the incident, with your name and the time, and cannot be taken back.",
    );
    /// The answer.
    pub const DONE: Sentence<2> = Sentence::new("note {count} of incident {incident} is kept");
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "note",
        about: "Write a line beside an incident, which may be over: statuses and reports show it, with who wrote it",
        call: "Note",
        takes: &[fills("INCIDENT", &["incident"]), fills("TEXT", &["text"])],
        sets: &[],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MEANS.text()],
        undo: None,
        searched: Searched::Never(
            "the daemon keeps notes beside the controller, which hears of none",
        ),
    };
}
