//! Why a drill is refused: where, what, and the fix.
use crate::fault::{AtError, FaultError, Kind};
use crate::ids::Role;
use crate::job::{JobError, Location, Problem};
use std::path::PathBuf;

/// A drill that cannot be run. Displays as one sentence: `file:line:column: problem; fix`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct DrillError {
    /// Where.
    pub at: Location,
    /// What, and what to do.
    pub problem: Box<DrillProblem>,
}

/// What is wrong with a drill.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DrillProblem {
    /// No TOML, an unknown key, a wrong type.
    #[error(transparent)]
    File(Problem),
    /// Made for another build.
    #[error(
        "`version` is {found}, and this robustctl reads version {}; use the one the file was made for",
        super::VERSION
    )]
    Version {
        /// As written.
        found: i64,
    },
    /// The list is empty.
    #[error("`{what}` is empty; add at least one")]
    Nothing {
        /// `runs` or `series`.
        what: &'static str,
    },
    /// A name that makes no metric's name.
    #[error(
        "{name:?} is no name for one of `{what}`, or is taken; use letters, digits and `_`, each \
         name once"
    )]
    Name {
        /// `runs` or `series`.
        what: &'static str,
        /// As written.
        name: String,
    },
    /// Nothing to measure the others against.
    #[error(
        "the first run, `{run}`, has a policy and so faults, but the others are measured against \
         it; put a run without `policy` first"
    )]
    NoMeasure {
        /// Its name.
        run: String,
    },
    /// A fault that comes never, or twice.
    #[error(
        "a fault needs one of `at_step`, `at_time`, `every_steps` and `random`, or `at` alone; write \
         exactly one"
    )]
    Moment,
    /// No fault.
    #[error(transparent)]
    Fault(FaultError),
    /// No moment of an instance's life.
    #[error(transparent)]
    At(AtError),
    /// No time.
    #[error("{why}")]
    Time {
        /// What is wrong with it.
        why: String,
    },
    /// A phase or a role for a fault that strikes no instance.
    #[error("`{kind}` strikes no instance; leave `role`, `index` and `at` out")]
    NoInstance {
        /// The fault.
        kind: Kind,
    },
    /// A fault that cannot befall the role.
    #[error("`{kind}` cannot befall a {role}; it can befall {can}")]
    NotItsFault {
        /// The fault.
        kind: Kind,
        /// The role.
        role: Role,
        /// Whom it can.
        can: String,
    },
    /// A node that cannot be lost.
    #[error("node `{node}` cannot be lost: {why}")]
    NoNode {
        /// As written.
        node: String,
        /// What is wrong with it.
        why: String,
    },
    /// Too many faults for the length of the run.
    #[error(
        "{count} faults at random places of {steps} steps: at most {most} fit, one in two steps"
    )]
    Crowded {
        /// As written.
        count: u64,
        /// Steps of the job.
        steps: u64,
        /// How many fit.
        most: u64,
    },
    /// Expectations as a list of sentences, which former builds read.
    #[error("`expect` is a list of sentences, and a table is read now; write `expect = {table}`")]
    Sentences {
        /// The table that says the same.
        table: String,
    },
    /// Expectations beside series.
    #[error("`expect` stands beside `series`; write it into each of them")]
    Expects,
    /// One run cannot be compared.
    #[error(
        "weights are compared between runs, and series `{series}` has one; add a run without `policy`"
    )]
    OneRun {
        /// The series.
        series: String,
    },
    /// Before the begin.
    #[error("a fault cannot come at {value}; count from 0, when the job begins to run")]
    Negative {
        /// As written.
        value: f64,
    },
    /// After the end.
    #[error(
        "a fault at step {at} of {steps} could come after the end; leave it at least a step to \
         recover in: at most {latest}"
    )]
    TooLate {
        /// As written.
        at: f64,
        /// Steps of the job.
        steps: u64,
        /// The last place.
        latest: f64,
    },
    /// A second fault before the first commit restarts the task by design.
    #[error(
        "faults every {every} steps in a job of {steps}: there must be room for a committed step \
         between two, and for one in all; write 2 to {steps}"
    )]
    Density {
        /// As written.
        every: u64,
        /// Steps of the job.
        steps: u64,
    },
    /// Nobody to strike.
    #[error("there is no {role} {index}: the job has {count}, numbered from 0; {fix}")]
    NoSuchInstance {
        /// The role.
        role: Role,
        /// As written.
        index: u32,
        /// How many the job has.
        count: u32,
        /// What to do.
        fix: String,
    },
    /// An expectation that says nothing.
    #[error("`{text}` is no expectation: {why}")]
    Expectation {
        /// As written.
        text: String,
        /// What is wrong with it and what to write.
        why: String,
    },
    /// A comparison that holds in one mode only.
    #[error(
        "`weights_identical` is promised in mode sync only (I-9), and series `{series}` runs in \
         mode {mode}; set `job.mode = \"sync\"` in it, or leave the expectation out"
    )]
    NotSync {
        /// The series.
        series: String,
        /// Its mode.
        mode: &'static str,
    },
    /// A value that the job refuses.
    #[error("with this value the job of series `{series}` is refused: {problem}")]
    Override {
        /// The series.
        series: String,
        /// The job's words.
        problem: Problem,
    },
    /// The job file itself is refused.
    #[error("its job file is refused: {0}")]
    Job(JobError),
    /// The job file cannot be read.
    #[error("the job file {} cannot be read: {reason}; paths are relative to the drill file", path.display())]
    NoJob {
        /// Where it was looked for.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
}
