//! What engines call the weights they serve.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What engines say before anybody set a version.
const UNSET: &str = "default";

/// A weight version as an engine says it, which is any text (C-3).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Label {
    /// Nobody told the engine a version yet: it serves what it was started with.
    Unset,
    /// A version of ours.
    Number(u64),
    /// A text that somebody else set.
    Other(String),
}

impl Label {
    /// The number, where it is one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Label::Number(number) => Some(*number),
            Label::Unset | Label::Other(_) => None,
        }
    }
}

impl From<&str> for Label {
    fn from(text: &str) -> Self {
        // "+7" and "007" are read as numbers by `parse`, but not written so again.
        let number = text.parse().ok().filter(|n: &u64| n.to_string() == text);
        match number {
            Some(number) => Label::Number(number),
            None if text == UNSET => Label::Unset,
            None => Label::Other(text.to_owned()),
        }
    }
}

impl From<String> for Label {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.to_string()
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Unset => f.write_str(UNSET),
            Label::Number(number) => number.fmt(f),
            Label::Other(text) => text.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_written_as_it_was_read() {
        for (text, label) in [
            ("default", Label::Unset),
            ("17", Label::Number(17)),
            ("step-17", Label::Other("step-17".into())),
            ("007", Label::Other("007".into())),
            ("-1", Label::Other("-1".into())),
            ("", Label::Other(String::new())),
        ] {
            assert_eq!(Label::from(text), label);
            assert_eq!(label.to_string(), text);
        }
    }
}
