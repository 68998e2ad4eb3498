//! Verbs about the job as a whole: whether it goes on, and with which processes.

/// `robustctl pause`.
pub mod pause {
    use crate::verbs::{Searched, Sentence, Verb};

    /// The question.
    pub const ASKS: Sentence<0> = Sentence::new("Pause the job?");
    /// A yes.
    pub const YES: &str = "pause";
    /// What follows.
    pub const MEANS: Sentence<0> = Sentence::new(
        "The step under way ends and is committed; no further one is begun until it is resumed, also by a daemon that \
         starts again. No process ends.",
    );
    /// The answer.
    pub const DONE: Sentence<1> = Sentence::new("the job pauses: {when}");
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "pause",
        about: "Begin nothing after the step under way, until `resume`; nothing is stopped or lost",
        call: "Pause",
        takes: &[],
        sets: &[],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MEANS.text()],
        undo: Some("resume"),
        searched: Searched::As(&["pause"]),
    };
}

/// `robustctl resume`.
pub mod resume {
    use crate::verbs::{Searched, Sentence, Verb};

    /// The question.
    pub const ASKS: Sentence<0> = Sentence::new("Resume the job?");
    /// A yes.
    pub const YES: &str = "resume";
    /// What follows.
    pub const MEANS: Sentence<0> = Sentence::new("The next step is begun at once.");
    /// The answer.
    pub const DONE: Sentence<0> = Sentence::new("the job goes on");
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "resume",
        about: "Go on with a paused job",
        call: "Resume",
        takes: &[],
        sets: &[],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MEANS.text()],
        undo: Some("pause"),
        searched: Searched::As(&["resume"]),
    };
}

/// `robustctl restart`.
pub mod restart {
    use crate::verbs::{Searched, Sentence, Verb, fills};

    /// The question.
    pub const ASKS: Sentence<1> = Sentence::new("Restart {whom}?");
    /// A yes.
    pub const YES: &str = "restart";
    /// What follows for everything.
    pub const OF_TASK: Sentence<0> =
        Sentence::new("Every process ends and is started again from the last committed step.");
    /// What follows for the trainer's ranks.
    pub const OF_GANG: Sentence<1> = Sentence::new(
        "{ranks} processes together; nothing is trained twice, and rollouts go on generating.",
    );
    /// What follows for another instance.
    pub const OF_ONE: Sentence<1> = Sentence::new("It gets a new process. {then}");
    /// What holds of all of them.
    pub const MEANS: Sentence<0> =
        Sentence::new("It is no fault: no budget is used, and it is counted apart.");
    /// The answer.
    pub const DONE: Sentence<2> = Sentence::new("{whom} is restarted: {when}");
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "restart",
        about: "New processes for an instance, a role or the whole task, without a fault",
        call: "Restart",
        takes: &[fills("ROLE[-N]|task", &["role", "index"])],
        sets: &[],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MEANS.text()],
        undo: None,
        searched: Searched::As(&["restart"]),
    };
}

/// `robustctl stop`.
pub mod stop {
    use crate::verbs::{Searched, Sentence, Verb};

    /// The question.
    pub const ASKS: Sentence<0> = Sentence::new("End the job?");
    /// A yes.
    pub const YES: &str = "end the job";
    /// What follows.
    pub const MEANS: Sentence<0> = Sentence::new(
        "The job ends at its last committed step, every role and the daemon with it.",
    );
    /// The verb.
    pub const VERB: Verb = Verb {
        command: "stop",
        about: "End the job and its daemon in order",
        call: "Stop",
        takes: &[],
        sets: &[],
        strikes: false,
        asks: Some(ASKS.text()),
        means: &[MEANS.text()],
        undo: None,
        searched: Searched::As(&["stop"]),
    };
}
