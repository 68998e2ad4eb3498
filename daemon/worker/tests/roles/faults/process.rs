//! Faults that end the process: the real executable.

use std::io::Read;

use super::super::process::{Process, command, start};
use host_fake::FakeHost;
use host_fake::faults::{arm, fault, struck};

const ROLES: [&str; 4] = ["trainer", "rollout", "agent", "hybrid"];

fn end_of(mut process: Process) -> (i32, String) {
    let code = process.wait();
    let mut log = String::new();
    let stderr = process.0.stderr.as_mut().unwrap();
    stderr.read_to_string(&mut log).unwrap();
    (code, log.lines().last().unwrap_or_default().to_owned())
}

fn roles(folder: &std::path::Path, host: &FakeHost) -> Vec<(u64, Process)> {
    let start = |(index, role): (u64, &str)| {
        let process = start(&mut command(folder, host, role, index, 1));
        host.hello(10 + index);
        (10 + index, process)
    };
    (0..).zip(ROLES).map(start).collect()
}

#[test]
fn a_role_exits_with_the_code_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    for (incarnation, process) in roles(folder.path(), &host) {
        let mut exit = fault(1, "exit", "");
        exit.code = 40;
        arm(&host, incarnation, &exit);
        struck(&host, incarnation, 1);
        assert_eq!(end_of(process).0, 40, "{incarnation}");
    }
}

#[test]
fn an_exception_ends_a_process_with_its_text_as_the_last_line() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    for (incarnation, process) in roles(folder.path(), &host) {
        arm(&host, incarnation, &fault(1, "exception", ""));
        let (code, last) = end_of(process);
        assert_eq!(code, 1, "{incarnation}: {last}");
        assert!(
            last.starts_with("error: exception on request in "),
            "{last}"
        );
    }
}

/// A rank that waits is there already; its moment comes again and again.
#[test]
fn a_rank_exits_where_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let trainer = start(&mut command(folder.path(), &host, "trainer", 0, 1));
    host.hello(10);
    let mut exit = fault(1, "exit", "await_batch");
    exit.code = 41;
    arm(&host, 10, &exit);
    struck(&host, 10, 1);
    assert_eq!(end_of(trainer).0, 41);
}
