//! What the controllers of a job keep in the arbiter.
//!
//! | key below `robust/JOB/` | value | |
//! | --- | --- | --- |
//! | `leader` | [`Advert`], JSON | bound to the leader's lease; the revision that made it is the term's epoch |
//! | `head` | [`Head`], JSON | how far the log counts, put with each of its groups |
//! | `sign` | [`Sign`], JSON | put by the leader, several times a second |
//! | `members/NAME` | [`Member`], JSON | put by a candidate that follows, several times a second |
use robust_grouplog::Position;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Who leads, and where it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advert {
    /// The candidate's name.
    pub name: String,
    /// Where nodes join.
    #[serde(default)]
    pub nodes: String,
    /// Where `robustctl --connect` connects; empty: at its socket only.
    #[serde(default)]
    pub control: String,
}

/// How far the log counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The life of the job.
    pub run: String,
    /// The last group that counts.
    pub at: Position,
    /// How the job ended, once it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
}

/// A sign of a leader's life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sign {
    /// The leader's term.
    #[serde(default)]
    pub epoch: u64,
    /// Another one each time, by the leader's own clock, in microseconds.
    pub number: u64,
    /// Whether the leader has been waiting to write, and asks its followers to prove that they could.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
}

/// A candidate that follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The number of the last group that its store has.
    pub applied: u64,
    /// That it can write the log, where the leader asked for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proved: Option<Proof>,
    /// That it cannot lead, for want of files of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<Lacks>,
}

/// What a candidate that cannot lead has of the job's files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacks {
    /// Files that it has not.
    #[serde(default)]
    pub files: u32,
    /// Bytes of those that have not come.
    #[serde(default)]
    pub bytes: u64,
    /// Bytes of all files.
    #[serde(default)]
    pub of: u64,
    /// Why, in words.
    #[serde(default)]
    pub why: String,
}

/// A candidate wrote to the log after a leader's sign asked for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The term of the leader that asked: its clock is no other leader's.
    pub epoch: u64,
    /// The sign's number.
    pub number: u64,
}

/// The names of the keys.
#[derive(Clone, Debug)]
pub struct Keys {
    /// What all of them begin with.
    pub prefix: String,
}

impl Keys {
    /// Of a job.
    pub fn new(job: &str) -> Self {
        Self {
            prefix: format!("robust/{job}/"),
        }
    }

    pub fn leader(&self) -> String {
        format!("{}leader", self.prefix)
    }

    pub fn head(&self) -> String {
        format!("{}head", self.prefix)
    }

    pub fn sign(&self) -> String {
        format!("{}sign", self.prefix)
    }

    pub fn members(&self) -> String {
        format!("{}members/", self.prefix)
    }

    pub fn member(&self, name: &str) -> String {
        format!("{}{name}", self.members())
    }
}

/// A value as it is kept.
pub fn kept(value: &impl Serialize) -> Vec<u8> {
    // None of them can fail: they are maps of texts and numbers.
    serde_json::to_vec(value).unwrap_or_default()
}

/// The inverse; none for what a later build keeps otherwise.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}
