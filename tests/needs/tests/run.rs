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
        self.run_with(ci.map(|ci| ("CI", ci)))
    }

    /// The same with one more variable, and neither of those that change what it does.
    fn run_with(&self, more: Option<(&str, &str)>) -> (Option<i32>, String) {
        let own = std::env::current_exe().unwrap().display().to_string();
        let path = format!("{}:{}", self.0.display(), std::env::var("PATH").unwrap());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test.sh");
        let mut command = Command::new(script);
        command
            .env("PATH", path)
            .env_remove("CI")
            .env_remove("SLOW")
            .envs(more);
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

/// What nextest is asked to run of the workspace; the tests that are slow by the list's first line.
fn asked(slow: &str) -> (Option<i32>, String, Vec<String>) {
    let cargo = Cargo::new(
        &format!("slow-{}", slow.replace('/', "-")),
        "case $* in *nextest\\ run*--workspace*) echo \"asked: $*\";; esac",
    );
    let (code, text) = cargo.run_with(Some(("SLOW", slow)));
    let asked = text.lines().filter_map(|line| line.strip_prefix("asked: "));
    let asked = asked.map(str::to_owned).collect();
    (code, text, asked)
}

#[test]
fn slow_tests_run_when_asked_for_all_of_them_or_a_share() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/slow_tests");
    let list = std::fs::read_to_string(list).unwrap();
    let first = list.lines().find(|line| !line.starts_with('#')).unwrap();

    let (code, text, runs) = asked("none");
    assert_eq!((code, runs.len()), (Some(0), 1), "{text}");
    assert!(
        runs[0].contains("-E not (") && runs[0].contains(first),
        "{text}"
    );
    assert!(text.contains("tests: the slow ones did not run"), "{text}");

    let (code, text, runs) = asked("2/4");
    assert_eq!((code, runs.len()), (Some(0), 2), "{text}");
    assert!(runs[0].contains("-E not ("), "{text}");
    assert!(
        !runs[1].contains("not (") && runs[1].contains(first),
        "{text}"
    );
    assert!(runs[1].contains("--partition slice:2/4"), "{text}");
    assert!(text.contains("share 2/4 ran"), "{text}");

    let (code, text, runs) = asked("all");
    assert_eq!((code, runs.len()), (Some(0), 1), "{text}");
    assert!(!runs[0].contains("-E"), "{text}");
    assert!(!text.contains("slow ones"), "{text}");
}

#[test]
fn a_share_of_the_slow_tests_that_is_none_is_refused() {
    for slow in ["some", "1", "1/", "0/4"] {
        let (code, text, runs) = asked(slow);
        assert_eq!((code, runs.len()), (Some(2), 0), "{slow}: {text}");
        assert!(text.contains("SLOW is none, all or K/N"), "{text}");
    }
}
