//! Prompts with verifiable answers: JSON lines `{"id", "prompt", "answer"}`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// One prompt; further keys of a line are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Prompt {
    /// Unique in the dataset.
    pub id: String,
    /// What the model reads.
    pub prompt: String,
    /// What it should answer.
    pub answer: String,
}

/// Why a dataset cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The file could not be read.
    #[error("reading dataset {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is not a prompt.
    #[error("dataset {path}, line {line}: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// There is not a single prompt.
    #[error("dataset {path} has no prompt")]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a whole dataset; blank lines are skipped.
pub fn read(path: &Path) -> Result<Vec<Prompt>, DatasetError> {
    let text = std::fs::read_to_string(path).map_err(|source| DatasetError::Read {
        path: path.into(),
        source,
    })?;
    parse(&text, path)
}

fn parse(text: &str, path: &Path) -> Result<Vec<Prompt>, DatasetError> {
    let (mut prompts, mut seen) = (Vec::new(), HashMap::new());
    for (index, content) in text.lines().enumerate() {
        let line = index + 1;
        if content.trim().is_empty() {
            continue;
        }
        let bad = |why: String| DatasetError::Line {
            path: path.into(),
            line,
            why,
        };
        let prompt: Prompt =
            serde_json::from_str(content).map_err(|error| bad(json_reason(&error)))?;
        for (key, value) in [("id", &prompt.id), ("prompt", &prompt.prompt)] {
            if value.is_empty() {
                return Err(bad(format!("{key:?} is empty")));
            }
        }
        if let Some(first) = seen.insert(prompt.id.clone(), line) {
            return Err(bad(format!(
                "id {:?} was already used in line {first}",
                prompt.id
            )));
        }
        prompts.push(prompt);
    }
    if prompts.is_empty() {
        return Err(DatasetError::Empty { path: path.into() });
    }
    Ok(prompts)
}

/// The parser's message without its line number, which is always 1 here.
fn json_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((reason, _)) => format!("{reason} (column {})", error.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refused(text: &str) -> String {
        parse(text, Path::new("d.jsonl")).unwrap_err().to_string()
    }

    #[test]
    fn lines_become_prompts_and_blank_ones_are_skipped() {
        let text = "{\"id\":\"a\",\"prompt\":\"1+1=\",\"answer\":\"2\",\"level\":3}\n\n";
        let prompts = parse(text, Path::new("d.jsonl")).unwrap();
        assert_eq!(prompts.len(), 1);
        assert_eq!(prompts[0].answer, "2");
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let good = "{\"id\":\"a\",\"prompt\":\"1+1=\",\"answer\":\"2\"}\n";
        let missing = refused(&format!("{good}{{\"id\":\"b\",\"prompt\":\"1\"}}"));
        assert!(
            missing.starts_with("dataset d.jsonl, line 2: missing field `answer`"),
            "{missing}"
        );
        let twice = refused(&format!("{good}{good}"));
        assert_eq!(
            twice,
            "dataset d.jsonl, line 2: id \"a\" was already used in line 1"
        );
        assert!(refused("{\"id\":1}").contains("line 1: invalid type"));
        assert_eq!(refused("\n"), "dataset d.jsonl has no prompt");
    }
}
