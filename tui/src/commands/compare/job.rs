//! What differs in the job files of both runs.
use super::Side;
use crate::commands::report::keys;
use robust_proto::v1;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A key whose values differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Key {
    /// As in a job file.
    pub key: String,
    /// The first run's value, as JSON; none: it is not set there.
    pub a: Option<String>,
    /// The second run's.
    pub b: Option<String>,
}

/// Keys whose values differ, by name; none where one of the job files is not known.
pub fn differences(a: &Side, b: &Side) -> Option<Vec<Key>> {
    let (a, b) = (of(&a.report)?, of(&b.report)?);
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differing = names.into_iter().filter(|key| a.get(*key) != b.get(*key));
    let key = |key: &String| Key {
        key: key.clone(),
        a: a.get(key).cloned(),
        b: b.get(key).cloned(),
    };
    Some(differing.map(key).collect())
}

/// The job file in force.
pub fn of(report: &v1::Report) -> Option<BTreeMap<String, String>> {
    let keys = keys(&report.history.as_ref()?.config)?;
    Some(keys.into_iter().collect())
}
