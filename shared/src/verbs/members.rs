//! Verbs about who takes part in a job, and with which values.

/// `robustctl scale`.
pub mod scale {
    use crate::verbs::{Searched, Sentence, Verb, fills};

    /// The question.
    pub const ASKS: Sentence<3> = Sentence::new("Scale {role} from {from} to {to}?");
    /// A yes.
    pub const YES: &str = "scale";
    /// What follows where there are to be fewer.
    pub const FEWER: Sentence<3> = Sentence::new(
        "{so many} of {from} {role} instances end; what they were generating goes on elsewhere.",
    );
    /// What follows where there are to be more.
    pub const MORE: Sentence<2> = Sentence::new(
        "{so many} more {role} instances are started where slots are free; ranks at the next step boundary.",
    );
    /// The answer.
    pub const DONE: Sentence<4> = Sentence::new("{role} goes from {from} to {to}: {when}");
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "scale",
        about: "More or fewer instances of a role while the job runs",
        call: "Scale",
        takes: &[fills("ROLE", &["role"]), fills("N", &["count"])],
        sets: &[],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MORE.text(), FEWER.text()],
        undo: Some("scale"),
        searched: Searched::As(&["scale"]),
    };
}

/// `robustctl update`.
pub mod update {
    use crate::verbs::{Searched, Sentence, Verb, fills};

    /// The question.
    pub const ASKS: Sentence<1> = Sentence::new("Update {role}?");
    /// A yes.
    pub const YES: &str = "update";
    /// What follows.
    pub const MEANS: Sentence<1> =
        Sentence::new("Role {role} alone is restarted with it; refused, the job is as it was.");
    /// The answer.
    pub const DONE: Sentence<4> = Sentence::new(
        "{role} is restarted with {changes} (revision {revision} of the job): {when}",
    );
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "update",
        about: "New values for one role, which alone is restarted with them",
        call: "Update",
        takes: &[fills("ROLE", &["role"]), fills("--set", &["changes"])],
        sets: &[],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MEANS.text()],
        undo: Some("update"),
        searched: Searched::As(&["update"]),
    };
}

/// `robustctl quarantine`.
pub mod quarantine {
    use crate::verbs::{Searched, Sentence, Verb, fills};

    /// The question.
    pub const ASKS: Sentence<1> = Sentence::new("Take {engine} out of traffic?");
    /// A yes.
    pub const YES: &str = "quarantine";
    /// What follows.
    pub const MEANS: Sentence<0> = Sentence::new(
        "It finishes its turns and gets no new ones, whatever its health, until it is readmitted. Its peers take its \
         share.",
    );
    /// The answer.
    pub const DONE: Sentence<1> =
        Sentence::new("{engine} is quarantined: it finishes its turns and gets no new ones");
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "quarantine",
        about: "Take an engine out of traffic: it finishes its turns and gets no new ones, until `readmit`",
        call: "Quarantine",
        takes: &[fills("ROLE", &["role"]), fills("N", &["index"])],
        sets: &[],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MEANS.text()],
        undo: Some("readmit"),
        searched: Searched::As(&["quarantine"]),
    };
}

/// `robustctl readmit`.
pub mod readmit {
    use crate::verbs::{Searched, Sentence, Verb, fills};

    /// The question.
    pub const ASKS: Sentence<1> = Sentence::new("Let {engine} have traffic again?");
    /// A yes.
    pub const YES: &str = "readmit";
    /// What follows.
    pub const MEANS: Sentence<0> =
        Sentence::new("It is routed to again as soon as it is healthy and has the weights.");
    /// The answer.
    pub const DONE: Sentence<1> = Sentence::new("{engine} is readmitted");
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "readmit",
        about: "Let a quarantined engine have traffic again",
        call: "Readmit",
        takes: &[fills("ROLE", &["role"]), fills("N", &["index"])],
        sets: &[],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MEANS.text()],
        undo: Some("quarantine"),
        searched: Searched::As(&["readmit"]),
    };
}
