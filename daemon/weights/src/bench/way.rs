//! The roads that are measured.
use std::path::Path;

/// A road, and what the names of its figures begin with.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// Nothing for UCX, whose figures have been there longest.
    pub prefix: &'static str,
    /// As the programs are told.
    pub road: String,
}

impl Way {
    /// UCX, over TCP as a rule.
    pub fn ucx() -> Self {
        Self::new("", "ucx")
    }

    /// TCP with TLS.
    pub fn tls() -> Self {
        Self::new("tls_", "tls")
    }

    /// Shared memory of those who meet in a folder.
    pub fn shm(folder: &Path) -> Self {
        let road = format!("shm:{}", folder.display());
        let prefix = "shm_";
        Self { prefix, road }
    }

    fn new(prefix: &'static str, road: &str) -> Self {
        let road = road.to_owned();
        Self { prefix, road }
    }

    /// The name of a figure of this road.
    pub fn figure(&self, name: impl std::fmt::Display) -> String {
        format!("{}{name}", self.prefix)
    }
}
