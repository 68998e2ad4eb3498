//! The part of the daemon's environment that its children get.
use robust_shared::job::{Job, Passed};
use std::ffi::OsString;

/// Those of its variables that pass. A name that is no text passes to nobody.
pub fn inherited(passed: &Passed) -> impl Iterator<Item = (OsString, OsString)> + '_ {
    let passes = |name: &OsString| name.to_str().is_some_and(|name| passed.takes(name));
    std::env::vars_os().filter(move |(name, _)| passes(name))
}

/// The names of those that pass to no process of the job.
pub fn held_back(job: &Job) -> Vec<String> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    job.held_back(names)
}
