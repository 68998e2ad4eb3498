//! The roads that are measured.
use std::path::Path;

/// A road, and what the names of its figures begin with.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// Nothing for UCX, whose figures have been there longest.
    pub prefix: &'static str,
    /// As the programs are told.
    pub road: String,
    /// The numbers of versions.
    pub dtype: &'static str,
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
        Self::new(prefix, &road)
    }

    /// The same road for versions of bfloat16, with another beginning of the names.
    pub fn of_short_words(self, prefix: &'static str) -> Self {
        let dtype = "BF16";
        Self {
            prefix,
            dtype,
            ..self
        }
    }

    fn new(prefix: &'static str, road: &str) -> Self {
        let (road, dtype) = (road.to_owned(), "F32");
        Self {
            prefix,
            road,
            dtype,
        }
    }

    /// What a source or puller of versions of this size is told.
    pub fn words<'a>(&'a self, bytes: &'a str) -> [&'a str; 6] {
        let road = &self.road;
        ["--bytes", bytes, "--road", road, "--dtype", self.dtype]
    }

    /// The name of a figure of this road.
    pub fn figure(&self, name: impl std::fmt::Display) -> String {
        format!("{}{name}", self.prefix)
    }
}
