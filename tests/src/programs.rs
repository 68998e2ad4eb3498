//! Where the programs under test and the fixtures are.
use std::path::PathBuf;
use std::process::Command;

/// A program of the same build profile as the running test, or of the folder that $ROBUST_PROGRAMS names: what is measured
/// is built for release, and the harness need not be.
pub fn bin(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("ROBUST_PROGRAMS") {
        return PathBuf::from(folder).join(name);
    }
    let test = std::env::current_exe().expect("a test knows its own path");
    let dir = test
        .parent()
        .and_then(|deps| deps.parent())
        .expect("target/PROFILE/deps/test");
    let path = dir.join(name);
    assert!(
        path.exists(),
        "{} is not built: run `make test`",
        path.display()
    );
    path
}

/// A path under `fixtures/`.
pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures")
        .join(name)
}

/// Shared by all tests of a run, so that the warm start is made once.
pub fn cache() -> PathBuf {
    std::env::var_os("ROBUST_CACHE").map_or_else(
        || std::env::temp_dir().join("robust-test-cache"),
        PathBuf::from,
    )
}

/// Runs a command line to its end; why it did not work.
pub(crate) fn run(command: &str) -> Result<(), String> {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default();
    let out = Command::new(program).args(words).output();
    let out = out.map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    let failed = || format!("{command}: {}", said.trim());
    out.status.success().then_some(()).ok_or_else(failed)
}
