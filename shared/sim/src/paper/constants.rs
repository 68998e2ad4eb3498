//! Where every number of the scenarios comes from.
//!
//! What is known here of the paper is its abstract (arXiv 2512.22492) and what was written down of it when
//! this was built, without the numbers of the sections. Where the section is not known that is said; no figure
//! of the paper is here that was not written down then.

/// Where a constant comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The paper says so, there.
    Stated(&'static str),
    /// It follows from what the paper says, by this formula.
    Derived(&'static str),
    /// The paper does not say it, or it is not known here what it says. Its range, and which of the variants
    /// ([`super::VARIANTS`]) go through it, if any do.
    Assumed(&'static str),
}

/// One constant of the scenarios.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Constant {
    /// What.
    pub name: &'static str,
    /// How much, with its unit.
    pub value: &'static str,
    /// Whose.
    pub source: Source,
}

const fn constant(name: &'static str, value: &'static str, source: Source) -> Constant {
    Constant {
        name,
        value,
        source,
    }
}

use Source::{Assumed, Derived, Stated};

const EVALUATION: &str = "evaluation, section not known here";

/// Every constant with its source.
pub const CONSTANTS: &[Constant] = &[
    constant("GPUs, 8B-Math", "256", Stated("abstract")),
    constant("GPUs, 32B-Math; 32B-SWE", "128; 256", Stated(EVALUATION)),
    constant(
        "fault",
        "all trainer processes are killed in place, no machine is scheduled",
        Stated(EVALUATION),
    ),
    constant(
        "faults",
        "1 at a random time of every 10 steps",
        Stated("abstract (10%); evaluation, section not known here"),
    ),
    constant("steps", "100", Stated(EVALUATION)),
    constant("machine scheduling", "30 s", Stated(EVALUATION)),
    constant("container", "30 s", Stated(EVALUATION)),
    constant("engine start", "49 s", Stated(EVALUATION)),
    constant("weight sync, 32B", "10 s", Stated(EVALUATION)),
    constant(
        "hang windows",
        "rollout 60 s, trainer 5 min",
        Stated("5.1.1"),
    ),
    constant("longest rollout, 32B-SWE", "1,050 s", Stated(EVALUATION)),
    constant(
        "weight sync, 8B",
        "3 s",
        Derived("10 s x 8/32 = 2.5 s, to whole seconds"),
    ),
    constant(
        "generation of the longest conversation, 32B-SWE",
        "945 s",
        Derived("1,050 s - 7 tool calls x 15 s; tool calls and their length are assumed"),
    ),
    constant(
        "trainer start, load",
        "190 s, 5 s",
        Assumed(
            "120 to 240 s. A restart of everything takes the paper's 300 s with 190 s where that includes 60 s of \
             machine and container (60 + 190 + 49 + about 1), and with 240 s where it does not",
        ),
    ),
    constant(
        "machines and containers made anew by policy task",
        "0 s",
        Assumed(
            "0 to 60 s: whether the baseline gives its machines back when everything is restarted in place",
        ),
    ),
    constant(
        "order of a whole start",
        "engines after the trainer",
        Assumed("or beside it; not varied"),
    ),
    constant(
        "machine lost",
        "seen after 5 s",
        Derived("the rule's default here"),
    ),
    constant("context switch", "5 s", Assumed("1 to 20 s; not varied")),
    constant(
        "training",
        "8B 24 s, 32B 90 s, SWE 160 s, snapshot 2 s",
        Assumed(
            "half to twice as long. 8B's was chosen so that policy task's ETTR was about the paper's 60% where machines \
             are lost, so that figure is no finding of this model",
        ),
    ),
    constant(
        "generation of a response",
        "log-normal, sigma 0.5; 8B median 14 s (most 55), 32B 40 s (150), SWE 300 s (945) in 8 turns",
        Assumed("long tails; varied by how many an engine computes at a time"),
    ),
    constant(
        "requests an engine computes at a time",
        "8B 15, 32B 26, SWE 24; more wait",
        Assumed(
            "half to all of that; chosen so that generating a batch takes longer than training on it",
        ),
    ),
    constant(
        "batch",
        "64 prompts x 8 responses",
        Assumed("32 to 128 prompts: the paper states it, and it is not known here what it states"),
    ),
    constant(
        "machine",
        "8 GPUs, one instance; half of them train",
        Assumed("R/(R+T) is then a half; not varied"),
    ),
    constant("batches ahead", "sync 0, else 1", Assumed("1 to 5")),
];
