//! Where every number of the scenarios comes from, and what the paper says came out.

/// Where a constant comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The paper's text or figures.
    Paper,
    /// Chosen so that what the paper does state comes out, or for want of a statement.
    Assumed,
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
    /// Why, for an assumed one.
    pub why: &'static str,
}

const fn paper(name: &'static str, value: &'static str) -> Constant {
    Constant {
        name,
        value,
        source: Source::Paper,
        why: "",
    }
}

const fn assumed(name: &'static str, value: &'static str, why: &'static str) -> Constant {
    Constant {
        name,
        value,
        source: Source::Assumed,
        why,
    }
}

/// Every constant with its source.
pub const CONSTANTS: &[Constant] = &[
    paper("GPUs", "8B-Math 256, 32B-Math 128, 32B-SWE 256"),
    paper("machine scheduling", "30 s"),
    paper("container", "30 s"),
    paper("engine start", "49 s"),
    paper("weight sync, 32B", "10 s"),
    paper("steps", "100"),
    paper(
        "faults",
        "1 trainer machine at a random time of every 10 steps",
    ),
    paper("hang windows", "rollout 60 s, trainer 5 min"),
    paper("longest rollout, 32B-SWE", "1,050 s"),
    assumed(
        "trainer start, load",
        "190 s, 5 s",
        "so that a restart of everything takes the paper's 300 s and more: 60 s machine and container, \
         190 s trainer, 49 s engines after it, 3-10 s sync; loaded from memory",
    ),
    assumed(
        "order of a whole start",
        "engines after the trainer",
        "worker groups are made one after the other",
    ),
    assumed("machine lost", "seen after 5 s", "the rule's default"),
    assumed("weight sync, 8B", "3 s", "a quarter of 32B's bytes"),
    assumed("context switch", "5 s", "offload and reload of an engine"),
    assumed(
        "training",
        "8B 24 s, 32B 90 s, SWE 160 s, snapshot 2 s",
        "with generation, 8B: policy task's ETTR is about the paper's 60%; 32B: steps of two minutes",
    ),
    assumed(
        "generation of a response",
        "log-normal, sigma 0.5; 8B median 14 s (most 55), 32B 40 s (150), SWE 300 s (945) in 8 turns",
        "long tails; SWE's longest conversation is the paper's 1,050 s with 7 tools of 15 s",
    ),
    assumed(
        "requests an engine computes at a time",
        "8B 15, 32B 26, SWE 24; more wait",
        "so that generating a batch takes longer than training on it",
    ),
    assumed("batch", "64 prompts x 8 responses", "not stated"),
    assumed(
        "machine",
        "8 GPUs, one instance; half of them train",
        "tensor parallelism within a machine; R/(R+T) is then a half",
    ),
    assumed(
        "batches ahead",
        "sync 0, else 1",
        "one-step warm-up; more of it in the table of causes",
    ),
];

/// What the paper states of the outcome.
pub const CLAIMS: &[(&str, &str)] = &[
    ("ETTR, 8B-Math on 256 GPUs, role", "over 80%"),
    ("ETTR, 8B-Math on 256 GPUs, task", "60%"),
    ("end to end, role against task", "8.4-17.4% faster"),
    ("trainer restart, role against task", "1.5-1.7 times faster"),
    ("restart overhead, role", "under 5%"),
    ("restart overhead, task", "20%"),
];
