//! How a file of faults is to be read: which of its fields is what, in which unit, and what its words mean.
//!
//! ```toml
//! format = "csv"            # or "jsonl": one JSON object a line
//! delimiter = ";"
//! time = "start"            # the fields' names; those that are not said are called as here on the left
//! node = "hostname"
//! class = "kind"
//! cause = "reason"
//! repair = "downtime"       # or: repaired = "end", the instant at which the machine was there again
//! time_unit = "rfc3339"     # or s, min, h, d since `from` (a number), else since the trace begins
//! repair_unit = "min"
//! from = "2026-01-01T00:00:00Z"
//! default_class = "node"    # of what `classes` does not name
//!
//! [classes]                 # the file's words for node, process, hang, maintenance
//! "GPU fell off the bus" = "node"
//! "NCCL timeout" = "hang"
//! ```
use super::rows::Class;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What a file is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One JSON object a line.
    #[default]
    Jsonl,
    /// Fields with a character between them, named in the first line.
    Csv,
}

/// How a time is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Seconds.
    #[default]
    S,
    /// Minutes.
    Min,
    /// Hours.
    H,
    /// Days.
    D,
    /// A date with a time and its distance from UTC.
    Rfc3339,
}

impl Unit {
    /// Its seconds; none for a date.
    pub(super) fn seconds(self) -> Option<f64> {
        match self {
            Self::S => Some(1.0),
            Self::Min => Some(60.0),
            Self::H => Some(3600.0),
            Self::D => Some(86_400.0),
            Self::Rfc3339 => None,
        }
    }
}

/// An instant at which a trace begins, in the file's own unit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum From {
    /// In a date's words.
    Date(String),
    /// In the unit of times.
    Number(f64),
}

/// See the module's doc.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mapping {
    /// What the file is made of.
    pub format: Option<Format>,
    /// What stands between its fields.
    pub delimiter: char,
    /// The field that says when.
    pub time: String,
    /// The one that says which machine.
    pub node: String,
    /// The one that says what becomes of it.
    pub class: String,
    /// The one that says why.
    pub cause: String,
    /// The one that says for how long it is away.
    pub repair: String,
    /// The one that says when it is there again, instead.
    pub repaired: Option<String>,
    /// The unit of times.
    pub time_unit: Unit,
    /// The unit of repairs.
    pub repair_unit: Unit,
    /// When the trace begins; none: at 0, or with the first fault where times are dates.
    pub from: Option<From>,
    /// What becomes of a machine where no class is said, or one that is not known.
    pub default_class: Option<Class>,
    /// The file's words for classes.
    pub classes: BTreeMap<String, Class>,
}

impl Default for Mapping {
    fn default() -> Self {
        Self {
            format: None,
            delimiter: ',',
            time: "time".to_owned(),
            node: "node".to_owned(),
            class: "class".to_owned(),
            cause: "cause".to_owned(),
            repair: "repair".to_owned(),
            repaired: None,
            time_unit: Unit::S,
            repair_unit: Unit::S,
            from: None,
            default_class: None,
            classes: BTreeMap::new(),
        }
    }
}

impl Mapping {
    /// Reads one; what is wrong with it is told with its place.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let mapping: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        if mapping.repair_unit == Unit::Rfc3339 {
            let fix = "name the field that has the date as `repaired`";
            return Err(format!("`repair_unit` is a length, and no date: {fix}"));
        }
        Ok(mapping)
    }
}
