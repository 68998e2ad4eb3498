//! The prompts of a job: JSONL, one object a line.
use robust_shared::ids::TrajectoryId;
use robust_shared::job::Job;
use serde::Deserialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One prompt and the answer its reward is judged by.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    /// Names it in messages.
    #[serde(default)]
    pub id: String,
    /// What the model is given.
    pub prompt: String,
    /// The right answer.
    pub answer: String,
}

/// All prompts of a job, in the dataset's order; empty where the trainer's loop is its own.
#[derive(Clone, Debug, Default)]
pub struct Prompts(Arc<[Prompt]>);

impl Prompts {
    /// The prompt of a trajectory in a batch of so many prompts: the job's seed decides.
    pub fn of(&self, job: &Job, trajectory: TrajectoryId, prompts: u32) -> &Prompt {
        let (batch, group) = (trajectory.batch, trajectory.group);
        &self.0[job.prompt_index_of(batch, group, prompts, self.0.len())]
    }
}

/// Why a dataset cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// It cannot be read.
    #[error("cannot read the dataset {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is not a prompt.
    #[error("{path}:{line}: {reason}; each line is {{\"prompt\": ..., \"answer\": ...}}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// There is nothing in it.
    #[error("the dataset {path} has no prompts; it needs at least one line")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a dataset. Empty lines are skipped.
pub fn read_dataset(path: &Path) -> Result<Prompts, DatasetError> {
    let io_error = |source| DatasetError::Io {
        path: path.to_owned(),
        source,
    };
    let reader = BufReader::new(File::open(path).map_err(io_error)?);
    let mut prompts = Vec::new();
    for (at, bytes) in reader.split(b'\n').enumerate() {
        let bytes = bytes.map_err(io_error)?;
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let parsed = serde_json::from_slice::<Prompt>(&bytes).map_err(|e| e.to_string());
        let prompt = parsed.and_then(|p| match p.prompt.is_empty() {
            true => Err("the prompt is empty".to_owned()),
            false => Ok(p),
        });
        prompts.push(prompt.map_err(|reason| DatasetError::Line {
            path: path.to_owned(),
            line: at + 1,
            reason: without_position(&reason),
        })?);
    }
    if prompts.is_empty() {
        return Err(DatasetError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(Prompts(prompts.into()))
}

/// serde_json counts lines within the one line it sees; only its column means something here.
fn without_position(reason: &str) -> String {
    reason.replace(" at line 1 column ", " at column ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Result<Prompts, DatasetError> {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("d.jsonl");
        std::fs::write(&path, text).unwrap();
        read_dataset(&path)
    }

    #[test]
    fn rows_are_read_in_order() {
        let text = "{\"id\":\"a\",\"prompt\":\"1+1=\",\"answer\":\"2\"}\n\n\
                    {\"prompt\":\"2\",\"answer\":\"2\"}\n";
        let rows = read(text).unwrap();
        let prompts: Vec<_> = rows.0.iter().map(|r| r.prompt.as_str()).collect();
        assert_eq!(prompts, ["1+1=", "2"]);
    }

    #[test]
    fn a_bad_line_is_named_with_file_and_number() {
        for (bad, what) in [
            ("{\"prompt\":\"1\"}", "missing field `answer`"),
            ("{\"prompt\":\"\",\"answer\":\"1\"}", "the prompt is empty"),
            ("{\"prompt\":1,\"answer\":\"1\"}", "invalid type"),
            ("nonsense", "expected"),
            ("\u{0}", "expected"),
        ] {
            let text = format!("{{\"prompt\":\"1\",\"answer\":\"1\"}}\n{bad}\n");
            let error = read(&text).unwrap_err().to_string();
            assert!(
                error.contains("d.jsonl:2: ") && error.contains(what),
                "{error}"
            );
            assert!(!error.contains("line 1 column"), "{error}");
        }
        assert!(matches!(read("\n\n"), Err(DatasetError::Empty { .. })));
    }
}
