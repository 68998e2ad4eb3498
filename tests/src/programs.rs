//! Where the programs under test and the fixtures are.
use std::path::PathBuf;

/// A program of the same build profile as the running test.
pub fn bin(name: &str) -> PathBuf {
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
