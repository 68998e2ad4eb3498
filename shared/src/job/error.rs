//! Why a job file is refused: where, what, and the fix.
use super::locate::{self, Document};
use crate::nearest::nearest;
use std::fmt;
use std::path::{Path, PathBuf};

/// A job file that cannot be used. Displays as one sentence: `file:line:column: problem; fix`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct JobError {
    /// Where.
    pub at: Location,
    /// What, and what to do.
    pub problem: Box<Problem>,
}

/// A place in a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file, as the user named it.
    pub file: PathBuf,
    /// Line and column, from 1; none when the file does not contain what is wrong (a default).
    pub line_column: Option<(usize, usize)>,
}

impl Location {
    /// A byte offset of the file's text; none when the text does not contain what is meant.
    pub(crate) fn new(file: &Path, text: &str, offset: Option<usize>) -> Self {
        Self {
            file: file.to_owned(),
            line_column: offset.map(|offset| locate::line_column(text, offset)),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line_column {
            Some((line, column)) => write!(f, "{}:{line}:{column}", self.file.display()),
            None => write!(f, "{}", self.file.display()),
        }
    }
}

/// What is wrong with a job file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// Not TOML.
    #[error("this is not TOML: {message}")]
    Syntax {
        /// The parser's words.
        message: String,
    },
    /// A key nobody reads.
    #[error("unknown key `{key}`; {hint}")]
    UnknownKey {
        /// Dotted.
        key: String,
        /// The nearest key, or all of the section's.
        hint: String,
    },
    /// A key without default is missing.
    #[error("`{key}` is missing; add it")]
    MissingKey {
        /// Dotted.
        key: String,
    },
    /// A string where a number is due, and the like.
    #[error("`{key}` has {found}; write {expected}")]
    WrongType {
        /// Dotted.
        key: String,
        /// What is there.
        found: String,
        /// What must be there.
        expected: String,
    },
    /// Anything else the reader refuses.
    #[error("`{key}`: {message}")]
    Unreadable {
        /// Dotted.
        key: String,
        /// The reader's words.
        message: String,
    },
    /// The type is right, the value is not.
    #[error("`{key}` is {value}; {must}")]
    BadValue {
        /// Dotted.
        key: String,
        /// As written.
        value: String,
        /// What it must be: the fix.
        must: String,
    },
    /// A text of a command has a placeholder that means nothing there.
    #[error("`{key}` has {found}")]
    Placeholder {
        /// Dotted.
        key: String,
        /// What is there, why that is wrong, and the fix.
        found: String,
    },
    /// No node has the pool a role names.
    #[error("`{key}` names pool `{pool}`, which no node has; {hint}")]
    UnknownPool {
        /// Dotted.
        key: String,
        /// The pool.
        pool: String,
        /// Which there are.
        hint: String,
    },
    /// A role names a node that is not there.
    #[error("`{key}` names node `{node}`, which the file does not have; its nodes are {known}")]
    UnknownNode {
        /// Dotted.
        key: String,
        /// The node.
        node: String,
        /// Which there are.
        known: String,
    },
    /// A pool is too small for a role.
    #[error(
        "`{key}` asks for {wanted} slots of pool `{pool}`, but {has}: {missing} missing; {fix}"
    )]
    MissingSlots {
        /// Dotted key of the role's count.
        key: String,
        /// The pool.
        pool: String,
        /// Slots asked for.
        wanted: u64,
        /// Slots there, node by node, in words.
        has: String,
        /// Slots missing.
        missing: u64,
        /// What to do.
        fix: String,
    },
    /// A node's pools hold more slots than the machine.
    #[error(
        "node `{node}` has {slots} slots, but its pools take {taken} ({pools}): {missing} missing; \
         make pools smaller or share one between roles"
    )]
    Overcommitted {
        /// The dotted key of the pools.
        key: String,
        /// The node.
        node: String,
        /// Its slots.
        slots: u32,
        /// Slots of its pools.
        taken: u64,
        /// The pools, in words.
        pools: String,
        /// Slots missing.
        missing: u64,
    },
}

impl Problem {
    /// The dotted key it is about, if one.
    pub fn key(&self) -> Option<&str> {
        match self {
            Problem::Syntax { .. } => None,
            Problem::UnknownKey { key, .. }
            | Problem::MissingKey { key }
            | Problem::WrongType { key, .. }
            | Problem::Unreadable { key, .. }
            | Problem::BadValue { key, .. }
            | Problem::Placeholder { key, .. }
            | Problem::UnknownPool { key, .. }
            | Problem::UnknownNode { key, .. }
            | Problem::MissingSlots { key, .. }
            | Problem::Overcommitted { key, .. } => Some(key),
        }
    }
}

impl JobError {
    /// A problem at a byte offset of the text.
    pub(super) fn new(file: &Path, text: &str, offset: Option<usize>, problem: Problem) -> Self {
        Self {
            at: Location::new(file, text, offset),
            problem: Box::new(problem),
        }
    }
}

/// Translates the TOML reader's refusal.
pub(crate) fn from_toml(
    error: &toml::de::Error,
    text: &str,
    file: &Path,
    document: Option<&Document<'_>>,
) -> JobError {
    let offset = error.span().map(|span| span.start);
    let problem = match document {
        None => Problem::Syntax {
            message: error.message().to_owned(),
        },
        Some(document) => {
            // The file's own range is no key's: something is missing at its top level.
            let span = error.span().filter(|span| *span != document.span());
            let key = span
                .map(|span| document.key_at(span.start))
                .unwrap_or_default();
            from_message(error.message(), key)
        }
    };
    JobError::new(file, text, offset, problem)
}

pub(super) fn from_message(message: &str, key: String) -> Problem {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let join = |name: &str| {
        if key.is_empty() {
            name.to_owned()
        } else {
            format!("{key}.{name}")
        }
    };
    if message.starts_with("unknown field") {
        let (name, known) = quoted.split_first().map_or(("", &[][..]), |(n, k)| (*n, k));
        let key = if key.is_empty() { name.to_owned() } else { key };
        return Problem::UnknownKey {
            key,
            hint: suggest(name, known),
        };
    }
    if message.starts_with("missing field") {
        return Problem::MissingKey {
            key: join(quoted.first().copied().unwrap_or("")),
        };
    }
    if message.starts_with("unknown variant") {
        let (found, known) = quoted.split_first().map_or(("", &[][..]), |(n, k)| (*n, k));
        let must = format!("it must be {}", list(known, "or"));
        return Problem::BadValue {
            key,
            value: format!("`{found}`"),
            must,
        };
    }
    for (prefix, noun) in [
        ("invalid type: ", "the wrong type"),
        ("invalid value: ", "a bad value"),
    ] {
        let parts = message
            .strip_prefix(prefix)
            .and_then(|rest| rest.rsplit_once(", expected "));
        if let Some((found, expected)) = parts {
            let found = format!("{noun} ({found})");
            return Problem::WrongType {
                key,
                found,
                expected: in_words(expected),
            };
        }
    }
    Problem::Unreadable {
        key,
        message: message.to_owned(),
    }
}

fn in_words(expected: &str) -> String {
    match expected {
        "u32" | "u64" => "a whole number of 0 or more".to_owned(),
        "u16" => "a whole number of 0 to 65535".to_owned(),
        "f64" => "a number".to_owned(),
        "path string" => "a path in quotes".to_owned(),
        "a string" => "a text in quotes".to_owned(),
        "a map" => "a table".to_owned(),
        "a sequence" => "a list".to_owned(),
        other => match other.strip_prefix("struct ") {
            Some(_) => "a section of keys".to_owned(),
            None => other.to_owned(),
        },
    }
}

/// What was probably meant, or everything possible.
pub(crate) fn suggest(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "remove it".to_owned(),
        None => format!("the keys here are {}", list(known, "and")),
    }
}

/// "`a`, `b` and `c`"
pub(crate) fn list(names: &[&str], and: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
    match quoted.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} {and} {last}", rest.join(", ")),
    }
}
