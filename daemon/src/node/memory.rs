//! What a node remembers across its own death: whose roles run here.
use crate::state::{StateDir, StateDirError, write_private};
use robust_shared::ids::{Incarnation, InstanceId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{fs, io};

/// Raised when older daemons could not read it.
const VERSION: u32 = 1;

/// Why it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A file operation failed.
    #[error(transparent)]
    State(#[from] StateDirError),
    /// It is not one, or a newer robustd's.
    #[error("{path} cannot be read: {reason}; end the roles named in it and remove it")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// There is no random number.
    #[error("reading /dev/urandom: {0}")]
    Random(#[from] io::Error),
}

/// A role process that was started here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Started {
    /// Its place in the job.
    pub id: InstanceId,
    /// Its process id.
    pub pid: u32,
    /// Tells it from a later process of the same id.
    pub start_time: u64,
}

/// `STATE/node.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    version: u32,
    /// Random, made with the file: a name alone does not tell two machines apart.
    pub identity: String,
    /// The life of the job whose roles run here.
    pub run: String,
    /// The latest term of its controllers that one was joined in.
    #[serde(default)]
    pub epoch: u64,
    /// They.
    pub started: BTreeMap<u64, Started>,
}

fn path(state: &StateDir) -> PathBuf {
    state.root().join("node.json")
}

impl Memory {
    /// Reads it, or makes a new one.
    pub fn load(state: &StateDir) -> Result<Self, MemoryError> {
        let path = path(state);
        let unreadable = |reason: String| MemoryError::Unreadable {
            path: path.clone(),
            reason,
        };
        match fs::read(&path) {
            Ok(bytes) => {
                let memory: Self =
                    serde_json::from_slice(&bytes).map_err(|e| unreadable(e.to_string()))?;
                match memory.version <= VERSION {
                    true => Ok(memory),
                    false => Err(unreadable(format!("it has version {}", memory.version))),
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let memory = Self {
                    version: VERSION,
                    identity: crate::random::hex::<16>()?,
                    run: String::new(),
                    epoch: 0,
                    started: BTreeMap::new(),
                };
                memory.save(state)?;
                Ok(memory)
            }
            Err(e) => Err(unreadable(e.to_string())),
        }
    }

    /// Writes it.
    pub fn save(&self, state: &StateDir) -> Result<(), StateDirError> {
        // A struct of strings and numbers always encodes.
        let text = serde_json::to_vec(self).unwrap_or_default();
        write_private(&path(state), &text)
    }

    /// Notes a start or an end.
    pub fn note(&mut self, incarnation: Incarnation, started: Option<Started>) {
        match started {
            Some(started) => drop(self.started.insert(incarnation.0, started)),
            None => drop(self.started.remove(&incarnation.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_shared::ids::Role;

    #[test]
    fn a_node_knows_its_roles_and_itself_again() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::make(temp.path()).unwrap();
        let mut memory = Memory::load(&state).unwrap();
        let id = InstanceId {
            role: Role::Rollout,
            index: 2,
        };
        let started = Started {
            id,
            pid: 9,
            start_time: 4,
        };
        memory.run = "r".to_owned();
        memory.note(Incarnation(5), Some(started));
        memory.save(&state).unwrap();
        assert_eq!(Memory::load(&state).unwrap(), memory);
        fs::write(path(&state), b"{").unwrap();
        let error = Memory::load(&state).unwrap_err();
        assert!(error.to_string().contains("node.json"), "{error}");
    }
}
