//! How a test says that it cannot run here, so that nobody takes it for one that passed.
//!
//! ```text
//!  skip(what, remedy) ────────┬─► a line on standard error
//!  elsewhere(what, place) ────┴─► a file in the folder $ROBUST_SKIPS ─► scripts/skips.sh, at the run's end
//! ```
//! scripts/test.sh makes the folder, and says at its end what lies there. A file for each, as a test may
//! have a process of its own. With `CI=true` a run with a skip fails; what belongs elsewhere fails no run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Display;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Names the folder that skips are recorded in; they are only printed where it is not set.
pub const FOLDER: &str = "ROBUST_SKIPS";
/// The remedy for a program that is not installed.
pub const SETUP: &str = "run scripts/setup.sh --tests";
/// The remedy for namespaces and mounts that are not permitted.
pub const ROOT: &str = "run the tests as root, in a container only if it is a privileged one";

/// Says that the test cannot run here: what is missing, and how to get it. The test returns then.
///
/// # Panics
/// Where it cannot be recorded: a skip that nobody hears of would be a pass.
pub fn skip(missing: impl Display, remedy: &str) {
    record("skip", &missing.to_string(), remedy);
}

/// Says that there is nothing to test for this machine or this run, and where there is.
///
/// # Panics
/// Where it cannot be recorded.
pub fn elsewhere(what: impl Display, place: &str) {
    record("elsewhere", &what.to_string(), place);
}

/// A program of the search path, or of those that only root has on it; none, which is said, where it is
/// not installed.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let mut found = folders.map(|folder| folder.join(name));
    let found = found.find(|path| is_program(path));
    if found.is_none() {
        skip(format!("{name} is not installed"), SETUP);
    }
    found
}

/// Whether a file can be run.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    let found = path.metadata();
    found.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// The cache that the scripts fill, as they find it.
#[must_use]
pub fn cache() -> PathBuf {
    let set = |name| {
        let value = std::env::var_os(name).filter(|v| !v.is_empty());
        value.map(PathBuf::from)
    };
    let own = set("XDG_CACHE_HOME").map(|folder| folder.join("robust"));
    let home = set("HOME").map(|folder| folder.join(".cache/robust"));
    set("ROBUST_CACHE").or(own).or(home).unwrap_or_default()
}

fn record(kind: &str, what: &str, remedy: &str) {
    let test = test_name();
    eprintln!("{kind}: {test}: {what}; {remedy}");
    if let Some(folder) = std::env::var_os(FOLDER).filter(|v| !v.is_empty()) {
        write(Path::new(&folder), [kind, &test, what, remedy]);
    }
}

/// Writes one line of fields with tabs between them, as a file that nobody else has.
fn write(folder: &Path, fields: [&str; 4]) {
    static WRITTEN: AtomicU32 = AtomicU32::new(0);
    let plain = |field: &str| field.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = fields.map(plain).join("\t") + "\n";
    let process = std::process::id();
    loop {
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{process}-{number}"));
        match File::create_new(&path) {
            Ok(mut file) => return file.write_all(line.as_bytes()).expect("a skip is recorded"),
            // A process of this number was there before.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => panic!("{}: a skip cannot be recorded: {error}", path.display()),
        }
    }
}

/// `PACKAGE PROGRAM TEST`, as far as it is known.
fn test_name() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    // Cargo puts a digest behind the name.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main");
    let test = test.map_or_else(|| named_by_arguments(std::env::args()), str::to_owned);
    format!("{package} {program} {test}").trim().to_owned()
}

/// The test that a process was started for, if it is one alone.
fn named_by_arguments(arguments: impl Iterator<Item = String>) -> String {
    let (flags, names): (Vec<_>, Vec<_>) = arguments.skip(1).partition(|a| a.starts_with('-'));
    let exact = flags.iter().any(|flag| flag == "--exact");
    let name = names.into_iter().next().filter(|_| exact);
    name.unwrap_or_default()
}

#[cfg(test)]
mod tests;
