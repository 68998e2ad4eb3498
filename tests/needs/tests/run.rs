//! `scripts/test.sh` as a whole, with a cargo that is played: what the tests leave is said at the end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder for a cargo that is played, removed with this value.
struct Cargo(PathBuf);

impl Cargo {
    /// What it does as `cargo test` or `cargo nextest run`; `$TESTS NAME` runs an ignored test of this program.
    fn new(name: &str, does: &str) -> Self {
        let folder = format!("robust-needs.{}.{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("cargo");
        std::fs::write(&path, format!("#!/bin/sh\n{does}\n")).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    /// Runs the script; whether it was content, and what it said.
    fn run(&self, ci: Option<&str>) -> (Option<i32>, String) {
        let own = std::env::current_exe().unwrap().display().to_string();
        let path = format!("{}:{}", self.0.display(), std::env::var("PATH").unwrap());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test.sh");
        let mut command = Command::new(script);
        command
            .env("PATH", path)
            .env_remove("CI")
            .envs(ci.map(|ci| ("CI", ci)));
        command.env("TESTS", format!("{own} --ignored --exact"));
        let out = command.output().unwrap();
        let text = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
        (out.status.code(), text)
    }
}

impl Drop for Cargo {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
#[ignore = "is run by the tests below"]
fn one_that_cannot_run_here() {
    robust_needs::skip("no such\ttool", "buy one");
}

#[test]
#[ignore = "is run by the tests below"]
fn one_that_has_a_target_of_its_own() {
    robust_needs::elsewhere("real engines", "make test-engines");
}

const SKIPPED: &str = "tests: 1 did not run here, or not all of it; what is missing, and how to get it:\n  \
                       robust-needs run one_that_cannot_run_here\n      no such tool\n      buy one\n";

#[test]
fn a_skip_is_told_at_the_end_and_is_a_failure_where_ci_is_set() {
    // With nextest first documentation tests, then the workspace, then seeded bugs.
    let nextest = Cargo::new(
        "skip",
        "case $2 in run) $TESTS one_that_cannot_run_here;; esac",
    );
    // Without it, the workspace, then seeded bugs.
    let plain = "case $1 in nextest) exit 101;; esac; $TESTS one_that_cannot_run_here";
    let plain = Cargo::new("plain", plain);
    for cargo in [nextest, plain] {
        let (code, text) = cargo.run(None);
        assert_eq!((code, text.ends_with(SKIPPED)), (Some(0), true), "{text}");
        assert_eq!(cargo.run(Some("false")).0, Some(0));
        let (code, text) = cargo.run(Some("true"));
        assert_eq!((code, text.contains(SKIPPED)), (Some(1), true), "{text}");
        assert!(text.contains("CI is set (true)"), "{text}");
    }
}

#[test]
fn each_run_of_tests_may_leave_skips() {
    for (name, only) in [
        ("doc", "--doc"),
        ("work", "run.*--workspace"),
        ("bugs", "mutations"),
    ] {
        let does = format!(
            "if echo \"$*\" | grep -q -e '{only}'; then $TESTS one_that_cannot_run_here; fi"
        );
        let (code, text) = Cargo::new(name, &does).run(Some("true"));
        assert_eq!(
            (code, text.contains(SKIPPED)),
            (Some(1), true),
            "{name}: {text}"
        );
    }
}

#[test]
fn what_has_a_target_of_its_own_is_told_and_fails_no_run() {
    let cargo = Cargo::new("elsewhere", "$TESTS one_that_has_a_target_of_its_own");
    let (code, text) = cargo.run(Some("true"));
    assert_eq!(code, Some(0), "{text}");
    let told = "  robust-needs run one_that_has_a_target_of_its_own\n      real engines\n      make test-engines\n\
                tests: none was skipped for want of something\n";
    assert!(text.ends_with(told), "{text}");
}

#[test]
fn tests_that_fail_fail_the_run_and_what_was_skipped_before_is_told() {
    let does = "case $2 in --version) exit;; esac; $TESTS one_that_cannot_run_here; exit 7";
    let (code, text) = Cargo::new("failure", does).run(None);
    assert_eq!((code, text.ends_with(SKIPPED)), (Some(7), true), "{text}");
}
