//! What the store gives back.
use super::keys::Key;
use robust_proto::v1::{Span, Turn};
use robust_shared::core::{Provenance, StepMetrics};
use robust_shared::ids::{Generation, Incarnation, InstanceId, Step, TrajectoryId};
use robust_shared::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Said by `open` when the database was damaged and a new one made. `Display` says it plainly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenNote {
    /// Where the damaged one is now.
    pub set_aside: PathBuf,
    /// What was wrong with it.
    pub reason: String,
}

impl std::fmt::Display for OpenNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the database was damaged ({}) and is set aside as {}; a new, empty one is used: \
             trajectories, journal and events begin anew, checkpoints are found by their manifests",
            self.reason,
            self.set_aside.display()
        )
    }
}

/// What became of a turn, of tokens of one under way, or of a trajectory's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// Stored now.
    Stored,
    /// The very same was stored before.
    Repeated,
    /// Another one was stored before; it stays, this one is dropped.
    Already,
}

/// What changes, with a record, of what the daemon remembers ([`super::keys`]: `c` and `d`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remembered {
    /// The puts are all there is: whatever else was remembered goes.
    pub whole: bool,
    /// Values that are new.
    pub puts: Vec<(Key, Vec<u8>)>,
    /// Those that are no more, if they ever were.
    pub removed: Vec<Key>,
}

/// The end of a trajectory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finish {
    /// Its reward.
    pub reward: f64,
    /// The final answer.
    pub answer: String,
    /// The oldest weight version that produced any of its spans.
    pub oldest_version: u64,
    /// How many turns it has.
    pub turns: u32,
    /// The number of the lease under which it was brought to its end; 0: a former build stored it.
    #[serde(default)]
    pub lease: u64,
    /// The life of the agent worker that brought it there; 0: a former build stored it.
    #[serde(default)]
    pub agent: Incarnation,
}

impl Finish {
    /// Whether the other says the same of the trajectory, whoever says it.
    pub fn says_same(&self, other: &Self) -> bool {
        let said = |f: &Self| (f.reward.to_bits(), f.oldest_version, f.turns);
        said(self) == said(other) && self.answer == other.answer
    }
}

/// A trajectory as stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredTrajectory {
    /// Token ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Its turns, from 0 without a gap.
    pub turns: Vec<Turn>,
    /// What is stored of the turn after those.
    pub running: Vec<Span>,
    /// Its end, once it has one.
    pub finished: Option<Finish>,
    /// The committed step that consumed it, once one did.
    pub consumed_by: Option<Step>,
}

/// The figures of a committed step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredStep {
    /// The step.
    pub step: Step,
    /// When its record was submitted.
    pub at: Time,
    /// The gang that did it.
    pub generation: Generation,
    /// Its figures.
    pub metrics: StepMetrics,
    /// The number of its record in the journal; none: a former build wrote it.
    #[serde(default)]
    pub record: Option<u64>,
    /// The first batch whose trajectories are kept from this step on; none: a former build wrote it.
    #[serde(default)]
    pub kept_from: Option<u64>,
}

/// A committed step with what its record says.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// The step and its figures.
    pub figures: StoredStep,
    /// Consumed by it, in order.
    pub trajectories: Vec<TrajectoryId>,
    /// How they came to it; none: a former build committed it.
    pub provenance: Option<Provenance>,
}

/// Whether the trajectories of a batch that is consumed are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// They are.
    Kept,
    /// They were removed.
    Removed {
        /// With the commit of this step; none: perhaps before, by a former build.
        with: Option<Step>,
    },
    /// It is not known: a former build committed a step since, which did not say what it removed, or the batch's own step
    /// is not on record.
    Unknown,
}

/// What is on record under a trajectory's own name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnRecord {
    /// Its turns and its end; none: nothing of it is stored.
    pub stored: Option<StoredTrajectory>,
    /// The step that it names as the one that consumed it.
    pub consumed_by: Option<Step>,
    /// Whether it is listed as finished and not consumed.
    pub is_waiting: bool,
}

/// What an operator wrote beside an incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredNote {
    /// When.
    pub at: Time,
    /// Who, as the audit log names him.
    pub who: String,
    /// What: a line.
    pub text: String,
}

/// What the receiver of the webhook has been told, or is not told any more as it could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The last incident whose begin it knows.
    pub begun: u64,
    /// Those of them whose end it does not know.
    pub open: BTreeSet<u64>,
    /// Alarms that it takes for raised, with the Unix time in ms when each was.
    pub alarms: BTreeMap<String, u64>,
}

/// A process to be adopted after a restart of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredInstance {
    /// Its place.
    pub id: InstanceId,
    /// Its fencing number.
    pub incarnation: Incarnation,
    /// Its gang's fencing number (trainers; 0 otherwise).
    pub generation: Generation,
    /// Its process id.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`.
    pub start_time: u64,
}

/// A complete checkpoint. The truth is its manifest file; this can be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCheckpoint {
    /// The step.
    pub step: Step,
    /// Its folder's name under `STATE/ckpt`.
    pub folder: String,
    /// Bytes of all shards.
    pub bytes: u64,
    /// When it was complete.
    pub at: Time,
}
