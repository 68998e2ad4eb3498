//! The record of what a job is made of.
use super::error::FilesError;
use crate::state::{Readers, StateDir, read_private, write_private};
use blake3::Hash;
use robust_grouplog::Content;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a file is to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What is asked; only the leader reads it.
    Prompts,
    /// The tokenizer, and what stands beside it.
    Tokenizer,
    /// The folder that training begins with.
    Model,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Prompts, Self::Tokenizer, Self::Model];

    /// The key of the job file that names it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Prompts => "data.prompts",
            Self::Tokenizer => "data.tokenizer",
            Self::Model => "model.path",
        }
    }

    /// The folder of its copies below that of all copies.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::Prompts => "prompts",
            Self::Tokenizer => "tokenizer",
            Self::Model => "model",
        }
    }
}

/// A file of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needed {
    /// What it is to the job.
    pub kind: Kind,
    /// Its name among those of its kind; the tokenizer's is `tokenizer.json`, whatever the job file calls it.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its digest.
    #[serde(with = "hex")]
    pub blake3: Hash,
}

impl Needed {
    /// What its bytes are.
    pub fn content(&self) -> Content {
        Content {
            blake3: self.blake3,
            bytes: self.bytes,
        }
    }
}

/// All files of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// In the order in which nodes are told of them.
    pub files: Vec<Needed>,
}

impl Manifest {
    /// That of a state directory; none where the job has none (yet).
    pub fn read(state: &StateDir) -> Result<Option<Self>, FilesError> {
        let path = state.files_json();
        let Some(text) = read_private(&path, Readers::Owner)? else {
            return Ok(None);
        };
        let bad = |why: String| FilesError::Record {
            path: path.clone(),
            why,
        };
        let manifest: Self = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        // A name is a file's, never a way out of the folder.
        let plain = |file: &&Needed| Path::new(&file.name).file_name() != Some(file.name.as_ref());
        match manifest.files.iter().find(plain) {
            Some(file) => Err(bad(format!("{:?} is no name of a file", file.name))),
            None => Ok(Some(manifest)),
        }
    }

    /// Puts it there.
    pub fn write(&self, state: &StateDir) -> Result<(), FilesError> {
        // It cannot fail: these are texts and numbers.
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        Ok(write_private(&state.files_json(), &text)?)
    }

    /// Those of a kind.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Needed> {
        self.files.iter().filter(move |file| file.kind == kind)
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// A digest as its digits.
mod hex {
    use blake3::Hash;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(hash: &Hash, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(hash.to_hex().as_str())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Hash, D::Error> {
        let text = String::deserialize(from)?;
        Hash::from_hex(text).map_err(serde::de::Error::custom)
    }
}
